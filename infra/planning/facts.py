"""The rows of `gpufleet plan`: flavors, pools, teams, projects and what was filled in, as plain values."""

from __future__ import annotations

import json
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from stacks import layouts
from stacks.flavors import flavor_name
from stacks.fleet import Fleet
from stacks.labels import BURST_TAINT, LOCATION_LABEL, POOL_LABEL, burst_queue, window_queue
from stacks.pools import CloudPool, OnPremPool, Pool
from stacks.presets import Filled
from stacks.problems import dotted
from stacks.teams import Budget, Team

_TAINT: Final = f"{BURST_TAINT}=true:NoSchedule"
_EXACT_ENOUGH: Final = Decimal("0.000001")  # list prices per GPU are quotients


def plain_usd(amount: Decimal) -> str:
    """A price for a program: digits, with no more decimals than it has."""
    return f"{amount.quantize(_EXACT_ENOUGH).normalize():f}"


def flavor_rows(fleet: Fleet) -> list[dict[str, Any]]:
    """Each flavor, with what its nodes must carry and what pods on them can ask for."""
    return [
        {
            "name": flavor.name,
            "gpus": flavor.gpus,
            "usd_per_gpu_hour": plain_usd(flavor.usd_per_gpu_hour),
            "pools": list(flavor.pools),
            "node_labels": dict(flavor.node_labels),
            "node_taints": [_TAINT] if flavor.cloud else [],
            "devices": dict(flavor.devices),
        }
        for flavor in fleet.flavors.values()
    ]


def pool_rows(fleet: Fleet) -> list[dict[str, Any]]:
    """Each pool, with all labels of its nodes and who sets them."""
    return [
        {
            "name": name,
            "cluster": pool.cluster,
            "flavor": flavor_name(pool),
            "gpus": pool.gpus,
            "node_labels": {
                **fleet.flavors[flavor_name(pool)].node_labels,
                POOL_LABEL: name,
                LOCATION_LABEL: _location(pool),
                **layouts.node_labels(fleet, name),
            },
            "node_taints": [_TAINT] if isinstance(pool, CloudPool) else [],
            "labelled_by_us": isinstance(pool, OnPremPool) and bool(pool.node_names),
        }
        for name, pool in fleet.pools.items()
    ]


def team_rows(fleet: Fleet) -> list[dict[str, Any]]:
    """Each team, with its queues and its shares."""
    return [_team_row(fleet, name, team) for name, team in fleet.teams.items()]


def project_rows(fleet: Fleet) -> list[dict[str, Any]]:
    """Each project, with the teams whose jobs may name it."""
    return [
        {"name": name, "teams": list(project.teams or fleet.teams), **_budget_cells(project.budget)}
        for name, project in fleet.projects.items()
    ]


def filled_rows(filled: Iterable[Filled]) -> list[dict[str, Any]]:
    """Each setting that the file leaves out, what stands in for it, and where that is from."""
    return [{"path": dotted(one.path), "value": one.value, "source": one.source} for one in filled]


def _team_row(fleet: Fleet, name: str, team: Team) -> dict[str, Any]:
    namespace = team.namespace or name
    windows = [one for one, settings in fleet.classes.items() if settings.window is not None]
    return {
        "name": name,
        "queue": f"{namespace}/{name}",
        "burst_queues": {
            flavor.name: f"{namespace}/{burst_queue(name, flavor.name)}" for flavor in fleet.burst_flavors
        },
        "window_queues": {one: f"{namespace}/{window_queue(name, one)}" for one in windows},
        "quota": dict(team.quota),
        "borrow": dict(team.borrow),
        "lend": dict(team.lend),
        "weight": team.weight,
        "max_burst_gpus": team.max_burst_gpus,
        "policy": team.policy and team.policy.model_dump(mode="json"),
        **_budget_cells(team.budget),
    }


def _budget_cells(budget: Budget | None) -> dict[str, str | None]:
    limits = {period: getattr(budget, period, None) for period in ("monthly", "weekly", "daily")}
    return {
        **{f"{period}_budget_usd": None if usd is None else plain_usd(usd) for period, usd in limits.items()},
        "budget_kind": budget.kind if budget else None,
        "budget_time_zone": budget.time_zone if budget else None,
    }


def _location(pool: Pool) -> str:
    return pool.flavor_location if isinstance(pool, CloudPool) else pool.location


def inline(value: Any) -> str:
    """A setting's value as it could stand in the file, in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {inline(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(inline(inner) for inner in value) + "]"
    return value if isinstance(value, str) else json.dumps(value)
