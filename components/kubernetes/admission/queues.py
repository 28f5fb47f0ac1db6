"""Who enters and leaves a burst queue: jobs that the agent moves, with what a budget was promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from components.kubernetes.admission.expressions import (
    IS_NOT_AGENT,
    NOBODY_WHO_ADMITS,
    NOBODY_WHO_JUDGES,
    NOBODY_WHO_MAKES_QUEUES,
    QUEUE_NAME_BEFORE_AND_AFTER,
    Spec,
    annotations_unchanged,
    in_burst,
    in_window,
    job_rules,
    kueue_rules,
    label_before_and_after,
    managed,
    variables,
)
from stacks.kinds import JOB_KINDS
from stacks.labels import (
    EVICTION_ANNOTATION,
    GATE_NAME,
    MOVE_ANNOTATION,
    PRIORITY_CLASS_LABEL,
    QUEUE_LABEL,
    RECALL_ANNOTATION,
    VERDICT_ANNOTATION,
    VERDICT_CONDITION,
    WINDOW_INFIX,
)

_QUEUE: Final = label_before_and_after(QUEUE_LABEL, "queue")
_STAYS: Final = "variables.queue == variables.oldQueue"
_NO_BURST: Final = f"(!{in_burst('variables.queue')} && !{in_burst('variables.oldQueue')})"


def jobs_keep_their_queue() -> Spec:
    """A user's job of any kind enters no burst queue, and one that is there stays.

    What has a controller needs no queue: its owner waits in one. The reference may be forged, for no gain: plain pods
    need no queue either, and without one nothing reaches the cloud. Labels can be written with the status, too.
    """
    owned = (
        "object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && o.kind != 'CronJob')"
    )
    return {
        "matchConstraints": managed(job_rules(["CREATE", "UPDATE"], subresources=True)),
        "matchConditions": [IS_NOT_AGENT],
        "variables": variables(**_QUEUE),
        "validations": [
            {
                "expression": f"{_STAYS} || {_NO_BURST}",
                "message": "only gpufleet moves a job into or out of a burst queue; submit to the team's own queue",
            },
            {
                "expression": f"variables.queue != '' || {owned} || request.?subResource.orValue('') != ''",
                "message": f"jobs in this namespace need the label {QUEUE_LABEL} with the name of the team's queue",
            },
        ],
    }


def jobs_start_in_their_window(windowed: Sequence[str], default: str) -> Spec:
    """A job of a class with a window stands in that class's queue, which is held outside the window; others do not.

    Args:
        windowed: Names of the priority classes with a window.
        default: The priority class of a job that names none.
    """
    labels = label_before_and_after(PRIORITY_CLASS_LABEL, "named")
    job_class = f"variables.named == '' ? '{default}' : variables.named"
    unchanged = f"oldObject != null && {_STAYS} && variables.named == variables.oldNamed"
    placed = f"variables.queue == '' || {in_burst('variables.queue')}"
    has_window = f"variables.jobClass in {list(windowed)}"
    return {
        "matchConstraints": managed(job_rules(["CREATE", "UPDATE"], subresources=True)),
        "matchConditions": [IS_NOT_AGENT],
        "variables": variables(**_QUEUE, **labels, jobClass=job_class),
        "validations": [
            {
                "expression": f"{unchanged} || {placed} || !({has_window})"
                f" || variables.queue.endsWith('{WINDOW_INFIX}' + variables.jobClass)",
                "message": "a job of a class that starts only in a window of time is submitted to "
                f"<team>{WINDOW_INFIX}<class>",
            },
            {
                "expression": f"{unchanged} || {has_window} || !{in_window('variables.queue')}",
                "message": f"only jobs of a class with a window are submitted to <team>{WINDOW_INFIX}<class>",
            },
        ],
    }


def jobs_take_their_pods_along() -> Spec:
    """Pods that stay behind in the cloud have no Workload, and nobody pays for them.

    Leaving them is the API's own default for batch/v1; with any other kind one has to ask for it.
    """
    options = "request.?options.?"
    asked = f"{options}propagationPolicy.orValue('')"
    kept = "oldObject.metadata.?finalizers.orValue([]).exists(f, f == 'orphan')"
    left = f"({asked} == '' && (request.kind.kind == 'Job' || {options}orphanDependents.orValue(false) || {kept}))"
    return {
        "matchConstraints": managed(job_rules(["DELETE"])),
        "variables": variables(queue=_QUEUE["oldQueue"]),
        "validations": [
            {
                "expression": f"!{in_burst('variables.queue')} || !({asked} == 'Orphan' || {left})",
                "message": "a job in a burst queue is deleted with its pods: "
                "give the propagation policy Background or Foreground (kubectl's --cascade)",
            }
        ],
    }


def burst_queues_take_jobs_only() -> Spec:
    """The agent knows these kinds alone; anything else would hold cloud quota at the gate unseen.

    A dry run holds nothing, and Kueue depends on one: to fill in a TrainJob's defaults it rehearses the creation of a
    Workload in the job's queue that nobody owns (0.19, pkg/controller/jobs/trainjob, PodSets).
    """
    kinds = [f"{kind.group}/{kind.kind}" for kind in JOB_KINDS]
    queue, owned = "object.spec.?queueName.orValue('')", "object.metadata.?ownerReferences.orValue([])"
    return {
        "matchConstraints": managed(kueue_rules("workloads", ["CREATE", "UPDATE"])),
        "matchConditions": [{"name": "is-no-dry-run", "expression": "!has(request.dryRun) || !request.dryRun"}],
        "validations": [
            {
                "expression": f"!{in_burst(queue)} || {owned}"
                f".exists(o, o.?controller.orValue(false) && o.apiVersion.split('/')[0] + '/' + o.kind in {kinds})",
                "message": f"only {', '.join(kind.kind for kind in JOB_KINDS)} may stand in a burst queue; "
                "other kinds stay local",
            }
        ],
    }


def workloads_keep_their_queue() -> Spec:
    """Nor does a user's Workload move; what a budget was promised about it, and what the agent says of it, stays."""
    return {
        "matchConstraints": managed(kueue_rules("workloads", ["CREATE", "UPDATE"])),
        "matchConditions": [*NOBODY_WHO_ADMITS, IS_NOT_AGENT],
        "variables": variables(**QUEUE_NAME_BEFORE_AND_AFTER),
        "validations": [
            {
                "expression": f"{_STAYS} || {_NO_BURST}",
                "message": "only gpufleet moves a workload into or out of a burst queue",
            },
            {
                "expression": f"{_STAYS} || (!{in_window('variables.queue')} && !{in_window('variables.oldQueue')})",
                "message": "a workload follows its job into or out of the queue of a class with a window",
            },
            {
                "expression": f"!{in_burst('variables.oldQueue')}"
                " || object.spec.?maximumExecutionTimeSeconds == oldObject.spec.?maximumExecutionTimeSeconds",
                "message": "a job in a burst queue keeps its longest run time; delete it and submit it with another",
            },
            {
                "expression": annotations_unchanged(
                    VERDICT_ANNOTATION, EVICTION_ANNOTATION, RECALL_ANNOTATION, MOVE_ANNOTATION
                ),
                "message": f"only gpufleet writes {VERDICT_ANNOTATION} and {EVICTION_ANNOTATION}, "
                f"and only an administrator {RECALL_ANNOTATION} and {MOVE_ANNOTATION}",
            },
        ],
    }


