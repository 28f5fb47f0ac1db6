"""Expressions and rules that several admission policies share.

Who is exempt is asked of the API server's own authorizer, for all namespaces at once: whoever is given every right in
one namespace is still a user there. The API server bills 350,000 for each such question, and allows 1,000,000 in one
expression and 2,500,000 in all conditions of a policy: at most two in an expression, and seven in a policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stacks.kinds import JOB_KINDS
from stacks.labels import (
    AGENT_NAME,
    BURST_INFIX,
    MANAGED_LABEL,
    NODE_AGENT_NAME,
    SYSTEM_NAMESPACE,
    WINDOW_INFIX,
)

Spec = dict[str, Any]
"""The spec of a ValidatingAdmissionPolicy, without its failure policy."""

KUEUE: Final = "kueue.x-k8s.io"
KUEUE_VERSION: Final = "v1beta2"
WRITES: Final = ["CREATE", "UPDATE", "DELETE"]

AGENT_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT_NAME}"
IS_AGENT: Final = {"name": "is-the-agent", "expression": f"request.userInfo.username == '{AGENT_USER}'"}
NODE_AGENT_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{NODE_AGENT_NAME}"
IS_NODE_AGENT: Final = {"name": "is-a-node-agent", "expression": f"request.userInfo.username == '{NODE_AGENT_USER}'"}
IS_NOT_NODE_AGENT: Final = {
    "name": "is-no-node-agent",
    "expression": f"request.userInfo.username != '{NODE_AGENT_USER}'",
}
IS_NOT_AGENT: Final = {"name": "is-not-the-agent", "expression": f"request.userInfo.username != '{AGENT_USER}'"}


def may(verb: str, group: str, resource: str, subresource: str = "") -> str:
    """Whether the user has this right in all namespaces."""
    deeper = f".subresource('{subresource}')" if subresource else ""
    return f"authorizer.group('{group}').resource('{resource}'){deeper}.check('{verb}').allowed()"


_QUESTIONS_PER_EXPRESSION: Final = 2


def nobody_who(rights: Sequence[str]) -> list[dict[str, str]]:
    """Conditions that leave out whoever has any of these rights."""
    steps = range(0, len(rights), _QUESTIONS_PER_EXPRESSION)
    return [
        {
            "name": f"is-a-user-{start}",
            "expression": " && ".join(f"!{right}" for right in rights[start : start + _QUESTIONS_PER_EXPRESSION]),
        }
        for start in steps
    ]


# Kueue and administrators: they alone may write what Kueue decides.
NOBODY_WHO_ADMITS: Final = nobody_who([may("update", KUEUE, "workloads", "status")])
# Controllers of admission checks, the agent among them, may only patch.
NOBODY_WHO_JUDGES: Final = nobody_who([may(verb, KUEUE, "workloads", "status") for verb in ("update", "patch")])
NOBODY_WHO_SCHEDULES: Final = nobody_who([may("create", "", "pods", "binding")])
MAKES_QUEUES: Final = may("update", KUEUE, "clusterqueues")
NOBODY_WHO_MAKES_QUEUES: Final = nobody_who([MAKES_QUEUES])
# The controllers of jobs, Kueue and administrators: they make jobs and pods with what Kueue gave to their owner. An
# owner reference proves nothing, because anyone may write one.
NOBODY_WHO_RUNS_JOBS: Final = nobody_who([may("update", kind.group, kind.plural, "status") for kind in JOB_KINDS])


def rules(*groups: tuple[str, list[str]], operations: list[str], version: str = "*") -> Spec:
    """Match these operations on the resources of each group, in every version that is served."""
    return {
        "resourceRules": [
            {"apiGroups": [group], "apiVersions": [version], "operations": operations, "resources": resources}
            for group, resources in groups
        ]
    }


def job_rules(operations: list[str], *, subresources: bool = False) -> Spec:
    """Match these operations on every kind of job; one whose CRD is not installed matches nothing."""
    groups: dict[str, list[str]] = {}
    for kind in JOB_KINDS:
        groups.setdefault(kind.group, []).extend([kind.plural, *([f"{kind.plural}/*"] if subresources else [])])
    return rules(*groups.items(), operations=operations)


def kueue_rules(resource: str, operations: list[str]) -> Spec:
    """Match these operations on a resource of Kueue."""
    return rules((KUEUE, [resource]), operations=operations, version=KUEUE_VERSION)


def managed(constraints: Spec) -> Spec:
    """The same, in the namespaces of teams only."""
    return {"namespaceSelector": {"matchLabels": {MANAGED_LABEL: "true"}}, **constraints}


def variables(**expressions: str) -> list[dict[str, str]]:
    """Variables by name; each may use those before it."""
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def label_before_and_after(key: str, name: str) -> dict[str, str]:
    """A label of the object as `name`, and of the old object as `old…`; empty where object or label is absent."""
    new, old = (
        f"{subject} == null ? '' : {subject}.metadata.?labels[?'{key}'].orValue('')"
        for subject in ("object", "oldObject")
    )
    return {name: new, f"old{name.capitalize()}": old}


def annotations_unchanged(*keys: str) -> str:
    """Whether these annotations are as they were; absent before creation."""
    old = "(oldObject == null ? optional.none() : oldObject.metadata.?annotations[?a])"
    return f"{list(keys)}.all(a, object.metadata.?annotations[?a] == {old})"


QUEUE_NAME_BEFORE_AND_AFTER: Final = {
    "queue": "object == null ? '' : object.spec.?queueName.orValue('')",
    "oldQueue": "oldObject == null ? '' : oldObject.spec.?queueName.orValue('')",
}
"""The queue of a Workload."""


def in_burst(queue: str) -> str:
    """Whether a queue is a burst twin."""
    return f"{queue}.contains('{BURST_INFIX}')"


def in_window(queue: str) -> str:
    """Whether a queue is one whose jobs start only in a window of time."""
    return f"{queue}.contains('{WINDOW_INFIX}')"


def team_of(queue: str) -> str:
    """The team in the name of a queue: the part before the first infix of ours."""
    return f"{queue}.split('{BURST_INFIX}')[0].split('{WINDOW_INFIX}')[0]"
