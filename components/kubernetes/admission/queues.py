"""Who enters and leaves a burst queue: jobs that the agent moves, with what a budget was promised."""

from __future__ import annotations

from typing import Any, Final

from components.kubernetes.admission.expressions import (
    IS_NOT_AGENT,
    MAY_ADMIT,
    MAY_MAKE_QUEUES,
    label,
    managed,
    rules,
)
from stacks.labels import BURST_SUFFIX, QUEUE_LABEL

LONGEST_GRACE_SECONDS: Final = 300
"""Long enough to write a checkpoint of hundreds of gigabytes to an object store."""

# A budget commits the price of this time when the job passes the gate.
_LIMIT_STAYS: Final = "a job in a burst queue keeps its longest run time; delete it and submit it with another"


def jobs_keep_their_queue() -> dict[str, Any]:
    """A user's job enters no burst queue, and one that is there stays."""
    owned = (
        "object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && o.kind != 'CronJob')"
    )
    return {
        "matchConstraints": managed(rules("batch", ["jobs"], ["CREATE", "UPDATE"])),
        "matchConditions": [IS_NOT_AGENT],
        "variables": [
            {"name": "queue", "expression": label("object", QUEUE_LABEL)},
            {"name": "oldQueue", "expression": label("oldObject", QUEUE_LABEL)},
        ],
        "validations": [
            {
                "expression": "variables.queue == variables.oldQueue || "
                f"(!variables.queue.endsWith('{BURST_SUFFIX}') && !variables.oldQueue.endsWith('{BURST_SUFFIX}'))",
                "message": "only gpufleet moves a job into or out of a burst queue; submit to the team's own queue",
            },
            {
                "expression": f"variables.queue != '' || {owned}",
                "message": f"jobs in this namespace need the label {QUEUE_LABEL} with the name of the team's queue",
            },
        ],
    }


def jobs_take_their_pods_along() -> dict[str, Any]:
    """The API's own default for batch/v1 leaves the pods running: in the cloud, without a Workload, unpaid for."""
    return {
        "matchConstraints": managed(rules("batch", ["jobs"], ["DELETE"])),
        "variables": [{"name": "queue", "expression": label("oldObject", QUEUE_LABEL)}],
        "validations": [
            {
                "expression": f"!variables.queue.endsWith('{BURST_SUFFIX}')"
                " || request.options.?propagationPolicy.orValue('') in ['Background', 'Foreground']",
                "message": "a job in a burst queue is deleted with its pods: "
                "give the propagation policy Background or Foreground (kubectl's --cascade)",
            }
        ],
    }


def jobs_end_in_time() -> dict[str, Any]:
    """Kueue gives quota back when pods are told to end; until they have ended they cost, and nobody counts it."""
    return {
        "matchConstraints": managed(rules("batch", ["jobs"], ["CREATE"])),
        "validations": [
            {
                "expression": "object.spec.template.spec.?terminationGracePeriodSeconds.orValue(30)"
                f" <= {LONGEST_GRACE_SECONDS}",
                "message": f"terminationGracePeriodSeconds of a job is at most {LONGEST_GRACE_SECONDS} here",
            }
        ],
    }


def burst_queues_take_jobs_only() -> dict[str, Any]:
    """The agent knows batch/v1 Jobs alone; anything else would hold cloud quota at the gate unseen."""
    owned = "object.metadata.?ownerReferences.orValue([])"
    return {
        "matchConstraints": managed(rules("kueue.x-k8s.io", ["workloads"], ["CREATE", "UPDATE"], "v1beta2")),
        "validations": [
            {
                "expression": f"!object.spec.?queueName.orValue('').endsWith('{BURST_SUFFIX}') || {owned}"
                ".exists(o, o.?controller.orValue(false) && o.kind == 'Job' && o.apiVersion == 'batch/v1')",
                "message": "only batch/v1 Jobs may stand in a burst queue; other kinds stay local",
            }
        ],
    }


def workloads_keep_their_queue() -> dict[str, Any]:
    """Nor does a Workload, and what a budget was promised about it stays."""
    return {
        "matchConstraints": managed(rules("kueue.x-k8s.io", ["workloads"], ["CREATE", "UPDATE"], "v1beta2")),
        "matchConditions": [{"name": "is-a-user", "expression": f"!{MAY_ADMIT}"}, IS_NOT_AGENT],
        "variables": [
            {"name": "queue", "expression": "object.spec.?queueName.orValue('')"},
            {"name": "oldQueue", "expression": "oldObject == null ? '' : oldObject.spec.?queueName.orValue('')"},
        ],
        "validations": [
            {
                "expression": "variables.queue == variables.oldQueue || "
                f"(!variables.queue.endsWith('{BURST_SUFFIX}') && !variables.oldQueue.endsWith('{BURST_SUFFIX}'))",
                "message": "only gpufleet moves a workload into or out of a burst queue",
            },
            {
                "expression": f"!variables.oldQueue.endsWith('{BURST_SUFFIX}')"
                " || object.spec.?maximumExecutionTimeSeconds == oldObject.spec.?maximumExecutionTimeSeconds",
                "message": _LIMIT_STAYS,
            },
        ],
    }


def burst_queues_have_one_door() -> dict[str, Any]:
    """A burst ClusterQueue is reached through its own LocalQueue only."""
    return {
        "matchConstraints": rules("kueue.x-k8s.io", ["localqueues"], ["CREATE", "UPDATE"], "v1beta2"),
        "matchConditions": [{"name": "is-a-user", "expression": f"!{MAY_MAKE_QUEUES}"}],
        "validations": [
            {
                "expression": f"!object.spec.clusterQueue.endsWith('{BURST_SUFFIX}')",
                "message": "only administrators make a LocalQueue onto a burst ClusterQueue",
            }
        ],
    }
