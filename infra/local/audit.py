"""What the API server writes to its audit log, and how long that is kept.

The log is evidence, not telemetry: from it alone one can say which pod was bound to which node, and which admission
check had which answer at that time. Reads, events, leases and everything else are left out, so that it stays small.
"""

from __future__ import annotations

from pathlib import Path

from infra.local.kubeclient import Manifest
from stacks.kinds import JOB_KINDS

# Together 10 GiB at most: some 300,000 jobs. Older evidence is deleted by the API server after that.
_MAX_SIZE_MIB = 512
_MAX_BACKUPS = 20


def flags(policy: Path, log: Path) -> list[str]:
    """Return the API server's flags for the log; the blocking mode writes each entry before the answer is sent."""
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log}",
        "--audit-log-mode=blocking",
        f"--audit-log-maxsize={_MAX_SIZE_MIB}",
        f"--audit-log-maxbackup={_MAX_BACKUPS}",
    ]


def policy() -> Manifest:
    """Return the audit policy; the first rule that matches decides."""
    writes = ["create", "update", "patch"]
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "omitManagedFields": True,
        "rules": [
            {"level": "None", "verbs": ["get", "list", "watch"]},
            # A pod's creation says what it asked for, its binding on which node it ran.
            {"level": "Request", "verbs": ["create"], "resources": [_resources("", "pods", "pods/binding")]},
            # A patch alone does not say what the object was afterwards.
            {
                "level": "RequestResponse",
                "verbs": writes,
                "resources": [_resources("kueue.x-k8s.io", "workloads", "workloads/status")],
            },
            {
                "level": "Request",
                "verbs": writes,
                "resources": [_resources(kind.group, kind.plural) for kind in JOB_KINDS],
            },
            {"level": "Metadata", "resources": [{"group": "kueue.x-k8s.io"}]},
            {"level": "None"},
        ],
    }


def _resources(group: str, *names: str) -> dict[str, object]:
    return {"group": group, "resources": list(names)}
