"""Who says that a node will go, which is the node agent of that very node; and who asks pods to save their work.

The API server knows the node that a pod's token was issued on, and says so with every request
(`authentication.kubernetes.io/node-name`, since Kubernetes 1.30). A token that was taken to another node speaks for the
node it came from only.
"""

from __future__ import annotations

from typing import Final

from components.kubernetes.admission.agent import (
    OLD_AND_NEW,
    fields_unchanged_but,
    map_unchanged_but,
    metadata_unchanged_but,
    only_updates,
    unless_create,
)
from components.kubernetes.admission.expressions import (
    IS_NODE_AGENT,
    IS_NOT_AGENT,
    IS_NOT_NODE_AGENT,
    MAKES_QUEUES,
    WRITES,
    Spec,
    annotations_unchanged,
    managed,
    rules,
    variables,
)
from stacks.labels import (
    AGENT_DRAIN_TAINT,
    CHECKPOINT_REQUEST_ANNOTATION,
    CLEARED_ANNOTATION,
    CORDONED_ANNOTATION,
    DRAIN_TAINT,
    EVICTING_TAINT,
    NOTICES_ANNOTATION,
    RELAYOUT_ANNOTATION,
)

OWN_NODE: Final = "request.userInfo.?extra[?'authentication.kubernetes.io/node-name'][?0].orValue('')"
"""The node of the pod whose token the request carries; empty for everybody else."""

_OURS: Final = f"t.key == '{EVICTING_TAINT}'"
_KEPT: Final = f"t.key in {[EVICTING_TAINT, DRAIN_TAINT, AGENT_DRAIN_TAINT]}"
_AGENT: Final = "the node agent"


def node_agents_write_their_own_node() -> Spec:
    """Of its own node a node agent writes its notices, our taint, and whether pods are placed there.

    It takes back only what it did: a node that was cordoned without its record stays cordoned.
    """
    before_and_after = {
        "taints": "variables.new.?spec.?taints.orValue([])",
        "oldTaints": "variables.old.?spec.?taints.orValue([])",
        "cordoned": "variables.new.?spec.?unschedulable.orValue(false)",
        "oldCordoned": "variables.old.?spec.?unschedulable.orValue(false)",
    }
    recorded, was_recorded = (
        f"'{CORDONED_ANNOTATION}' in {subject}.metadata.?annotations.orValue({{}})"
        for subject in ("object", "oldObject")
    )
    spec = fields_unchanged_but("spec", ["taints", "unschedulable"])
    return {
        "matchConstraints": rules(("", ["nodes", "nodes/*"]), operations=WRITES),
        "matchConditions": [IS_NODE_AGENT],
        "variables": variables(**OLD_AND_NEW, **before_and_after),
        "validations": [
            only_updates("nodes", _AGENT),
            unless_create(
                f"object.metadata.name == {OWN_NODE}", "a node agent may write its own node only, by its pod's token"
            ),
            unless_create(
                f"{spec} && {metadata_unchanged_but('annotations')}",
                f"{_AGENT} may change nothing of a node but annotations, taints and unschedulable",
            ),
            unless_create(
                map_unchanged_but("annotations", [NOTICES_ANNOTATION, CORDONED_ANNOTATION]),
                f"{_AGENT} may write no annotation of a node but {NOTICES_ANNOTATION} and {CORDONED_ANNOTATION}",
            ),
            unless_create(
                f"variables.taints.all(t, ({_OURS} && t.effect == 'NoSchedule') || t in variables.oldTaints)"
                f" && variables.oldTaints.all(t, {_OURS} || t in variables.taints)",
                f"{_AGENT} may set and take away no taint but {EVICTING_TAINT}:NoSchedule",
            ),
            unless_create(
                f"variables.cordoned == variables.oldCordoned || (variables.cordoned ? {recorded} : {was_recorded})",
                f"{_AGENT} records in {CORDONED_ANNOTATION} that it cordons a node, "
                "and uncordons none without that record",
            ),
        ],
    }


def nodes_keep_their_notices() -> Spec:
    """What either agent said stays until it takes it back, whoever else may write nodes; administrators may.

    A node is emptied when an administrator says so, or the agent.
    What the agents may write of these themselves is in policies of their own.
    Others, the kubelet first of all, write nodes all the time: only who changes one of these is asked for rights.
    """
    taints = (f"{subject}.spec.?taints.orValue([]).filter(t, {_KEPT})" for subject in ("object", "oldObject"))
    annotations = annotations_unchanged(
        NOTICES_ANNOTATION, CORDONED_ANNOTATION, CLEARED_ANNOTATION, RELAYOUT_ANNOTATION
    )
    same = f"{annotations} && {' == '.join(taints)}"
    return {
        "matchConstraints": rules(("", ["nodes", "nodes/status"]), operations=["UPDATE"]),
        "matchConditions": [IS_NOT_NODE_AGENT, IS_NOT_AGENT],
        "validations": [
            {
                "expression": f"({same}) || {MAKES_QUEUES}",
                "message": f"only the node agent writes {NOTICES_ANNOTATION}, {CORDONED_ANNOTATION} "
                f"and the taint {EVICTING_TAINT}, only the agent {CLEARED_ANNOTATION}, {RELAYOUT_ANNOTATION} "
                f"and the taint {AGENT_DRAIN_TAINT}, and only an administrator {DRAIN_TAINT}",
            }
        ],
    }


def pods_keep_their_requests() -> Spec:
    """That a pod is asked to save its work, only the agent says, or an administrator who tries it out.

    What a pod is made with is left alone: a request that its owner wrote in advance names none of the agent's.
    """
    return {
        "matchConstraints": managed(rules(("", ["pods", "pods/status"]), operations=["UPDATE"])),
        "matchConditions": [IS_NOT_AGENT],
        "validations": [
            {
                "expression": f"{annotations_unchanged(CHECKPOINT_REQUEST_ANNOTATION)} || {MAKES_QUEUES}",
                "message": f"only gpufleet writes {CHECKPOINT_REQUEST_ANNOTATION}",
            }
        ],
    }
