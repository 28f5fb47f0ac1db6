"""What the agent has in a team's namespace: where it says when jobs are expected to start, and its rights there.

It forecasts nothing. The ConfigMap has no `data` here, since that is the agent's: server-side apply owns the fields
that it sends and no others, so `pulumi up` neither clears nor takes over what the agent wrote, and `--refresh` compares
only what the program set. An empty `data` would be a claim on it; there must be none. The agent cannot make or delete
the object, and reaches no other of its kind.

Invariant: no object hangs on another, as `components.kubernetes.kueue` needs for deletion.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from components.names import Manifest, manifest
from stacks.fleet import Fleet
from stacks.labels import AGENT_NAME, FORECAST_NAME, SYSTEM_NAMESPACE, TEAM_LABEL

RBAC: Final = "rbac.authorization.k8s.io"

TEAM_RULES: Final[list[dict[str, Any]]] = [
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"], "resourceNames": [FORECAST_NAME]},
    # When a node goes: to ask pods to save their work, to keep their answers, to evict those that Kueue does not own.
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
    {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
]
"""What the agent may do in a team's namespace beyond its rights everywhere."""


def manifests(fleet: Fleet, team: str) -> dict[str, Manifest]:
    """The team's forecast, and the agent's rights in its namespace, by role."""
    ours = partial(manifest, namespace=fleet.teams[team].namespace or team, labels={TEAM_LABEL: team})
    return {
        f"forecast-{team}": ours("v1", "ConfigMap", FORECAST_NAME),
        f"rights-{team}": ours(f"{RBAC}/v1", "Role", AGENT_NAME, rules=TEAM_RULES),
        f"grant-{team}": ours(
            f"{RBAC}/v1",
            "RoleBinding",
            AGENT_NAME,
            roleRef={"apiGroup": RBAC, "kind": "Role", "name": AGENT_NAME},
            subjects=[{"kind": "ServiceAccount", "name": AGENT_NAME, "namespace": SYSTEM_NAMESPACE}],
        ),
    }