def workloads_are_judged_by_nobody_else() -> Spec:
    """The status of a Workload says what Kueue and the gate decided; whoever writes it starts jobs."""
    return {
        "matchConstraints": managed(kueue_rules("workloads/status", ["UPDATE"])),
        "matchConditions": NOBODY_WHO_JUDGES,
        "validations": [
            {
                "expression": "dyn(object).?status == dyn(oldObject).?status",
                "message": f"only Kueue and gpufleet write a workload's status, {GATE_NAME} and "
                f"{VERDICT_CONDITION} in it",
            }
        ],
    }


def queues_of_ours_have_one_door() -> Spec:
    """A burst ClusterQueue is reached through its own LocalQueue only, and nobody else opens the queue of a window.

    Deleting one harms nobody but the team, and namespaces must be able to go.
    """
    name = "object.metadata.?name.orValue('') + object.metadata.?generateName.orValue('')"
    return {
        "matchConstraints": kueue_rules("localqueues", ["CREATE", "UPDATE"]),
        "matchConditions": [*NOBODY_WHO_MAKES_QUEUES, IS_NOT_AGENT],
        "variables": variables(name=name),
        "validations": [
            {
                "expression": f"!{in_burst('object.spec.clusterQueue')}",
                "message": "only administrators make a LocalQueue onto a burst ClusterQueue",
            },
            {
                "expression": f"!{in_burst('variables.name')} && !{in_window('variables.name')}",
                "message": "only administrators make or change the LocalQueues of burst twins and windows",
            },
        ],
    }
