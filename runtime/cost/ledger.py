"""The ledger's arithmetic: what an attempt in the cloud commits, and what it cost in the end.

An attempt is one reservation of cloud quota by one Workload, named by the Workload's UID and the second in which the
quota was reserved; both are read from the cluster, so a restarted agent names it the same and cannot pay twice. An
Opening is recorded before the gate says Ready, a Closing when the quota is released. This module does no I/O:
runtime.cost.entries writes entries down, runtime.cost.exposure says which period pays, runtime.cost.budget what may be.

Invariants: amounts are never negative and carry at most six places, rounded up; a closing never starts before its
opening; a closing of a ceiling never costs more than it committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, Decimal
from typing import Final

from runtime.cost.losses import Loss, LossKey

MICRO_USD: Final = Decimal("0.000001")
"""The smallest amount the ledger writes."""

SECONDS_PER_HOUR: Final = 3_600
_NOTHING: Final = Decimal(0)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Names one reservation of cloud quota: `reserved_at` is whole seconds since the epoch in real time."""

    workload_uid: str
    reserved_at: int


@dataclass(frozen=True, slots=True)
class Opening:
    """Money committed for one attempt, before it may start.

    `hard` says that a hard budget applied: then `max_seconds` is enforced by Kueue and `committed_usd`, its price, is a
    ceiling. Otherwise `committed_usd` is the price of `expected_seconds`, and the attempt may cost more; `max_seconds`
    is the enforced limit if there is one, else the expected run time. `opened_at` is fleet time. `fixed_usd` is the
    part of the cost that does not depend on time (data that crosses a link); `committed_usd` includes it. `project` is
    empty where the job names none.
    """

    attempt: Attempt
    namespace: str
    workload: str
    job: str
    team: str
    job_class: str
    flavor: str
    gpus: int
    usd_per_gpu_hour: Decimal
    max_seconds: float
    expected_seconds: float
    hard: bool
    committed_usd: Decimal
    opened_at: float
    decision_id: str
    project: str = ""
    fixed_usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class TopUp:
    """Money that an administrator added to a budget for the calendar periods that contain `granted_at`.

    `scope` is `fleet`, `team <name>` or `project <name>`. From `expires_at` on nothing new is committed on it. Times
    are fleet time. `author` is the authenticated user who asked.
    """

    id: str
    scope: str
    usd: Decimal
    reason: str
    author: str
    granted_at: float
    expires_at: float


@dataclass(frozen=True, slots=True)
class Closing:
    """The end of one attempt: what it cost, from `started_at` to `ended_at` in fleet time."""

    attempt: Attempt
    started_at: float
    ended_at: float
    usd: Decimal
    reason: str


@dataclass(frozen=True, slots=True)
class Books:
    """The ledger as known at one moment: every opening, the closing of those that ended, top-ups, and lost work.

    Holds at least every attempt and every loss that touches the current or the previous calendar month.
    """

    openings: Mapping[Attempt, Opening]
    closings: Mapping[Attempt, Closing]
    top_ups: Mapping[str, TopUp] = field(default_factory=dict)
    losses: Mapping[LossKey, Loss] = field(default_factory=dict)


def cost_usd(usd_per_gpu_hour: Decimal, gpus: int, seconds: float) -> Decimal:
    """Price of `gpus` GPUs for `seconds`, rounded up to a millionth of a dollar; nothing for a negative time."""
    if seconds <= 0 or gpus <= 0:
        return Decimal(0)
    exact = usd_per_gpu_hour * gpus * Decimal(seconds) / SECONDS_PER_HOUR
    return exact.quantize(MICRO_USD, rounding=ROUND_CEILING)


def committed_usd(
    usd_per_gpu_hour: Decimal,
    gpus: int,
    *,
    max_seconds: float,
    expected_seconds: float,
    hard: bool,
    fixed_usd: Decimal = _NOTHING,
) -> Decimal:
    """What an attempt commits: the longest run time under a hard budget, else the expected one, and its fixed part."""
    fixed = fixed_usd.quantize(MICRO_USD, rounding=ROUND_CEILING)
    return cost_usd(usd_per_gpu_hour, gpus, max_seconds if hard else expected_seconds) + fixed


NEVER_STARTED: Final = "never started"
"""Reason of a closing whose job was never admitted: it cost nothing."""

NEVER_READY: Final = "pods never ready"
"""Reason of a closing whose pods did not become ready in time: nodes did not come, or did not work."""

FINISHED: Final = "finished"
"""Reason of a closing whose job ended by itself."""

FAILED: Final = "failed"
"""Reason of a closing whose job ended by itself, and failed."""


def close(opening: Opening, started_at: float, ended_at: float, reason: str) -> Closing:
    """End an attempt that held its GPUs from `started_at` to `ended_at`.

    A start before the opening is moved to it, an end before the start to the start: clocks of different machines
    differ by moments. A ceiling clips the cost, because Kueue stops the job at its limit and an end that was only
    noticed later must not be charged.
    """
    started = max(started_at, opening.opened_at)
    ended = max(ended_at, started)
    usd = cost_usd(opening.usd_per_gpu_hour, opening.gpus, ended - started)
    if reason != NEVER_STARTED:
        usd += opening.fixed_usd.quantize(MICRO_USD, rounding=ROUND_CEILING)
    if opening.hard:
        usd = min(usd, opening.committed_usd)
    return Closing(opening.attempt, started, ended, usd, reason)
