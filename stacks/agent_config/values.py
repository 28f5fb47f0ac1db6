"""The values that the agent is told, but for MIG layouts; each by the names of the objects in the cluster."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stacks.agent import Ledger
from stacks.agent_config.layouts import RelayoutConfig
from stacks.classes import Place
from stacks.model import Model
from stacks.policies import WaitPolicy
from stacks.quantities import GpuCount, PositiveDuration, Price, Rate, Usd, Window
from stacks.teams import Budget, Project


class FlavorConfig(Model):
    """One flavor, as the agent accounts for it."""

    gpus: Annotated[int, Field(ge=0)]
    """GPUs of the flavor; for a cloud flavor the most at any time."""

    gpus_per_node: Annotated[int, Field(ge=1)]
    """GPUs of its largest node: the most that one pod can have."""

    gpu: str
    """GPU model, by its name in flavors."""

    place: Place
    """`onprem`, or how its nodes are bought."""

    cloud: bool
    """Whether it costs money and stands behind the gate."""

    usd_per_gpu_hour: Usd
    """Ceiling price of a GPU-hour."""


class TeamConfig(Model):
    """One team, by the names of its objects."""

    namespace: str
    """Namespace of its jobs."""

    queue: str
    """Its LocalQueue; the ClusterQueue has the same name."""

    burst_queues: dict[str, str]
    """The burst twins of its LocalQueue by the cloud flavor they send to; each ClusterQueue has the same name."""

    window_queues: dict[str, str] = Field(default_factory=dict)
    """LocalQueues of classes with a window, by class; they lead to the team's ClusterQueue."""

    quota: dict[str, int] = Field(default_factory=dict)
    """GPUs of each local flavor that are the team's own."""

    borrow: dict[str, int] = Field(default_factory=dict)
    """Most GPUs of a local flavor beyond its quota; one that is not named here has no limit."""

    lend: dict[str, int] = Field(default_factory=dict)
    """Most of its own idle GPUs of a local flavor that others may use; one that is not named here has no limit."""

    policy: WaitPolicy | None = None
    """How long its jobs wait, in place of the fleet's policy."""

    max_burst_gpus: GpuCount | None = None
    """Most cloud GPUs at once."""

    budget: Budget | None = None
    """Its budget for cloud GPUs."""


class ClassConfig(Model):
    """One class, by its priority-class name (lower case)."""

    max_wait: PositiveDuration | None = None
    """Upper bound of the wait."""

    burst: Literal["allowed", "never"]
    """Whether its jobs may leave at all."""

    expected_runtime: PositiveDuration
    """What to assume of a job that says nothing and has no history."""

    markets: tuple[Place, ...] | None = None
    """Where its jobs may run; None for everywhere."""

    window: Window | None = None
    """When its jobs may start; None for always."""

    policy: WaitPolicy | None = None
    """How long its jobs wait, in place of the team's and the fleet's policy."""


class DataConfig(Model):
    """How burst jobs reach their data."""

    bandwidth: Rate
    """What the link carries for one flow."""

    max_staging: PositiveDuration
    """Longest copy that is worth waiting for."""

    usd_per_gb: Price | None = None
    """What each gigabyte costs that crosses; None for nothing."""


class EvictionConfig(Model):
    """What the agent needs to know of evictions beyond the notices themselves."""

    on_demand_after: Annotated[int, Field(ge=0)]
    """Losses after which a job is offered on-demand first; 0 means never."""


class AgentConfig(Model):
    """Everything the agent is told."""

    organization: str
    """Name of the company or group."""

    gate: str
    """Name of the AdmissionCheck that the agent answers."""

    flavors: dict[str, FlavorConfig]
    """All flavors by name."""

    burst_order: tuple[str, ...]
    """Cloud flavors in the order Kueue tries them."""

    teams: dict[str, TeamConfig]
    """All teams by name."""

    classes: dict[str, ClassConfig]
    """All classes by priority-class name."""

    default_class: str
    """The class of a job that names none."""

    policy: WaitPolicy
    """How long a job waits, unless its class or team has a policy of its own."""

    projects: dict[str, Project] = Field(default_factory=dict)
    """Projects with a budget of their own, by name."""

    data: DataConfig | None = None
    """How burst jobs reach their data; None if it is there already."""

    budget: Budget | None = None
    """The fleet's budget."""

    eviction: EvictionConfig = EvictionConfig(on_demand_after=0)
    """What to make of losses; where it says nothing, the usual order stands."""

    gpu_layouts: RelayoutConfig | None = None
    """Which MIG layout the nodes of each pool are to have; None where the agent leaves that alone."""

    interval: PositiveDuration
    """How often to decide, in real time."""

    ledger: Ledger
    """Where the ledger is kept."""

    dry_run: bool = False
    """Whether to say only what would be done."""

    replay_speed: Annotated[float, Field(ge=1)] = 1.0
    """Seconds of fleet time in each real second."""
