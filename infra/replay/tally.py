"""Adds up the closing summary of a replay from the histories, the ledger and the fleet file. Pure.

Jobs, waits and exactness come from the audit log; the spend that is compared with the ledger comes from the times
which Workloads show in their conditions, so that anyone can add it up again. Conditions carry whole seconds: each end
of a run is off by up to a second, which compressed time multiplies.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import pairwise

from infra.replay.books import LedgerFiles, highest_exposure
from infra.replay.delays import FirstEta, eta_errors, gate_delays, release_delays
from infra.replay.gate import prove_gate
from infra.replay.histories import Histories
from infra.replay.history import History, Reservation, twins_of
from infra.replay.order import inversions, missed_local, unfair_share
from infra.replay.summary import AT_ONCE_SECONDS, Evidence, Exactness, Held, Moves, Placed, Spend, Summary, Waits
from runtime.clock import Clock
from runtime.cost.exposure import month_of
from runtime.cost.ledger import Books, cost_usd
from runtime.routing.verdict import Code
from stacks.fleet import Fleet


def run_of(histories: Histories, run_id: str) -> list[History]:
    """The jobs of one replay, by the ending of their names."""
    return [one for one in histories.jobs.values() if one.job is not None and one.job.endswith(f"-{run_id}")]


def exactness_of(
    histories: Histories,
    fleet: Fleet,
    cloud_nodes: Mapping[str, str],
    clock: Clock,
    since: float,
    told: Mapping[tuple[str, str], FirstEta],
) -> Exactness:
    """Measure everything in the log since a time, whoever submitted it."""
    passed_over = inversions(histories, fleet, since)
    return Exactness(
        gate=prove_gate(histories, fleet, cloud_nodes, since),
        moves=moves_of(histories, fleet, since),
        missed_local=tuple(missed_local(histories, fleet, since)),
        inversions=tuple(passed_over),
        inverted_share=unfair_share(passed_over, histories, since),
        delays=tuple(release_delays(histories, fleet, clock.speed, since)),
        gate_delays=tuple(gate_delays(histories, fleet, since)),
        eta_errors=tuple(eta_errors(histories, told, clock)),
    )


def moves_of(histories: Histories, fleet: Fleet, since: float = 0.0) -> Moves:
    """Count how jobs changed queue; a write that repeats the queue moves nothing."""
    twins, counts = twins_of(fleet), Counter[str]()
    for words in histories.queues.values():
        for before, word in pairwise(words):
            if word.at < since or word.created or word.queue == before.queue:
                continue
            kinds = {(False, True): "releases", (True, True): "retargets", (True, False): "recalls"}
            kind = kinds.get((before.queue in twins, word.queue in twins))
            counts[kind if word.by_agent and kind else "by_others"] += 1
    return Moves(**counts)


def placed_of(own: Sequence[History], fleet: Fleet) -> Placed:
    """Count where jobs ended up."""
    cloud = {flavor.name for flavor in fleet.flavors.values() if flavor.cloud}
    by_flavor = Counter(last.flavor for one in own if (last := _last_run(one)) is not None)
    ends = Counter(_end(one) for one in own)
    in_cloud = sum(count for flavor, count in by_flavor.items() if flavor in cloud)
    return Placed(
        total=len(own),
        by_flavor=dict(sorted(by_flavor.items())),
        local=by_flavor.total() - in_cloud,
        cloud=in_cloud,
        pending=ends["pending"],
        stopped=ends["stopped"],
        running=ends["running"],
        succeeded=ends["succeeded"],
        failed=ends["failed"],
    )


def waits_of(own: Sequence[History], fleet: Fleet, speed: float) -> tuple[Waits, ...]:
    """Waits by class, in the order of the fleet file."""
    found = []
    for name in fleet.classes:
        waits = sorted(
            wait * speed for one in own if one.job_class == name.lower() and (wait := real_wait(one)) is not None
        )
        if waits:
            found.append(Waits(name, len(waits), sum(waits) / len(waits), quantile(waits, 0.95)))
    return tuple(found)


def real_wait(one: History) -> float | None:
    """Real seconds from creation to first admission, None for a job never admitted."""
    first = next((run.admitted_at for run in one.reservations if run.admitted_at is not None), None)
    return None if first is None else max(0.0, first - one.first_seen_at)


def spend_of(own: Sequence[History], books: Books, fleet: Fleet, speed: float, fleet_now: float) -> tuple[Spend, ...]:
    """What the replay cost by the ledger and by the Workloads' conditions, for each team and for the fleet."""
    month = month_of(fleet_now)
    current = {key: one for key, one in books.openings.items() if month.start <= one.opened_at < month.end}
    this_month = Books(current, books.closings)
    teams: list[str | None] = [*fleet.teams, None]
    found = []
    for team in teams:
        of_team = [one for one in own if team in (None, one.team)]
        uids = {one.uid for one in of_team}
        attempts = [attempt for attempt in books.openings if attempt.workload_uid in uids]
        closings = [books.closings[attempt] for attempt in attempts if attempt in books.closings]
        budget = fleet.burst.budget if team is None else fleet.teams[team].budget
        found.append(
            Spend(
                team=team,
                ledger_usd=sum((closing.usd for closing in closings), Decimal(0)),
                recomputed_usd=sum((recomputed_usd(one, fleet, speed) for one in of_team), Decimal(0)),
                open_attempts=len(attempts) - len(closings),
                highest_usd=highest_exposure(this_month, team, speed),
                limit_usd=budget.monthly if budget else None,
            )
        )
    return tuple(found)


