"""The root of the fleet file: all sections, and the rules between them."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, model_validator
from pydantic_core import InitErrorDetails, PydanticCustomError, ValidationError

from stacks import presets
from stacks.agent import Agent
from stacks.burst import Burst
from stacks.capacity import Capacity
from stacks.classes import JobClass
from stacks.clusters import Cluster
from stacks.eviction import Eviction
from stacks.flavors import Flavor, flavor_name, flavors_of_pools
from stacks.gpulayer import GpuLayer
from stacks.links import Link
from stacks.model import Model
from stacks.policies import NeverBurst
from stacks.pools import CloudPool, OnPremPool, Pool
from stacks.presets import PresetName
from stacks.quantities import KubeName
from stacks.rules import RULES
from stacks.scaling import Scaling
from stacks.spot import Spot
from stacks.targets import Targets
from stacks.teams import Project, Team


class Fleet(Model):
    """Everything the file says: what GPUs there are, who may use them, and what may be spent when they run out."""

    schema_version: Literal[1]
    """Version of this file's form. `gpufleet migrate` brings an older file to the newest."""

    strict: StrictBool = False
    """Whether warnings are errors, in `gpufleet check` and in `pulumi preview` alike. Notes, which say what this
    version does not do yet, stay notes."""

    preset: PresetName = "balanced"
    """What fills settings that the file leaves out: `cost` waits longer and spends less, `performance` the reverse.
    `gpufleet plan` prints what was filled in."""

    organization: KubeName
    """Name of the company or group; names the root of the queue tree."""

    clusters: Annotated[dict[KubeName, Cluster], Field(min_length=1)]
    """Clusters by name. All pools are in one of them."""

    links: dict[KubeName, Link] = Field(default_factory=dict)
    """Links between networks, by name."""

    pools: Annotated[dict[KubeName, Pool], Field(min_length=1)]
    """GPU pools by name."""

    gpu_layer: GpuLayer = GpuLayer()
    """Software between the GPUs and the pods: operator, driver, MIG, metrics, network."""

    classes: Annotated[dict[str, JobClass], Field(min_length=1)]
    """Job classes by name."""

    teams_file: Annotated[str, Field(min_length=1, examples=["teams.prod.yaml"])] | None = None
    """A file beside this one that holds `teams`, so that they can have owners of their own. Instead of `teams`."""

    teams: Annotated[dict[KubeName, Team], Field(min_length=1)]
    """Teams by name."""

    projects: dict[KubeName, Project] = Field(default_factory=dict)
    """Projects with a budget of their own, by name."""

    burst: Burst
    """The burst rule."""

    spot: Spot = Spot()
    """How the fleet lives with spot capacity."""

    eviction: Eviction = Eviction()
    """What happens before a node goes."""

    capacity: Capacity = Capacity()
    """Room that is made ahead of time."""

    scaling: dict[KubeName, Scaling] = Field(default_factory=dict)
    """Deployments that grow and shrink with their queue, by name."""

    targets: Targets = Targets()
    """What the fleet aims at; alerts and reports use it."""

    agent: Agent = Agent()
    """The agent."""

    on_destroy: Literal["keep-data", "remove-everything"] = "keep-data"
    """What happens to the ledger and to namespaces when their part of the file, or the whole stack, is removed.
    `keep-data` leaves them in the cluster, with the jobs and volumes in them; `remove-everything` is for stacks whose
    data nobody will miss."""

    @model_validator(mode="before")
    @classmethod
    def _fill_defaults(cls, value: Any) -> Any:
        return presets.fill(value) if isinstance(value, dict) else value

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
        """The pools that are rented, in the order of the file."""
        return {name: pool for name, pool in self.pools.items() if isinstance(pool, CloudPool)}

    @cached_property
    def flavors(self) -> dict[str, Flavor]:
        """All flavors, local ones first, otherwise in the order of the file."""
        return flavors_of_pools(self.pools)

    @cached_property
    def burst_flavors(self) -> tuple[Flavor, ...]:
        """The cloud flavors in the order they are tried."""
        names = dict.fromkeys(flavor_name(self.pools[pool]) for pool in self.burst.order)
        return tuple(self.flavors[name] for name in names)

    @cached_property
    def queued_flavors(self) -> tuple[Flavor, ...]:
        """What queues offer: the local flavors, then the cloud in the order it is tried, of which a twin has one."""
        return (*(flavor for flavor in self.flavors.values() if not flavor.cloud), *self.burst_flavors)

    @cached_property
    def queued_devices(self) -> tuple[str, ...]:
        """Every device that some flavor of the queues has, by resource name."""
        return tuple(sorted({name for flavor in self.queued_flavors for name in flavor.devices}))

    def leaves(self, team: Team) -> bool:
        """Whether any job of a team may go to the cloud."""
        if isinstance(team.policy, NeverBurst):
            return False
        usual = team.policy or self.burst.policy
        return any(
            job_class.burst == "allowed" and not isinstance(job_class.policy or usual, NeverBurst)
            for job_class in self.classes.values()
        )

    @property
    def home_name(self) -> str:
        """The cluster that all pools are in, and with them the queues and the agent."""
        return next(iter(self.pools.values())).cluster

    @property
    def home(self) -> Cluster:
        """That cluster.

        Raises:
            KeyError: the pools name a cluster that is not defined; rules of such a file report it before.
        """
        return self.clusters[self.home_name]
