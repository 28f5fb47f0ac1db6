"""What the agent may change: a job's queue label between twins, two fields of a Workload, and its own check."""

from __future__ import annotations

from typing import Any, Final

from components.kubernetes.admission.expressions import (
    IS_AGENT,
    label,
    old_and_new,
    rules,
)
from stacks.labels import BURST_SUFFIX, GATE_NAME, QUEUE_LABEL, VERDICT_ANNOTATION

# A budget commits the price of this time when the job passes the gate.
_LIMIT_STAYS: Final = "a job in a burst queue keeps its longest run time; delete it and submit it with another"

_SERVER_METADATA: Final = "['managedFields', 'resourceVersion', 'generation']"


def jobs() -> dict[str, Any]:
    """A job: its queue label, between the two twins of one team, while it is suspended."""
    return {
        "matchConstraints": rules("batch", ["jobs", "jobs/status"], ["CREATE", "UPDATE", "DELETE"]),
        "matchConditions": [IS_AGENT],
        "variables": [
            *old_and_new(),
            {"name": "queue", "expression": label("object", QUEUE_LABEL)},
            {"name": "oldQueue", "expression": label("oldObject", QUEUE_LABEL)},
        ],
        "validations": [
            _only_updates("jobs"),
            _unless_create(
                "variables.new.spec == variables.old.spec && variables.new.?status == variables.old.?status",
                "the agent may not change the spec or status of a job",
            ),
            _unless_create(
                _metadata_unchanged_but("'labels'"), "the agent may change nothing of a job's metadata but a label"
            ),
            _unless_create(
                _map_unchanged_but("labels", QUEUE_LABEL), f"the agent may change no label of a job but {QUEUE_LABEL}"
            ),
            _unless_create(
                "variables.queue == variables.oldQueue || "
                f"(oldObject.spec.?suspend.orValue(false) && {_twins('queue')})",
                "the agent may move only suspended jobs, and only between a queue and its burst twin",
            ),
        ],
    }


def workloads() -> dict[str, Any]:
    """A Workload: whether it is active, its queue, and our verdict."""
    return {
        "matchConstraints": rules("kueue.x-k8s.io", ["workloads"], ["CREATE", "UPDATE", "DELETE"], "v1beta2"),
        "matchConditions": [IS_AGENT],
        "variables": [
            *old_and_new(),
            {"name": "queue", "expression": "object == null ? '' : object.spec.?queueName.orValue('')"},
            {"name": "oldQueue", "expression": "oldObject == null ? '' : oldObject.spec.?queueName.orValue('')"},
        ],
        "validations": [
            _only_updates("workloads"),
            _unless_create(
                "variables.new.spec.all(k, v, k in ['active', 'queueName'] || variables.old.spec[?k] == optional.of(v))"
                " && variables.old.spec.all(k, v, k in variables.new.spec)",
                "the agent may change only active and queueName of a workload's spec",
            ),
            _unless_create(
                _metadata_unchanged_but("'annotations'"),
                "the agent may change nothing of a workload's metadata but its verdict",
            ),
            _unless_create(
                _map_unchanged_but("annotations", VERDICT_ANNOTATION),
                f"the agent may change no annotation of a workload but {VERDICT_ANNOTATION}",
            ),
            _unless_create(
                f"variables.queue == variables.oldQueue || {_twins('queue')}",
                "the agent may move a workload only between a queue and its burst twin",
            ),
        ],
    }


def gate() -> dict[str, Any]:
    """The status of a Workload: our own check and no other."""

    def others(variable: str) -> str:
        return f"variables.{variable}.?status.?admissionChecks.orValue([]).filter(c, c.name != '{GATE_NAME}')"

    def rest(variable: str, other: str) -> str:
        return (
            f"variables.{variable}.?status.orValue({{}})"
            f".all(k, v, k == 'admissionChecks' || variables.{other}.?status[?k] == optional.of(v))"
        )

    return {
        "matchConstraints": rules("kueue.x-k8s.io", ["workloads/status"], ["UPDATE"], "v1beta2"),
        "matchConditions": [IS_AGENT],
        "variables": old_and_new(),
        "validations": [
            {
                "expression": f"{rest('new', 'old')} && {rest('old', 'new')} && {others('new')} == {others('old')}",
                "message": f"the agent may write only its own check ({GATE_NAME}) in a workload's status",
            },
            {
                "expression": "variables.new.?status.?admissionChecks.orValue([])"
                f".all(c, c.name != '{GATE_NAME}' || c.state in ['Ready', 'Pending'])",
                "message": "the agent answers Ready or stays Pending; Rejected and Retry lose the job's place",
            },
        ],
    }


def _only_updates(what: str) -> dict[str, str]:
    return {
        "expression": "request.operation == 'UPDATE' && request.?subResource.orValue('') == ''",
        "message": f"the agent may only update {what}",
    }


def _unless_create(expression: str, message: str) -> dict[str, str]:
    return {"expression": f"request.operation != 'UPDATE' || ({expression})", "message": message}


def _metadata_unchanged_but(field: str) -> str:
    allowed = _SERVER_METADATA.replace("[", f"[{field}, ")
    return (
        f"variables.new.metadata.all(k, v, k in {allowed} || variables.old.metadata[?k] == optional.of(v))"
        f" && variables.old.metadata.all(k, v, k in {allowed} || k in variables.new.metadata)"
    )


def _map_unchanged_but(field: str, key: str) -> str:
    new, old = (f"{subject}.metadata.?{field}.orValue({{}})" for subject in ("object", "oldObject"))
    return (
        f"{new}.all(k, v, k == '{key}' || {old}[?k] == optional.of(v)) && {old}.all(k, v, k == '{key}' || k in {new})"
    )


def _twins(name: str) -> str:
    old = f"old{name.capitalize()}"
    return (
        f"(variables.{name} == variables.{old} + '{BURST_SUFFIX}' || "
        f"variables.{old} == variables.{name} + '{BURST_SUFFIX}')"
    )
