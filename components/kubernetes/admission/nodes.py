"""Who reaches cloud nodes, and GPUs at all: only what Kueue has admitted for the team.

A job may insist on a GPU model (gpufleet.dev/gpu); which flavor of it, and where, Kueue decides.
"""

from __future__ import annotations

from typing import Final

from components.kubernetes.admission.expressions import (
    NOBODY_WHO_MAKES_QUEUES,
    NOBODY_WHO_RUNS_JOBS,
    NOBODY_WHO_SCHEDULES,
    Spec,
    managed,
    rules,
    variables,
)
from components.kubernetes.admission.templates import template_pods, template_rules
from stacks.labels import BURST_TAINT, FLAVOR_LABEL, GPU_RESOURCE, MANAGED_LABEL, TEAM_LABEL

LONGEST_GRACE_SECONDS: Final = 300
"""Long enough to write a checkpoint of hundreds of gigabytes to an object store."""

_KUBERNETES_GRACE_SECONDS: Final = 30
_TERMS: Final = "?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])"


def templates_stay_off_cloud_nodes() -> Spec:
    """A user's job of any kind neither tolerates the burst taint nor selects a flavor."""
    return {
        "matchConstraints": managed(template_rules(["CREATE", "UPDATE"])),
        "matchConditions": NOBODY_WHO_RUNS_JOBS,
        "variables": template_pods(),
        "validations": _off_cloud_nodes(),
    }


def pods_stay_off_cloud_nodes() -> Spec:
    """Nor does a pod, unless a controller of jobs made it."""
    pods = variables(pods="[[dyn(object).spec]]", oldPods="oldObject == null ? [] : [[dyn(oldObject).spec]]")
    return {
        "matchConstraints": managed(rules(("", ["pods"]), operations=["CREATE", "UPDATE"])),
        "matchConditions": NOBODY_WHO_RUNS_JOBS,
        "variables": pods,
        "validations": _off_cloud_nodes(),
    }


def pods_are_bound_by_schedulers() -> Spec:
    """A pod that is bound by hand runs on any node, whatever its taints say."""
    return {
        "matchConstraints": managed(rules(("", ["pods/binding", "bindings"]), operations=["CREATE"])),
        "matchConditions": NOBODY_WHO_SCHEDULES,
        "validations": [{"expression": "false", "message": "pods here are bound to nodes by schedulers only"}],
    }


def gpu_pods_stay_with_their_team() -> Spec:
    """Cloud GPUs are asked for in a team's namespace, or by nobody; node agents elsewhere ask for no GPU."""
    asks = (
        f"object.spec.containers.exists(c, '{GPU_RESOURCE}' in c.?resources.?limits.orValue({{}})"
        f" || '{GPU_RESOURCE}' in c.?resources.?requests.orValue({{}}))"
    )
    elsewhere = {"matchExpressions": [{"key": MANAGED_LABEL, "operator": "NotIn", "values": ["true"]}]}
    return {
        "matchConstraints": {
            "namespaceSelector": elsewhere,
            **rules(("", ["pods"]), operations=["CREATE", "UPDATE"]),
        },
        "validations": [
            {
                "expression": "!object.spec.?tolerations.orValue([])"
                f".exists(t, t.?key.orValue('') == '{BURST_TAINT}') || !{asks}",
                "message": f"pods with GPUs may not tolerate {BURST_TAINT} outside a team's namespace",
            }
        ],
    }


def namespaces_stay_managed() -> Spec:
    """Whoever has every right in a namespace may change its labels, and with them which policies apply to it."""
    labels = [MANAGED_LABEL, TEAM_LABEL]
    return {
        "matchConstraints": rules(
            ("", ["namespaces", "namespaces/status", "namespaces/finalize"]), operations=["UPDATE"]
        ),
        "matchConditions": NOBODY_WHO_MAKES_QUEUES,
        "validations": [
            {
                "expression": f"{labels}.all(l, object.metadata.?labels[?l] == oldObject.metadata.?labels[?l])",
                "message": f"only administrators write {MANAGED_LABEL} and {TEAM_LABEL} of a namespace",
            }
        ],
    }


def jobs_end_in_time() -> Spec:
    """Kueue gives quota back when pods are told to end; until they have ended they cost, and nobody counts it."""
    grace = f"?terminationGracePeriodSeconds.orValue({_KUBERNETES_GRACE_SECONDS})"
    return {
        "matchConstraints": managed(template_rules(["CREATE", "UPDATE"])),
        "variables": template_pods(),
        "validations": [
            {
                "expression": _every_pod(
                    f"p.{grace} <= {LONGEST_GRACE_SECONDS} || {_before(f'o.{grace} == p.{grace}')}"
                ),
                "message": f"terminationGracePeriodSeconds of a job is at most {LONGEST_GRACE_SECONDS} here",
            }
        ],
    }


def _off_cloud_nodes() -> list[dict[str, str]]:
    """What pods may not ask for, at creation or later; what Kueue or the scheduler gave them may stay as it is."""
    flavor, node = f"?nodeSelector[?'{FLAVOR_LABEL}'].orValue('')", "?nodeName.orValue('')"
    harmless = (
        f"(t.?key.orValue('') != '{BURST_TAINT}'"
        " && (t.?key.orValue('') != '' || t.?operator.orValue('Equal') != 'Exists'))"
    )
    return [
        {
            "expression": _every_pod(
                f"p.?tolerations.orValue([]).all(t, {harmless} || {_before('t in o.?tolerations.orValue([])')})"
            ),
            "message": f"pods here may not tolerate {BURST_TAINT}, nor every taint; gpufleet sends jobs to the cloud",
        },
        {
            "expression": _every_pod(f"p.{flavor} == '' || {_before(f'o.{flavor} == p.{flavor}')}"),
            "message": f"pods here may not select {FLAVOR_LABEL}; Kueue sets it when it admits a job",
        },
        {
            "expression": _every_pod(
                f"p.{_TERMS}.all(t, t.?matchExpressions.orValue([]).all(e, e.key != '{FLAVOR_LABEL}')"
                f" || {_before(f't in o.{_TERMS}')})"
            ),
            "message": f"pods here may not ask for {FLAVOR_LABEL} by affinity; Kueue chooses the flavor",
        },
        {
            "expression": _every_pod(f"p.{node} == '' || {_before(f'o.{node} == p.{node}')}"),
            "message": "pods here may not name their node, which would go around the scheduler",
        },
    ]


def _every_pod(expression: str) -> str:
    return f"variables.pods.all(g, g.all(p, {expression}))"


def _before(expression: str) -> str:
    return f"variables.oldPods.exists(h, h.exists(o, {expression}))"
