"""That the agent has no right too many and none too few: each is taken away in turn, and what breaks has a name.

What the agent calls is called through runtime.kube under its name, as dry runs against the real API server, with the
policies in force. Rights are split to the last verb on the last resource, so a rule that grants one thing too much
shows as a right without which nothing breaks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import httpx2
import pytest

from components.kubernetes.agent import CLUSTER_RULES, NAMESPACE_RULES
from components.kubernetes.forecasts import TEAM_RULES
from infra.local.kubeclient import _connection
from runtime.errors import Conflict, Forbidden
from runtime.kube import (
    ADMISSION_CHECKS,
    CONFIG_MAPS,
    LEASES,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_FLAVORS,
    WORKLOADS,
    Kube,
    Resource,
)
from stacks.kinds import JOB_KINDS
from stacks.labels import (
    AGENT_NAME,
    CHECKPOINT_REQUEST_ANNOTATION,
    FORECAST_NAME,
    GATE_NAME,
    SYSTEM_NAMESPACE,
    TOP_UPS_NAME,
    VERDICT_CONDITION,
)
from tests.e2e.agentless import send_to_the_gate, submit, twin, window, without_agent, workload_path
from tests.e2e.conftest import AGENT_USER, Stack, wait_for
from tests.e2e.kinds import KINDS, install, job_of
from tests.e2e.test_rights import event, lease

TEAM = "red"
RBAC = "rbac.authorization.k8s.io/v1"
ROLES = {
    "ClusterRole": CLUSTER_RULES,
    "Role": NAMESPACE_RULES,
    "TeamRole": TEAM_RULES,
}
"""By where they are granted: everywhere, in the agent's own namespace, in each team's."""


@dataclass(frozen=True, order=True)
class Right:
    """One verb on one resource, of one object where the rule names objects."""

    role: str
    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        return "-".join(part for part in (self.verb, self.resource.replace("/", "-"), self.name) if part)


@dataclass(frozen=True)
class Behaviour:
    """Something that the agent does, and the one right that it takes."""

    name: str
    right: Right
    call: Callable[[Kube], Awaitable[Any]]


def rights(role: str) -> list[Right]:
    return [
        Right(role, group, resource, verb, name)
        for rule in ROLES[role]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    ]


RIGHTS = [right for role in ROLES for right in rights(role)]


def rules_of(granted: list[Right]) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [one.group], "resources": [one.resource], "verbs": [one.verb]}
        | ({"resourceNames": [one.name]} if one.name else {})
        for one in granted
    ]


def grant(stack: Stack, without: Right | None = None) -> None:
    """Give the agent all its rights, or all but one."""
    for role in ROLES:
        set_rules(stack, role, rules_of([right for right in rights(role) if right != without]))


def set_rules(stack: Stack, role: str, rules: list[dict[str, Any]]) -> None:
    path = stack.kube.path(RBAC, kind_of(role), AGENT_NAME, namespace_of(role))
    stack.kube.request("PATCH", path, {"rules": rules}, content_type="application/merge-patch+json")


def namespace_of(role: str) -> str | None:
    return {"Role": SYSTEM_NAMESPACE, "TeamRole": TEAM}.get(role)


def kind_of(role: str) -> str:
    return "ClusterRole" if role == "ClusterRole" else "Role"


async def first_event(kube: Kube, resource: Resource, namespace: str | None = None, fields: str | None = None) -> None:
    events = cast(AsyncGenerator[Any, None], kube.watch(resource, "0", 5, namespace, fields=fields))
    async with asyncio.timeout(5), aclosing(events):
        await anext(events)


async def config_map(kube: Kube, name: str) -> None:
    await kube.list(CONFIG_MAPS, SYSTEM_NAMESPACE, fields=f"metadata.name={name}")


async def config_map_events(kube: Kube, name: str) -> None:
    await first_event(kube, CONFIG_MAPS, SYSTEM_NAMESPACE, f"metadata.name={name}")


def behaviours(stack: Stack, scene: dict[str, str]) -> list[Behaviour]:
    """All that runtime does with the API server, each in the words of who would miss it."""
    cluster, own, team = partial(Right, "ClusterRole"), partial(Right, "Role"), partial(Right, "TeamRole", "")
    kueue, gated = "kueue.x-k8s.io", scene["w-gated"]
    version = stack.kube.get("kueue.x-k8s.io/v1beta2", "Workload", gated, TEAM)["metadata"]["resourceVersion"]
    gate = {"check": GATE_NAME, "message": "", "resource_version": version, "now": time.time()}
    said = {"type": VERDICT_CONDITION, "status": "True", "reason": "Trial", "message": ""}
    said |= {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    regarding = event()
    regarding["regarding"]["name"] = scene["waiting"]
    pod, uid = scene["pod"], scene["pod-uid"]
    listed = [
        ("jobs", kueue, WORKLOADS, "workloads"),
        ("its check", kueue, ADMISSION_CHECKS, "admissionchecks"),
        ("queues and whether they are held", kueue, LOCAL_QUEUES, "localqueues"),
        ("flavors that disappear", kueue, RESOURCE_FLAVORS, "resourceflavors"),
        ("local nodes and what fits them", "", NODES, "nodes"),
        ("pods in the cloud", "", PODS, "pods"),
    ]
    made = [
        Behaviour("looks at a job again before it acts", cluster(kueue, "workloads", "get"),
                  lambda kube: kube.get(WORKLOADS, gated, TEAM)),
        Behaviour("writes verdicts", cluster(kueue, "workloads", "patch"),
                  lambda kube: kube.patch_workload(TEAM, gated, verdict="{}")),
        Behaviour("recalls jobs", cluster(kueue, "workloads", "patch"),
                  lambda kube: kube.patch_workload(TEAM, gated, active=False)),
        Behaviour("answers the gate", cluster(kueue, "workloads/status", "patch"),
                  lambda kube: kube.answer_gate(TEAM, gated, **gate)),
        Behaviour("says why in a condition", cluster(kueue, "workloads/status", "patch"),
                  lambda kube: kube.write_condition(TEAM, gated, said)),
        Behaviour("declares its check active", cluster(kueue, "admissionchecks/status", "patch", GATE_NAME),
                  lambda kube: kube.activate_check(GATE_NAME, 1, time.time())),
        Behaviour("holds the queues of windows", cluster(kueue, "localqueues", "patch"),
                  lambda kube: kube.hold_local_queue(TEAM, window(TEAM), True)),
        Behaviour("tells people by events", cluster("events.k8s.io", "events", "create"),
                  lambda kube: kube.create_event(TEAM, regarding)),
        Behaviour("says that nothing is left on a node", cluster("", "nodes", "patch"),
                  lambda kube: kube.mark_cleared("spot-0", "spot-1")),
        Behaviour("knows its namespace", cluster("", "namespaces", "get", SYSTEM_NAMESPACE),
                  lambda kube: kube.get(NAMESPACES, SYSTEM_NAMESPACE)),
        Behaviour("knows whose ledger it has", cluster("", "namespaces", "get", "kube-system"),
                  lambda kube: kube.get(NAMESPACES, "kube-system")),
        Behaviour("asks for the lease the first time", own("coordination.k8s.io", "leases", "create"),
                  lambda kube: kube.create_lease(SYSTEM_NAMESPACE, lease("trial"))),
        Behaviour("sees who leads", own("coordination.k8s.io", "leases", "get", AGENT_NAME),
                  lambda kube: kube.get(LEASES, AGENT_NAME, SYSTEM_NAMESPACE)),
        Behaviour("leads on", own("coordination.k8s.io", "leases", "update", AGENT_NAME),
                  lambda kube: kube.replace_lease(SYSTEM_NAMESPACE, AGENT_NAME, lease(AGENT_NAME, scene["lease"]))),
        Behaviour("publishes forecasts", team("configmaps", "patch", FORECAST_NAME),
                  lambda kube: kube.patch_config_map(TEAM, FORECAST_NAME, {"forecast": "{}"})),
        Behaviour("asks pods to save their work", team("pods", "patch"),
                  lambda kube: kube.annotate_pod(TEAM, pod, uid, CHECKPOINT_REQUEST_ANNOTATION, "{}")),
        Behaviour("evicts pods that Kueue does not own", team("pods/eviction", "create"),
                  lambda kube: kube.evict_pod(TEAM, pod, uid)),
    ]  # fmt: skip
    for what, group, resource, plural in listed:
        made.append(Behaviour(f"finds {what}", cluster(group, plural, "list"), partial(Kube.list, resource=resource)))
        made.append(
            Behaviour(f"follows {what}", cluster(group, plural, "watch"), partial(first_event, resource=resource))
        )
    for name, what in ((AGENT_NAME, "its configuration"), (TOP_UPS_NAME, "top-ups")):
        made.append(Behaviour(f"finds {what}", own("", "configmaps", "list", name), partial(config_map, name=name)))
        made.append(
            Behaviour(f"follows {what}", own("", "configmaps", "watch", name), partial(config_map_events, name=name))
        )
    for kind in JOB_KINDS:
        moved = partial(
            Kube.set_queue,
            resource=Resource(kind.api_version, kind.plural),
            namespace=TEAM,
            name=scene[f"waiting-{kind.kind}"],
            queue=twin(TEAM),
        )
        made.append(Behaviour(f"releases a {kind.kind}", cluster(kind.group, kind.plural, "patch"), moved))
    return made


@pytest.fixture(scope="module")
def agents_work(stack: Stack) -> Iterator[list[Behaviour]]:
    with without_agent(stack):
        filler = submit(stack, TEAM, 8, job_class="urgent")
        wait_for("no local GPUs", lambda: stack.flavor(TEAM, filler))
        scene = {"gated": send_to_the_gate(stack, TEAM), "waiting": submit(stack, TEAM, 4)}
        scene["w-gated"] = workload_path(stack, TEAM, scene["gated"]).rpartition("/")[2]
        scene["waiting-Job"] = scene["waiting"]
        metadata = wait_for("its pod", lambda: stack.kube.list("v1", "Pod", TEAM)[0])[0]["metadata"]
        scene |= {"pod": metadata["name"], "pod-uid": metadata["uid"]}
        for kind in KINDS.values():
            if kind.kind != "Job":
                install(stack.kube, kind)
                stack.kube.create(job_of(kind, "waiting", TEAM, 4))
                scene[f"waiting-{kind.kind}"] = "waiting"
        where = ("coordination.k8s.io/v1", "Lease", AGENT_NAME, SYSTEM_NAMESPACE)
        if stack.kube.find(*where) is None:  # where no agent has led yet
            stack.kube.create(lease(AGENT_NAME) | {"metadata": {"name": AGENT_NAME, "namespace": SYSTEM_NAMESPACE}})
        scene["lease"] = stack.kube.get(*where)["metadata"]["resourceVersion"]
        before = {role: stack.kube.get(RBAC, kind_of(role), AGENT_NAME, namespace_of(role))["rules"] for role in ROLES}
        yield behaviours(stack, scene)
        for role, rules in before.items():
            set_rules(stack, role, rules)
        for kind in KINDS.values():
            if kind.kind != "Job":
                stack.kube.delete(kind.api_version, kind.kind, "waiting", TEAM)
        stack.clear(TEAM)


async def broken(stack: Stack, work: list[Behaviour]) -> set[str]:
    """The behaviours that the API server forbids; any other refusal is a failure of the test."""
    server, context = _connection(stack.plane.kubeconfig)
    client = httpx2.AsyncClient(
        base_url=server,
        verify=context,
        trust_env=False,
        headers={"Impersonate-User": AGENT_USER},
        params={"dryRun": "All"},
    )

    async def is_broken(kube: Kube, behaviour: Behaviour) -> bool:
        try:
            await behaviour.call(kube)
        except Forbidden as error:
            if "cannot" not in str(error):
                raise  # by a policy
            return True
        except Conflict:
            return False  # Kueue wrote meanwhile: authorization came before
        return False

    async with Kube(client) as kube:
        found = await asyncio.gather(*(is_broken(kube, one) for one in work))
    return {one.name for one, lost in zip(work, found, strict=True) if lost}


def settled(stack: Stack, work: list[Behaviour], expected: set[str]) -> set[str]:
    """What is broken once the API server has taken notice of the roles, or after two seconds."""
    deadline = time.monotonic() + 2
    while (found := asyncio.run(broken(stack, work))) != expected and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_with_all_its_rights_everything_works(stack: Stack, agents_work: list[Behaviour]) -> None:
    grant(stack)
    assert settled(stack, agents_work, set()) == set()


def test_no_right_is_without_a_use(agents_work: list[Behaviour]) -> None:
    used = {behaviour.right for behaviour in agents_work}
    assert used == set(RIGHTS)


@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_without_one_right_exactly_what_needs_it_breaks(
    stack: Stack, agents_work: list[Behaviour], right: Right
) -> None:
    needing = {behaviour.name for behaviour in agents_work if behaviour.right == right}
    grant(stack, without=right)
    assert settled(stack, agents_work, needing) == needing
