"""From version 0, the form before the first release, to version 1."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Final

from yaml import MappingNode

from stacks.editing.edits import Document, Entry
from stacks.migrations.lookup import all_written, members, old_entries, plain_value
from stacks.quantities import format_duration, parse_usd

DESCRIPTION: Final = (
    "0 to 1: pools, classes and usd_per_gpu_hour have their names, waits have units, budgets a currency and a kind, "
    "burst a policy and an order"
)

_LONGEST_WAIT_MINUTES: Final = 10 * 365 * 24 * 60  # ten years, the longest duration that stacks.quantities reads


def edit(document: Document, fleet: MappingNode) -> None:
    """Add the edits of a fleet's mapping to the document."""
    pools = list(members(document, fleet, "node_pools", "pools"))
    classes = list(members(document, fleet, "job_classes", "classes"))
    teams = list(members(document, fleet, "teams"))
    for mappings, old, new in (
        ([fleet], "node_pools", "pools"),
        ([fleet], "job_classes", "classes"),
        (pools, "price_per_gpu_hour", "usd_per_gpu_hour"),
    ):
        for entry in old_entries(document, mappings, old, new):
            document.rename(entry, new)
    for entry in old_entries(document, classes, "max_wait_minutes", "max_wait"):
        document.rename(entry, "max_wait")
        document.replace(entry, _minutes(entry))
    _state_budgets(document, teams)
    burst = [entry.value for entry in all_written(document, fleet, "burst") if isinstance(entry.value, MappingNode)]
    for entry in old_entries(document, burst, "max_wait", "policy"):
        document.rename(entry, "policy")
        document.replace(entry, {"kind": "constant", "wait": _text(entry, "a duration, for example 30m")})
    for entry in old_entries(document, burst, "pools", "order"):
        document.rename(entry, "order")


def _state_budgets(document: Document, teams: list[MappingNode]) -> None:
    flags = old_entries(document, teams, "hard_budget", "budget")
    for entry in old_entries(document, teams, "monthly_budget", "budget"):
        flag = document.entry(entry.mapping, "hard_budget")
        hard = plain_value(flag) if flag else True
        if flag and not isinstance(hard, bool):
            raise flag.error(f"must be true or false (got {hard!r})")
        document.rename(entry, "budget")
        document.replace(entry, {"monthly": _dollars(entry), "kind": "hard" if hard else "soft"})
        if flag:
            document.remove(flag, keep_comment=True)
            flags.remove(flag)
    for flag in flags:
        raise flag.error("has no monthly_budget beside it, so it says nothing; write them side by side, or remove it")


def _text(entry: Entry, expected: str) -> str:
    value = plain_value(entry)
    if not isinstance(value, str):
        raise entry.error(f"must be {expected} (got {value!r})")
    return value


def _minutes(entry: Entry) -> str:
    value = plain_value(entry)
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 0 < number <= _LONGEST_WAIT_MINUTES:
        raise entry.error(f"must be a number of minutes above 0, for example 30 (got {value!r})")
    return format_duration(timedelta(minutes=number))


def _dollars(entry: Entry) -> str:
    value = plain_value(entry)
    try:
        amount = parse_usd(value)
    except ValueError as error:
        raise entry.error(f"{error} (got {value!r})") from None
    return f"{amount.normalize():f} USD"