def recomputed_usd(one: History, fleet: Fleet, speed: float) -> Decimal:
    """Price of a job's ended cloud runs by condition times, from Admitted to Finished or the reservation's end."""
    flavors = fleet.flavors
    usd = Decimal(0)
    for run in one.reservations:
        flavor = flavors.get(run.flavor)
        if flavor is None or not flavor.cloud or run.admitted_condition is None or run.end_condition is None:
            continue
        usd += cost_usd(flavor.usd_per_gpu_hour, run.gpus, (run.end_condition - run.admitted_condition) * speed)
    return usd


def held_of(own: Sequence[History], fleet: Fleet) -> tuple[Held, ...]:
    """Teams whose jobs a budget held, by the verdicts that the agent wrote."""
    cloud = {flavor.name for flavor in fleet.flavors.values() if flavor.cloud}
    found = []
    for team in fleet.teams:
        held = [
            (next(at for at, code in one.verdicts if code is Code.BUDGET), one)
            for one in own
            if one.team == team and any(code is Code.BUDGET for _, code in one.verdicts)
        ]
        if held:
            runs = [last.flavor for _, one in held if (last := _last_run(one)) is not None]
            in_cloud = sum(flavor in cloud for flavor in runs)
            found.append(Held(team, min(at for at, _ in held), len(held), len(runs) - in_cloud, in_cloud))
    return tuple(found)


def stayed_local_of(own: Sequence[History], fleet: Fleet) -> dict[str, int]:
    """Cloud runs of each class that must never burst; all are expected to be 0."""
    cloud = {flavor.name for flavor in fleet.flavors.values() if flavor.cloud}
    never = [name for name, job_class in fleet.classes.items() if job_class.burst == "never"]
    return {
        name: sum(run.flavor in cloud for one in own if one.job_class == name.lower() for run in one.reservations)
        for name in never
    }


def summary_of(
    *,
    run_id: str,
    fleet: Fleet,
    clock: Clock,
    started_at: float,
    ended_at: float,
    histories: Histories,
    ledger: LedgerFiles,
    cloud_nodes: Mapping[str, str],
    evidence: Evidence,
    notes: Sequence[str],
    told: Mapping[tuple[str, str], FirstEta] | None = None,
) -> Summary:
    """Put the summary together. `started_at` and `ended_at` are real; the latter's month says whose budget counts.

    `told` has the first forecast of each job, by namespace and Workload.
    """
    speed, fleet_now = clock.speed, clock.to_fleet(ended_at)
    own = run_of(histories, run_id)
    placed = placed_of(own, fleet)
    waits = [wait for one in own if (wait := real_wait(one)) is not None and not _went_to_cloud_first(one, fleet)]
    return Summary(
        run_id=run_id,
        speed=speed,
        started_at=started_at,
        real_seconds=ended_at - started_at,
        complete=not (placed.pending or placed.running),
        placed=placed,
        stayed_local=stayed_local_of(own, fleet),
        started_at_once=sum(wait <= AT_ONCE_SECONDS for wait in waits),
        waits=waits_of(own, fleet, speed),
        spend=spend_of(own, ledger.books, fleet, speed, fleet_now),
        held=held_of(own, fleet),
        exactness=exactness_of(histories, fleet, cloud_nodes, clock, started_at, told or {}),
        evidence=evidence,
        notes=tuple(notes),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest of the sorted values that this share does not exceed; 0 of none."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _went_to_cloud_first(one: History, fleet: Fleet) -> bool:
    first = next((run for run in one.reservations if run.admitted_at is not None), None)
    return first is not None and fleet.flavors[first.flavor].cloud


def _last_run(one: History) -> Reservation | None:
    return next((run for run in reversed(one.reservations) if run.admitted_at is not None), None)


def _end(one: History) -> str:
    if one.finished:
        return "failed" if (one.latest.finish_reason or "").lower().endswith("failed") else "succeeded"
    if one.gone or not one.latest.active:
        return "stopped"
    return "running" if one.current is not None and one.current.admitted_at is not None else "pending"
