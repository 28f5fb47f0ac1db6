"""Expressions and rules that several admission policies share."""

from __future__ import annotations

from typing import Any, Final

from stacks.labels import AGENT_NAME, MANAGED_LABEL, SYSTEM_NAMESPACE

AGENT_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT_NAME}"
IS_AGENT: Final = {"name": "is-the-agent", "expression": f"request.userInfo.username == '{AGENT_USER}'"}
IS_NOT_AGENT: Final = {"name": "is-not-the-agent", "expression": f"request.userInfo.username != '{AGENT_USER}'"}
# Kueue and administrators: they alone may write what Kueue decides.
MAY_ADMIT: Final = (
    "authorizer.group('kueue.x-k8s.io').resource('workloads').subresource('status')"
    ".namespace(request.namespace).check('update').allowed()"
)
# The Job controller and administrators: they alone may write what the Job controller reports.
MAY_RUN_PODS: Final = (
    "authorizer.group('batch').resource('jobs').subresource('status')"
    ".namespace(request.namespace).check('update').allowed()"
)
MAY_MAKE_QUEUES: Final = "authorizer.group('kueue.x-k8s.io').resource('clusterqueues').check('update').allowed()"


def rules(group: str, resources: list[str], operations: list[str], version: str = "v1") -> dict[str, Any]:
    """Match these operations on these resources of a group."""
    rule = {"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": resources}
    return {"resourceRules": [rule]}


def managed(constraints: dict[str, Any]) -> dict[str, Any]:
    """The same, in the namespaces of teams only."""
    return {"namespaceSelector": {"matchLabels": {MANAGED_LABEL: "true"}}, **constraints}


def old_and_new() -> list[dict[str, str]]:
    """Variables for the object before and after, without the compiler's types."""
    return [{"name": "old", "expression": "dyn(oldObject)"}, {"name": "new", "expression": "dyn(object)"}]


def label(subject: str, key: str) -> str:
    """A label of the subject, or nothing where subject or label is absent."""
    return f"{subject} == null ? '' : {subject}.metadata.?labels[?'{key}'].orValue('')"
