"""What the agent may change of a job and its Workload: the queue, whether it is active, our words and our check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from components.kubernetes.admission.expressions import (
    IS_AGENT,
    QUEUE_NAME_BEFORE_AND_AFTER,
    WRITES,
    Spec,
    job_rules,
    kueue_rules,
    label_before_and_after,
    team_of,
    variables,
)
from stacks.kinds import JOB_KINDS
from stacks.labels import (
    EVICTION_ANNOTATION,
    GATE_NAME,
    MOVE_ANNOTATION,
    QUEUE_LABEL,
    RECALL_ANNOTATION,
    VERDICT_ANNOTATION,
    VERDICT_CONDITION,
)

# Without the compiler's types, which know neither all kinds nor how to go through metadata.
OLD_AND_NEW: Final = {"old": "dyn(oldObject)", "new": "dyn(object)"}

_SERVERS: Final = ["managedFields", "resourceVersion", "generation"]
_SAME_TEAM: Final = f"({team_of('variables.queue')} == {team_of('variables.oldQueue')} && variables.queue != '')"


def jobs() -> Spec:
    """A job of any kind: its queue label, between queues of one team, while it is suspended."""
    return {
        "matchConstraints": job_rules(WRITES, subresources=True),
        "matchConditions": [IS_AGENT],
        "variables": variables(**OLD_AND_NEW, **label_before_and_after(QUEUE_LABEL, "queue"), suspended=_suspended()),
        "validations": [
            only_updates("jobs"),
            unless_create(
                "variables.new.spec == variables.old.spec && variables.new.?status == variables.old.?status",
                "the agent may not change the spec or status of a job",
            ),
            unless_create(
                metadata_unchanged_but("labels"), "the agent may change nothing of a job's metadata but a label"
            ),
            unless_create(
                map_unchanged_but("labels", [QUEUE_LABEL]), f"the agent may change no label of a job but {QUEUE_LABEL}"
            ),
            unless_create(
                f"variables.queue == variables.oldQueue || (variables.suspended && {_SAME_TEAM})",
                "the agent may move only suspended jobs, and only between the queues of one team",
            ),
        ],
    }


def workloads() -> Spec:
    """A Workload: whether it is active, its queue, our verdict, and how far its eviction is.

    A recall or a move that was carried out is crossed out.
    """
    return {
        "matchConstraints": kueue_rules("workloads", WRITES),
        "matchConditions": [IS_AGENT],
        "variables": variables(**OLD_AND_NEW, **QUEUE_NAME_BEFORE_AND_AFTER),
        "validations": [
            only_updates("workloads"),
            unless_create(
                fields_unchanged_but("spec", ["active", "queueName"]),
                "the agent may change only active and queueName of a workload's spec",
            ),
            unless_create(
                metadata_unchanged_but("annotations"),
                "the agent may change nothing of a workload's metadata but its verdict and its eviction",
            ),
            unless_create(
                map_unchanged_but(
                    "annotations", [VERDICT_ANNOTATION, EVICTION_ANNOTATION], [RECALL_ANNOTATION, MOVE_ANNOTATION]
                ),
                f"the agent may write no annotation of a workload but {VERDICT_ANNOTATION} and {EVICTION_ANNOTATION}, "
                f"and remove none but {RECALL_ANNOTATION} and {MOVE_ANNOTATION}",
            ),
            unless_create(
                f"variables.queue == variables.oldQueue || {_SAME_TEAM}",
                "the agent may move a workload only between the queues of one team",
            ),
        ],
    }


def gate() -> Spec:
    """The status of a Workload: our own check, our own condition, and nothing else."""

    def others(variable: str, field: str, key: str, ours: str) -> str:
        return f"variables.{variable}.?status.?{field}.orValue([]).filter(c, c.{key} != '{ours}')"

    def rest(variable: str, other: str) -> str:
        return (
            f"variables.{variable}.?status.orValue({{}})"
            f".all(k, v, k in ['admissionChecks', 'conditions'] || variables.{other}.?status[?k] == optional.of(v))"
        )

    lists = [("admissionChecks", "name", GATE_NAME), ("conditions", "type", VERDICT_CONDITION)]
    same = [
        rest("new", "old"),
        rest("old", "new"),
        *(f"{others('new', *one)} == {others('old', *one)}" for one in lists),
    ]
    return {
        "matchConstraints": kueue_rules("workloads/status", ["UPDATE"]),
        "matchConditions": [IS_AGENT],
        "variables": variables(**OLD_AND_NEW),
        "validations": [
            {
                "expression": " && ".join(same),
                "message": f"the agent may write only its own check ({GATE_NAME}) and its own condition "
                f"({VERDICT_CONDITION}) in a workload's status",
            },
            {
                "expression": "variables.new.?status.?admissionChecks.orValue([])"
                f".all(c, c.name != '{GATE_NAME}' || c.state in ['Ready', 'Pending'])",
                "message": "the agent answers Ready or stays Pending; Rejected and Retry lose the job's place",
            },
        ],
    }


def only_updates(what: str, who: str = "the agent") -> dict[str, str]:
    """It neither creates nor deletes these, nor writes a subresource of them."""
    return {
        "expression": "request.operation == 'UPDATE' && request.?subResource.orValue('') == ''",
        "message": f"{who} may only update {what}",
    }


def unless_create(expression: str, message: str) -> dict[str, str]:
    """A validation of updates."""
    return {"expression": f"request.operation != 'UPDATE' || ({expression})", "message": message}


def fields_unchanged_but(part: str, allowed: list[str]) -> str:
    """Whether every other field of a part of the object is as it was."""
    new, old = (f"variables.{subject}.?{part}.orValue({{}})" for subject in ("new", "old"))
    return (
        f"{new}.all(k, v, k in {allowed} || {old}[?k] == optional.of(v))"
        f" && {old}.all(k, v, k in {allowed} || k in {new})"
    )


def metadata_unchanged_but(*fields: str) -> str:
    """Whether metadata is as it was, apart from what the server writes and these fields."""
    return fields_unchanged_but("metadata", [*fields, *_SERVERS])


def map_unchanged_but(field: str, keys: Sequence[str], removable: Sequence[str] = ()) -> str:
    """Whether all labels or annotations are as they were, apart from these, and those that may only go."""
    new, old = (f"{subject}.metadata.?{field}.orValue({{}})" for subject in ("object", "oldObject"))
    return (
        f"{new}.all(k, v, k in {[*keys]} || {old}[?k] == optional.of(v))"
        f" && {old}.all(k, v, k in {[*keys, *removable]} || k in {new})"
    )


def _suspended() -> str:
    """Each kind has a field of its own that holds it back; a look-alike elsewhere proves nothing."""
    by_path: dict[tuple[str, ...], list[str]] = {}
    for kind in JOB_KINDS:
        by_path.setdefault(kind.suspend, []).append(kind.kind)
    either = (
        f"(request.kind.kind in {kinds} && oldObject.?{'.?'.join(path)}.orValue(false))"
        for path, kinds in by_path.items()
    )
    return f"oldObject != null && ({' || '.join(either)})"
