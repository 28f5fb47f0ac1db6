"""Who reaches cloud nodes, and GPUs at all: only what Kueue has admitted for the team."""

from __future__ import annotations

from typing import Any

from components.kubernetes.admission.expressions import IS_NOT_AGENT, MAY_ADMIT, MAY_RUN_PODS, managed, rules
from stacks.labels import BURST_TAINT, FLAVOR_LABEL, GPU_RESOURCE, MANAGED_LABEL


def jobs_stay_off_cloud_nodes() -> dict[str, Any]:
    """A user's job neither tolerates the burst taint nor selects a cloud flavor."""
    return {
        "matchConstraints": managed(rules("batch", ["jobs"], ["CREATE", "UPDATE"])),
        "matchConditions": [{"name": "is-a-user", "expression": f"!{MAY_ADMIT}"}, IS_NOT_AGENT],
        **_off_cloud_nodes("spec.template.spec"),
    }


def pods_stay_off_cloud_nodes() -> dict[str, Any]:
    """Nor does a pod, unless the Job controller made it."""
    return {
        "matchConstraints": managed(rules("", ["pods"], ["CREATE", "UPDATE"])),
        "matchConditions": [{"name": "is-a-user", "expression": f"!{MAY_RUN_PODS}"}],
        **_off_cloud_nodes("spec"),
    }


def gpu_pods_stay_with_their_team() -> dict[str, Any]:
    """Cloud GPUs are asked for in a team's namespace, or by nobody; node agents elsewhere ask for no GPU."""
    asks = (
        f"object.spec.containers.exists(c, '{GPU_RESOURCE}' in c.?resources.?limits.orValue({{}})"
        f" || '{GPU_RESOURCE}' in c.?resources.?requests.orValue({{}}))"
    )
    elsewhere = {"matchExpressions": [{"key": MANAGED_LABEL, "operator": "NotIn", "values": ["true"]}]}
    return {
        "matchConstraints": {"namespaceSelector": elsewhere, **rules("", ["pods"], ["CREATE", "UPDATE"])},
        "validations": [
            {
                "expression": "!object.spec.?tolerations.orValue([])"
                f".exists(t, t.?key.orValue('') == '{BURST_TAINT}') || !{asks}",
                "message": f"pods with GPUs may not tolerate {BURST_TAINT} outside a team's namespace",
            }
        ],
    }


def _off_cloud_nodes(pod: str) -> dict[str, Any]:
    """What a pod may not ask for, at its creation or later; what Kueue or the scheduler gave it may stay as it is."""
    old = f"oldObject.{pod}"
    selected, named = f"?nodeSelector[?'{FLAVOR_LABEL}'].orValue('')", "?nodeName.orValue('')"
    return {
        "variables": [
            {"name": "tolerations", "expression": f"object.{pod}.?tolerations.orValue([])"},
            {"name": "oldTolerations", "expression": f"oldObject == null ? [] : {old}.?tolerations.orValue([])"},
            {"name": "flavor", "expression": f"object.{pod}.{selected}"},
            {"name": "oldFlavor", "expression": f"oldObject == null ? '' : {old}.{selected}"},
            {"name": "node", "expression": f"object.{pod}.{named}"},
            {"name": "oldNode", "expression": f"oldObject == null ? '' : {old}.{named}"},
        ],
        "validations": [
            {
                "expression": "variables.tolerations.all(t, t in variables.oldTolerations"
                f" || (t.?key.orValue('') != '{BURST_TAINT}'"
                " && (t.?key.orValue('') != '' || t.?operator.orValue('Equal') != 'Exists')))",
                "message": f"pods here may not tolerate {BURST_TAINT}, nor every taint; "
                "gpufleet sends jobs to the cloud",
            },
            {
                "expression": "variables.flavor == '' || variables.flavor == variables.oldFlavor",
                "message": f"pods here may not select {FLAVOR_LABEL}; Kueue sets it when it admits a job",
            },
            {
                "expression": f"oldObject != null || !object.{pod}.?affinity.?nodeAffinity"
                ".?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])"
                f".exists(t, t.?matchExpressions.orValue([]).exists(e, e.key == '{FLAVOR_LABEL}'))",
                "message": f"pods here may not ask for {FLAVOR_LABEL} by affinity; Kueue chooses the flavor",
            },
            {
                "expression": "variables.node == '' || variables.node == variables.oldNode",
                "message": "pods here may not name their node, which would go around the scheduler",
            },
        ],
    }
