"""What a fleet's month costs, as `plan` and `diff` say it to people and to programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

from infra.commands.columns import columns
from infra.planning.costs import HOURS_PER_MONTH, NOT_INCLUDED, Costs, Limit, PoolCost
from infra.planning.facts import plain_usd
from stacks.catalogue import catalogue
from stacks.quantities import format_usd

_CENT: Final = Decimal("0.01")
_WIDTH: Final = 80  # of sentences; tables are as wide as their cells


def lines_of_costs(costs: Costs) -> Iterator[str]:
    """A table of the pools, one of the budgets, what bounds the month, and last the range with what is not in it."""
    pools = [
        (cost.pool, cost.market or "owned", cost.gpus, format_usd(cost.lowest), format_usd(cost.highest))
        for cost in [*costs.owned, *costs.rented]
    ]
    yield from columns(["POOL", "MARKET", "GPUS", "MONTH, LEAST", "MONTH, MOST"], pools)
    if costs.limits:
        yield ""
        yield from columns(["BUDGET", "MONTH", "WEEK", "DAY", "KIND"], map(_budget, costs.limits))
    yield ""
    for sentence in _sentences(costs):
        yield from textwrap.wrap(
            sentence, _WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
        )


def cloud_range(costs: Costs) -> str:
    """The least and the most that the rented GPUs cost in a month."""
    return f"{format_usd(costs.lowest)} to {format_usd(costs.highest)}"


def cents(amount: Decimal) -> str:
    """An amount for a program, to the cent."""
    return f"{amount.quantize(_CENT, rounding=ROUND_HALF_UP):f}"


def cost_row(cost: PoolCost) -> dict[str, Any]:
    """A pool's month for a program."""
    return {
        "name": cost.pool,
        "market": cost.market,
        "owned": cost.market is None,
        "gpus": cost.gpus,
        "usd_per_gpu_hour": plain_usd(cost.usd_per_gpu_hour),
        "lowest_usd": cents(cost.lowest),
        "highest_usd": cents(cost.highest),
    }


def spending_row(costs: Costs) -> dict[str, Any]:
    """The totals for a program."""
    return {
        "hours_per_month": HOURS_PER_MONTH,
        "owned_usd": cents(costs.fixed),
        "cloud": {
            "lowest_usd": cents(costs.lowest),
            "highest_usd": cents(costs.highest),
            "without_budgets_usd": cents(costs.unlimited),
            "bound_by": costs.bound_by,
            "pools_without_budget": list(costs.unguarded),
            "pools_at_list_price": list(costs.listed),
        },
        "budgets": [
            {
                "team": limit.team,
                "project": limit.project,
                "hard": limit.hard,
                "monthly_usd": None if limit.monthly is None else cents(limit.monthly),
                "weekly_usd": None if limit.weekly is None else cents(limit.weekly),
                "daily_usd": None if limit.daily is None else cents(limit.daily),
            }
            for limit in costs.limits
        ],
        "not_included": list(NOT_INCLUDED),
    }


def _budget(limit: Limit) -> tuple[str | None, ...]:
    amounts = (None if amount is None else format_usd(amount) for amount in (limit.monthly, limit.weekly, limit.daily))
    kind = "hard: stops" if limit.hard else "soft: reports, and stops nothing"
    whose = f"team {limit.team}" if limit.team else f"project {limit.project}" if limit.project else "fleet"
    return whose, *amounts, kind


def _sentences(costs: Costs) -> Iterator[str]:
    if costs.owned:
        yield f"owned GPUs: {format_usd(costs.fixed)} a month, used or not; no part of the range below"
    markets = {cost.market for cost in costs.rented}
    if "spot" in markets:
        yield "spot is counted at the most that the file pays for it; the market's price may be lower"
    if costs.listed:
        as_of = catalogue().prices_as_of
        yield f"{', '.join(costs.listed)}: at list prices, the oldest of which is of {as_of} (`gpufleet catalog`)"
    if markets & {"reserved", "capacity-block"}:
        yield "reserved capacity is billed whether used or not; how much is reserved, the file does not say"
    if any(cost.lowest for cost in costs.rented):
        yield "the least is what nodes.min keeps running; while idle it counts against no budget"
    if costs.unguarded:
        yield f"no queue leads to {', '.join(costs.unguarded)}, so no budget holds what is started there"
    if costs.highest < costs.unlimited:
        yield f"without {costs.bound_by} the cloud could cost {format_usd(costs.unlimited)}"
    yield (
        f"cloud GPUs: {cloud_range(costs)} a month ({HOURS_PER_MONTH} hours at ceiling prices, bound by "
        f"{costs.bound_by}), without {', '.join(NOT_INCLUDED)}"
    )
