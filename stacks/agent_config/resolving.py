"""Resolves the fleet into what the agent is told."""

from __future__ import annotations

from stacks.agent_config.layouts import relayout_config
from stacks.agent_config.values import AgentConfig, ClassConfig, DataConfig, EvictionConfig, FlavorConfig, TeamConfig
from stacks.catalogue import catalogue
from stacks.fleet import Fleet
from stacks.labels import GATE_NAME, GPU_RESOURCE, burst_queue, window_queue
from stacks.links import link_rate
from stacks.quantities import format_rate
from stacks.teams import Budget


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
        gpu_layouts=relayout_config(fleet),
        interval=fleet.agent.interval,
        ledger=fleet.agent.ledger,
        dry_run=fleet.agent.dry_run,
        replay_speed=fleet.agent.replay_speed,
    )


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
