"""The root of the fleet file, and the rules that need more than one of its parts.

Each cross-field rule is one function that yields problems, so that a wrong file shows all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import Field, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from stacks.agent import Agent, VolumeLedger
from stacks.burst import Burst
from stacks.classes import JobClass
from stacks.clusters import Cluster
from stacks.flavors import flavors_of_pools
from stacks.model import Model
from stacks.pools import CloudPool, OnPremPool, Pool
from stacks.quantities import KubeName, parse_kube_name
from stacks.suggest import did_you_mean
from stacks.teams import Team, check_team_name


class Fleet(Model):
    """Everything the file says: what GPUs there are, who may use them, and what may be spent when they run out."""

    schema_version: Literal[1]
    """Version of this file's form. Always 1 so far."""

    organization: KubeName
    """Name of the company or group; names the root of the queue tree."""

    clusters: Annotated[dict[KubeName, Cluster], Field(min_length=1, max_length=1)]
    """The cluster the fleet runs on, by name. One cluster per file so far."""

    pools: Annotated[dict[KubeName, Pool], Field(min_length=1)]
    """GPU pools by name."""

    classes: Annotated[dict[str, JobClass], Field(min_length=1)]
    """Job classes by name."""

    teams: Annotated[dict[KubeName, Team], Field(min_length=1)]
    """Teams by name."""

    burst: Burst
    """The burst rule."""

    agent: Agent = Agent()
    """The agent."""

    on_destroy: Literal["keep-data", "remove-everything"] = "keep-data"
    """What happens to the ledger and to namespaces when their part of the file, or the whole stack, is removed.
    `keep-data` leaves them in the cluster, with the jobs and volumes in them; `remove-everything` is for stacks whose
    data nobody will miss."""

    @model_validator(mode="after")
    def _cross_field_rules(self) -> Self:
        details: list[InitErrorDetails] = [
            InitErrorDetails(
                type=PydanticCustomError("fleet_rule", "{reason}", {"reason": problem.reason}),
                loc=problem.path,
                input=problem.value,
            )
            for rule in RULES
            for problem in rule(self)
        ]
        if details:
            raise ValidationError.from_exception_data("Fleet", details)
        return self

    @property
    def onprem_pools(self) -> dict[str, OnPremPool]:
        """The pools that the company owns."""
        return {name: pool for name, pool in self.pools.items() if isinstance(pool, OnPremPool)}

    @property
    def cloud_pools(self) -> dict[str, CloudPool]:
        """The pools that a cloud lends, in the order of the file."""
        return {name: pool for name, pool in self.pools.items() if isinstance(pool, CloudPool)}


class RuleProblem(NamedTuple):
    """One broken rule: where in the file, the value there, and what to do."""

    path: tuple[str | int, ...]
    value: Any
    reason: str


def pools_name_a_known_cluster(fleet: Fleet) -> Iterator[RuleProblem]:
    """Every pool's cluster is defined."""
    for name, pool in fleet.pools.items():
        if pool.cluster not in fleet.clusters:
            hint = did_you_mean(pool.cluster, fleet.clusters)
            yield RuleProblem(("pools", name, "cluster"), pool.cluster, f"no such cluster{hint}")


def node_names_are_unique(fleet: Fleet) -> Iterator[RuleProblem]:
    """No node belongs to two pools."""
    owner: dict[str, str] = {}
    for name, pool in fleet.onprem_pools.items():
        for index, node in enumerate(pool.node_names):
            if node in owner:
                yield RuleProblem(("pools", name, "node_names", index), node, f"node is in pool {owner[node]} already")
            owner.setdefault(node, name)


def burst_order_names_cloud_pools_once(fleet: Fleet) -> Iterator[RuleProblem]:
    """Every pool of the order is a cloud pool, named once."""
    seen: set[str] = set()
    for index, name in enumerate(fleet.burst.order):
        path = ("burst", "order", index)
        if name in fleet.onprem_pools:
            yield RuleProblem(path, name, "is an on-prem pool; burst.order names cloud pools only")
        elif name not in fleet.pools:
            yield RuleProblem(path, name, f"no such cloud pool{did_you_mean(name, fleet.cloud_pools)}")
        elif name in seen:
            yield RuleProblem(path, name, "is named twice; name each pool once")
        seen.add(name)
    for name in fleet.cloud_pools.keys() - seen:
        yield RuleProblem(("pools", name), name, "is in no burst.order, so no job could use it; add it there")


