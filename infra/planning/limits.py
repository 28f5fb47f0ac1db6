"""Limits that one version of a file cuts or lifts against another: the sizes of cloud pools, and budgets.

What a limit of Kueue's local quota means for the teams is said in `infra.planning.dangers`.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.planning.costs import costs_of
from stacks.flavors import flavor_name
from stacks.fleet import Fleet
from stacks.pools import CloudPool, GkePool, NodeGroupPool
from stacks.quantities import format_usd
from stacks.teams import Budget


def cut_pools(old: Fleet, new: Fleet) -> Iterator[str]:
    """Cloud pools with fewer GPUs than before, and what becomes of jobs on the others."""
    flavors = {flavor_name(pool) for pool in new.pools.values()}
    for name, pool in old.pools.items():
        after = new.pools.get(name)
        left = after.gpus if after else 0
        if not isinstance(pool, CloudPool) or left >= pool.gpus:
            continue
        flavor = flavor_name(pool)
        if flavor not in flavors or (after and flavor_name(after) != flavor):
            continue  # that it loses its flavor says more
        if isinstance(pool, NodeGroupPool | GkePool):
            running = "nodes beyond that can be taken from under their jobs"
        else:
            running = "what runs beyond that runs on"
        then = "none starts there any more" if left == 0 else "none starts there until fewer are in use"
        yield f"pool {name} has at most {left} instead of {pool.gpus} GPUs: {running}, and {then}"


def lifted_budgets(old: Fleet, new: Fleet) -> Iterator[str]:
    """Budgets that let more through, with the new top of the bill; those of removed teams and projects go with them."""
    for name in (name for name in old.projects if name not in new.projects):
        yield f"project {name} is removed: jobs that name it are sent to the cloud no more"
    before, after = _budgets_of(old), _budgets_of(new)
    top = f"the cloud can cost up to {format_usd(costs_of(new).highest)} a month"
    for path, was in before.items():
        if path not in after or was is None:
            continue
        becomes = after[path]
        if becomes is None:
            yield f"{path} is removed, so it stops and reports nothing any more: {top}"
        elif was.kind == "hard" and becomes.kind == "soft":
            yield f"{path} becomes soft, so it reports an overshoot and stops nothing: {top}"
        elif was.kind == becomes.kind and (raised := list(_raised(was, becomes))):
            yield f"{path} is raised {' and '.join(raised)}: {top}"


def _budgets_of(fleet: Fleet) -> dict[str, Budget | None]:
    """The budgets by their path in the file; None where one could stand."""
    return (
        {"burst.budget": fleet.burst.budget}
        | {f"teams.{name}.budget": team.budget for name, team in fleet.teams.items()}
        | {f"projects.{name}.budget": project.budget for name, project in fleet.projects.items()}
    )


def _raised(was: Budget, becomes: Budget) -> Iterator[str]:
    limits = (
        ("month", was.monthly, becomes.monthly),
        ("week", was.weekly, becomes.weekly),
        ("day", was.daily, becomes.daily),
    )
    for period, before, after in limits:
        if before is not None and (after is None or after > before):
            limit = "no limit" if after is None else format_usd(after)
            yield f"from {format_usd(before)} to {limit} a {period}"
