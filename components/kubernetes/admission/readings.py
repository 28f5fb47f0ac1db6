"""Who says that a node's GPUs are ill: the reader of GPUs on that very node, and nothing else of it.

It is a policy of fleets with `gpu_layer.readings`; elsewhere there is no such reader.
"""

from __future__ import annotations

from typing import Final

from components.kubernetes.admission.agent import (
    OLD_AND_NEW,
    fields_unchanged_but,
    map_unchanged_but,
    metadata_unchanged_but,
    unless_create,
)
from components.kubernetes.admission.expressions import WRITES, Spec, rules, variables
from components.kubernetes.admission.notices import OWN_NODE
from stacks.labels import (
    GPU_CONDITION,
    GPU_FAILED_TAINT,
    GPU_FAULTS_ANNOTATION,
    GPU_READER_NAME,
    SYSTEM_NAMESPACE,
)

_READER: Final = "the reader of GPUs"
_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{GPU_READER_NAME}"
_TAINT: Final = f"t.key == '{GPU_FAILED_TAINT}'"
_CONDITION: Final = f"c.type == '{GPU_CONDITION}'"


def readers_write_their_own_node() -> Spec:
    """Of its own node it writes one annotation, one taint, and one condition of the status."""
    lists = {
        "taints": "variables.new.?spec.?taints.orValue([])",
        "oldTaints": "variables.old.?spec.?taints.orValue([])",
        "conditions": "variables.new.?status.?conditions.orValue([])",
        "oldConditions": "variables.old.?status.?conditions.orValue([])",
    }
    return {
        "matchConstraints": rules(("", ["nodes", "nodes/*"]), operations=WRITES),
        "matchConditions": [{"name": "is-a-reader", "expression": f"request.userInfo.username == '{_USER}'"}],
        "variables": variables(**OLD_AND_NEW, **lists),
        "validations": [
            {
                "expression": "request.operation == 'UPDATE' && request.?subResource.orValue('') in ['', 'status']",
                "message": f"{_READER} may only update nodes and their status",
            },
            unless_create(f"object.metadata.name == {OWN_NODE}", f"{_READER} may write its own node only"),
            unless_create(
                f"{fields_unchanged_but('spec', ['taints'])} && {fields_unchanged_but('status', ['conditions'])}"
                f" && {metadata_unchanged_but('annotations')}",
                f"{_READER} may change nothing of a node but an annotation, a taint and a condition",
            ),
            unless_create(
                map_unchanged_but("annotations", [GPU_FAULTS_ANNOTATION]),
                f"{_READER} may write no annotation of a node but {GPU_FAULTS_ANNOTATION}",
            ),
            unless_create(
                f"variables.taints.all(t, ({_TAINT} && t.effect == 'NoSchedule') || t in variables.oldTaints)"
                f" && variables.oldTaints.all(t, {_TAINT} || t in variables.taints)",
                f"{_READER} may set and take away no taint but {GPU_FAILED_TAINT}:NoSchedule",
            ),
            unless_create(
                f"variables.conditions.all(c, {_CONDITION} || c in variables.oldConditions)"
                f" && variables.oldConditions.all(c, {_CONDITION} || c in variables.conditions)",
                f"{_READER} may write no condition of a node but {GPU_CONDITION}",
            ),
        ],
    }