def quotas_name_local_flavors(fleet: Fleet) -> Iterator[RuleProblem]:
    """Quota, borrow and lend name flavors of on-prem pools; cloud use is limited by max_burst_gpus and budgets."""
    flavors = flavors_of_pools(fleet.pools)
    local = [flavor.name for flavor in flavors.values() if not flavor.cloud]
    for team_name, team in fleet.teams.items():
        for field in ("quota", "borrow", "lend"):
            for name in getattr(team, field):
                path = ("teams", team_name, field, name)
                if name in flavors and flavors[name].cloud:
                    yield RuleProblem(path, name, "is a cloud flavor; limit it with max_burst_gpus and budget")
                elif name not in flavors:
                    yield RuleProblem(path, name, f"no such flavor{did_you_mean(name, local)}")


def quotas_fit_the_supply(fleet: Fleet) -> Iterator[RuleProblem]:
    """The teams' quotas of a flavor sum to no more than its GPUs."""
    for flavor in flavors_of_pools(fleet.pools).values():
        promised = sum(team.quota.get(flavor.name, 0) for team in fleet.teams.values())
        if not flavor.cloud and promised > flavor.gpus:
            shares = ", ".join(
                f"{name} {team.quota[flavor.name]}" for name, team in fleet.teams.items() if flavor.name in team.quota
            )
            reason = f"quotas of {flavor.name} sum to {promised} GPUs ({shares}) but its pools have {flavor.gpus}"
            yield RuleProblem(("teams",), promised, f"{reason}; lower a quota or add nodes")


def team_names_are_legal(fleet: Fleet) -> Iterator[RuleProblem]:
    """No team name collides with a burst twin's, and no two teams share a namespace."""
    owner: dict[str, str] = {}
    for name, team in fleet.teams.items():
        try:
            check_team_name(name, team)
        except ValueError as error:
            yield RuleProblem(("teams", name), name, str(error))
        namespace = team.namespace or name
        if namespace in owner:
            reason = f"namespace {namespace} is team {owner[namespace]}'s already; give each team its own"
            yield RuleProblem(("teams", name), namespace, reason)
        owner.setdefault(namespace, name)


def exactly_one_class_is_the_default(fleet: Fleet) -> Iterator[RuleProblem]:
    """Jobs without a class label need a class, and only one."""
    defaults = [name for name, job_class in fleet.classes.items() if job_class.default]
    if not defaults:
        yield RuleProblem(("classes",), None, "no class is the default; set default: true on exactly one")
    for name in defaults[1:]:
        reason = f"class {defaults[0]} is the default already; set default: true on exactly one"
        yield RuleProblem(("classes", name, "default"), True, reason)


def class_names_are_legal(fleet: Fleet) -> Iterator[RuleProblem]:
    """Class names become Kubernetes names in lower case, and stay distinct."""
    seen: dict[str, str] = {}
    for name in fleet.classes:
        folded = name.lower()
        try:
            parse_kube_name(folded)
        except ValueError as error:
            yield RuleProblem(("classes", name), name, str(error))
        if folded in seen:
            yield RuleProblem(("classes", name), name, f"differs from class {seen[folded]} only in case")
        seen.setdefault(folded, name)


def the_image_is_pinned(fleet: Fleet) -> Iterator[RuleProblem]:
    """An image without a tag or digest, or tagged latest, changes without anyone deciding it."""
    image = fleet.agent.image
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    if "@sha256:" not in image and tag in {"", "latest"}:
        yield RuleProblem(("agent", "image"), image, "pin a tag or digest, e.g. ghcr.io/gpufleet/agent:0.1.0")


def several_replicas_share_a_ledger(fleet: Fleet) -> Iterator[RuleProblem]:
    """A volume of the usual kind is attached to one node; standing replicas elsewhere could not start."""
    if fleet.agent.replicas > 1 and isinstance(fleet.agent.ledger, VolumeLedger):
        reason = "several replicas need a ledger that all nodes reach; set agent.ledger to {kind: object-store, url: …}"
        yield RuleProblem(("agent", "replicas"), fleet.agent.replicas, reason)


Rule = Callable[[Fleet], Iterator[RuleProblem]]

RULES: Final[tuple[Rule, ...]] = (
    pools_name_a_known_cluster,
    node_names_are_unique,
    burst_order_names_cloud_pools_once,
    quotas_name_local_flavors,
    quotas_fit_the_supply,
    team_names_are_legal,
    exactly_one_class_is_the_default,
    class_names_are_legal,
    the_image_is_pinned,
    several_replicas_share_a_ledger,
)
