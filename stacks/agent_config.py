"""What the agent is told: the part of the fleet that it needs, resolved, as one value that crosses in a ConfigMap.

The components write it and the agent reads it with the same model, so that neither can misread the other. It holds no
secret and no path of a machine.
"""

from __future__ import annotations

from typing import Annotated, Literal

import yaml
from pydantic import Field

from stacks.agent import Ledger, ObjectStoreLedger
from stacks.catalogue import catalogue
from stacks.classes import Place
from stacks.devices import node_capacity
from stacks.fleet import Fleet
from stacks.gpulayer import Relayout
from stacks.labels import GATE_NAME, GPU_RESOURCE, burst_queue, window_queue
from stacks.layouts import layout_name, served_pools
from stacks.links import link_rate
from stacks.model import Model
from stacks.policies import WaitPolicy
from stacks.pools import PartitionedPool
from stacks.quantities import GpuCount, PositiveDuration, Price, Rate, Usd, Window, format_rate
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


class LayoutConfig(Model):
    """A named MIG layout, and what a node with it offers."""

    name: str
    """Value of the node label `nvidia.com/mig.config`."""

    devices: dict[str, Annotated[int, Field(ge=1)]]
    """What a node then offers, by resource."""


class PoolLayoutConfig(Model):
    """The MIG layouts of one pool, whose nodes carry its name in the label `gpufleet.dev/pool`."""

    wanted: LayoutConfig
    """The layout that every node is to have."""

    former: LayoutConfig | None = None
    """The layout to go back to where the wanted one fails; None where the file names none."""

    mode_change: Literal["live", "reset", "reboot", "replace"]
    """What a node takes to turn MIG on or off."""


class RelayoutConfig(Model):
    """How nodes get another MIG layout."""

    pools: dict[str, PoolLayoutConfig]
    """The pools with MIG, by name."""

    windows: tuple[Window, ...] = ()
    """When nodes may be emptied for it; always where there is none."""

    most_nodes: Annotated[int, Field(ge=1)] = 1
    """Most nodes of the fleet that are changed at once."""


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


LEDGER_MOUNT = "/var/lib/gpufleet/ledger"
"""Where the agent's pod mounts the claim of a volume ledger."""


def ledger_url(ledger: Ledger) -> str:
    """The store URL that the agent opens: the bucket, or the mounted claim."""
    return ledger.url if isinstance(ledger, ObjectStoreLedger) else f"file://{LEDGER_MOUNT}"


def agent_config(fleet: Fleet) -> AgentConfig:
    """Resolve the fleet into what the agent is told."""
    return AgentConfig(
        organization=fleet.organization,
        gate=GATE_NAME,
        flavors={
            flavor.name: FlavorConfig(
                gpus=flavor.devices[GPU_RESOURCE],
                gpus_per_node=flavor.gpus_per_node,
                gpu=catalogue().gpus[flavor.gpu].name,
                place=flavor.market or "onprem",
                cloud=flavor.cloud,
                usd_per_gpu_hour=flavor.usd_per_gpu_hour,
            )
            for flavor in fleet.flavors.values()
            if GPU_RESOURCE in flavor.devices  # slices are queued by Kueue alone; the agent routes whole GPUs
        },
        burst_order=tuple(flavor.name for flavor in fleet.burst_flavors),
        teams={
            name: TeamConfig(
                namespace=team.namespace or name,
                queue=name,
                burst_queues={flavor.name: burst_queue(name, flavor.name) for flavor in fleet.burst_flavors},
                window_queues={
                    job_class.lower(): window_queue(name, job_class)
                    for job_class, settings in fleet.classes.items()
                    if settings.window is not None
                },
                quota=team.quota,
                borrow=team.borrow,
                lend=team.lend,
                policy=team.policy,
                max_burst_gpus=team.max_burst_gpus,
                budget=team.budget,
            )
            for name, team in fleet.teams.items()
        },
        classes={
            name.lower(): ClassConfig(
                max_wait=job_class.max_wait,
                burst=job_class.burst,
                expected_runtime=job_class.expected_runtime or fleet.burst.expected_runtime,
                markets=job_class.markets,
                window=job_class.window,
                policy=job_class.policy,
            )
            for name, job_class in fleet.classes.items()
        },
        default_class=next(name.lower() for name, job_class in fleet.classes.items() if job_class.default),
        policy=fleet.burst.policy,
        projects=fleet.projects,
        data=_data(fleet),
        budget=fleet.burst.budget and Budget.model_validate(fleet.burst.budget.model_dump(exclude={"when_exhausted"})),
        eviction=EvictionConfig(on_demand_after=fleet.eviction.on_demand_after),
        gpu_layouts=_layouts(fleet),
        interval=fleet.agent.interval,
        ledger=fleet.agent.ledger,
        dry_run=fleet.agent.dry_run,
        replay_speed=fleet.agent.replay_speed,
    )


def dump(config: AgentConfig) -> str:
    """The text of the ConfigMap: YAML in a fixed order, so that equal fleets give equal text."""
    text: str = yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=True, width=120)
    return text


def parse(text: str) -> AgentConfig:
    """Read the text of the ConfigMap.

    Raises:
        pydantic.ValidationError: when it is not a configuration of this version.
        yaml.YAMLError: when it is not YAML.
    """
    return AgentConfig.model_validate(yaml.safe_load(text))


def _data(fleet: Fleet) -> DataConfig | None:
    data = fleet.burst.data
    if data is None:
        return None
    return DataConfig.model_validate(
        {
            "bandwidth": format_rate(link_rate(fleet.links[data.link])),
            "max_staging": data.max_staging,
            "usd_per_gb": data.usd_per_gb,
        }
    )


def _layouts(fleet: Fleet) -> RelayoutConfig | None:
    relayout = fleet.gpu_layer.relayout
    pools = {name: pool for name, pool in served_pools(fleet).items() if pool.mig is not None}
    if relayout is None or not pools:
        return None
    return RelayoutConfig(
        pools={name: _pool_layouts(name, pool, relayout) for name, pool in pools.items()},
        windows=relayout.windows,
        most_nodes=relayout.most_nodes,
    )


def _pool_layouts(name: str, pool: PartitionedPool, relayout: Relayout) -> PoolLayoutConfig:
    assert pool.mig is not None  # of pools with MIG only
    layouts = {
        setting: LayoutConfig(name=layout_name(name, pool, layout), devices=node_capacity(pool, layout))
        for setting, layout in pool.mig.layouts.items()
    }
    geometry = catalogue().gpus[pool.gpu].mig
    live = geometry is not None and geometry.mode_change == "live"
    return PoolLayoutConfig(
        wanted=layouts["layout"],
        former=layouts.get("former"),
        mode_change="live" if live or relayout.mode_change is None else relayout.mode_change,
    )
