"""How long one decision takes: python tests/bench/decide.py

Pending jobs of many shapes and 200 running ones, under each wait policy, short of either cloud room or money, in two
states: `steady`, where every job carries its verdict already (all but the first decision), and `first`, where every
job gets one. The baseline is the same rule written straight down: sort everything, recompute every limit, write full
facts for every job. Rows under `extreme` show how it grows beyond that, and are no part of the figure.
"""

from __future__ import annotations

import gc
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from runtime.cost.budget import Accounts
from runtime.cost.ledger import Attempt, Opening, close
from runtime.routing.decide import decide
from runtime.routing.local import LocalRoom
from runtime.routing.policy import WaitRule
from runtime.routing.resources import Resources
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.targets import Targets
from runtime.routing.terms import Terms
from runtime.routing.verdict import Code, Verdict
from stacks.agent_config import AgentConfig
from tests.builders import (
    HOUR,
    LOCAL,
    NOON,
    ON_DEMAND,
    SPOT,
    a_config,
    a_flavor,
    a_job,
    a_team,
    an_opening,
    some_books,
)

AIM_MS: Final = 100.0
REPEATS: Final = 9
RUNNING: Final = 200
CLOSED: Final = 3_000
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "constant": {"kind": "constant", "wait": "30m"},
    "per-gpu": {"kind": "per-gpu", "wait_per_gpu": "10m", "bounds": ["2m", "2h"]},
    "compute-wait": {"kind": "compute-wait", "wait_per_gpu_hour": "5m", "bounds": ["2m", "2h"]},
}


@dataclass(frozen=True)
class Means:
    """What there is to give beside what runs: spot GPUs, and the fleet's and each team's money for the month."""

    spot_gpus: int
    fleet_usd: int
    team_usd: int


SHORT_OF: Final = {"room": Means(520, 400_000, 200_000), "money": Means(100_000, 48_000, 200_000)}
AMPLE: Final = Means(100_000, 90_000_000, 90_000_000)


def config_of(policy: str, means: Means) -> AgentConfig:
    """Two budgeted teams, and flavors at least as large as the running jobs need."""
    flavors = {
        LOCAL: a_flavor("onprem", 16, "0"),
        SPOT: a_flavor("spot", means.spot_gpus, "3.93"),
        ON_DEMAND: a_flavor("on-demand", 16, "6.88"),
    }
    budget = {"daily": f"{max(90_000, means.fleet_usd)} USD", "monthly": f"{means.fleet_usd} USD"}
    teams = {name: a_team(name, budget={"monthly": f"{means.team_usd} USD"}) for name in ("vision", "nlp")}
    return a_config(policy=POLICIES[policy], flavors=flavors, budget=budget, teams=teams)


def snapshot_of(pending: int, *, distinct: bool) -> Snapshot:
    """`pending` jobs in the queues, 200 in the cloud, and a month's ledger.

    With `distinct` no two pending jobs ask for the same run time; else they come in the few dozen shapes that users
    choose from.
    """
    chance = random.Random(7)
    queued = [
        a_job(
            f"{chance.getrandbits(64):016x}",
            team=chance.choice(["vision", "nlp"]),
            priority=chance.choice([0, 0, 0, 100]),
            job_class=chance.choice(["p0", "p1", "p1", "p2"]),
            gpus=chance.choice([1, 1, 1, 2, 4, 8]),
            created_at=NOON - chance.uniform(0, 4 * HOUR),
            expected_seconds=(chance.uniform(60, 9 * HOUR) if distinct else chance.choice([HOUR, 4 * HOUR, None])),
            max_seconds=chance.choice([10 * HOUR, 24 * HOUR]),
        )
        for _ in range(pending)
    ]
    openings: list[Opening] = []
    running: list[Job] = []
    for number in range(RUNNING):
        opening = an_opening(
            attempt=Attempt(f"running-{number}", 1),
            gpus=chance.choice([1, 2, 4]),
            max_seconds=24 * HOUR,
            opened_at=NOON - chance.uniform(0, 20 * HOUR),
        )
        openings.append(opening)
        name = opening.attempt.workload_uid
        running.append(a_job(name, stage=Stage.RUNNING_CLOUD, flavor=SPOT, attempt=1, gpus=opening.gpus))
    past = [an_opening(attempt=Attempt(f"past-{number}", 1), opened_at=NOON - 400 * number) for number in range(CLOSED)]
    closings = tuple(close(opening, opening.opened_at, opening.opened_at + 900, "finished") for opening in past)
    jobs = [*queued, *running]
    chance.shuffle(jobs)
    return Snapshot(tuple(jobs), some_books(*openings, *past, closings=closings))


def naive(snapshot: Snapshot, config: AgentConfig, now: float) -> list[tuple[Job, Verdict]]:
    """The baseline: no cache, no shortcut, facts for everybody."""
    wait = WaitRule(config, snapshot.history)
    resources = Resources(snapshot, config, wait, now, "baseline")
    local = LocalRoom(config, snapshot.capacity)
    for job in snapshot.jobs:
        resources.count(job)
        local.count(job)
    targets = Targets(snapshot.books, config, snapshot.broken_queues, now)
    verdicts = []
    for job in sorted(snapshot.jobs, key=lambda job: (-job.priority, job.created_at, job.uid)):
        if job.stage is not Stage.QUEUED:
            continue
        terms = Terms(config, wait, local, targets, {})
        leave, facts = terms.of(job), terms.waits(job, now)
        if now - job.created_at < terms.limit_seconds(job, leave):
            verdict = Verdict(Code.WAITING, facts)
        elif leave.refusal is not None:
            verdict = leave.refusal
        elif resources.lacks_runtime_limit(job):
            verdict = Verdict(Code.NO_RUNTIME_LIMIT, facts)
        else:
            for target in leave.targets:
                resources.refuse_money(resources.opening(job, Attempt(job.uid, 0), target))
            chosen = resources.choose(job, leave.targets)
            verdict = Verdict(Code.RELEASED, facts) if isinstance(chosen, str) else chosen
        verdicts.append((job, verdict))
    return verdicts


def settled(snapshot: Snapshot, config: AgentConfig) -> Snapshot:
    """The snapshot once every verdict of a first decision was written."""
    decision = decide(snapshot, config, NOON, "first")
    told = {hold.job.uid: hold.verdict.code.value for hold in decision.holds}
    gone = {release.job.uid for release in decision.releases}
    jobs = tuple(replace(job, verdict_code=told.get(job.uid)) for job in snapshot.jobs if job.uid not in gone)
    return Snapshot(jobs, snapshot.books)


def timed(work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """Median and 95th percentile, in milliseconds of CPU: a decision is one thread without I/O, so others do not count."""
    taken = []
    for _ in range(repeats):
        gc.collect()
        start = time.process_time()
        work()
        taken.append((time.process_time() - start) * 1_000)
    return statistics.median(taken), sorted(taken)[int(0.95 * (len(taken) - 1) + 0.5)]


def resident_mib() -> float:
    """Resident memory of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1_024
    return float("nan")


def main() -> None:
    """Measure and print."""
    print(f"load {os.getloadavg()[0]:.1f}; milliseconds of CPU")
    print(f"{'pending':>7} {'shapes':<8} {'short of':<8} {'policy':<13} {'state':<9} {'median ms':>9} {'p95 ms':>8}")
    worst = 0.0
    for pending in (1_000, 15_000):
        for distinct in (False, True):
            snapshot = snapshot_of(pending, distinct=distinct)
            for scarce, means in SHORT_OF.items():
                for policy in POLICIES:
                    row = f"{pending:>7} {'distinct' if distinct else 'few':<8} {scarce:<8} {policy:<13}"
                    worst = max(worst, measure(row, snapshot, config_of(policy, means)))
    extremes(snapshot)
    rich = config_of("constant", AMPLE)
    median, _ = timed(lambda: Accounts(snapshot.books or some_books(), rich, NOON))
    print(f"of which the accounts of {CLOSED} closed and {RUNNING} open attempts: {median:.1f} ms")
    print(f"resident memory with 15,000 pending jobs and the ledger: {resident_mib():.0f} MiB")
    print(f"decide-15000: {worst:.1f} ms (aim {AIM_MS:.0f} ms) {'ok' if worst <= AIM_MS else 'short'}")


def measure(row: str, snapshot: Snapshot, config: AgentConfig) -> float:
    """Print both states and the baseline; the worst median of the two states."""
    steady = settled(snapshot, config)
    medians = {}
    work: dict[str, Callable[[], object]] = {
        "steady": lambda: decide(steady, config, NOON, "d"),
        "first": lambda: decide(snapshot, config, NOON, "d"),
        "baseline": lambda: naive(snapshot, config, NOON),
    }
    for state, measured in work.items():
        median, high = timed(measured, 1 if state == "baseline" else REPEATS)
        medians[state] = median
        print(f"{row} {state:<9} {median:>9.1f} {high:>8.1f}")
    return max(medians["steady"], medians["first"])


def extremes(snapshot: Snapshot) -> None:
    """First decisions that no cluster is likely to ask for, with every pending job of a shape of its own."""
    chance = random.Random(11)

    def altered(change: Callable[[Job], Job]) -> Snapshot:
        jobs = tuple(change(job) if job.stage is Stage.QUEUED else job for job in snapshot.jobs)
        return Snapshot(jobs, snapshot.books)

    young = altered(lambda job: replace(job, created_at=NOON - chance.uniform(0, 110)))
    bounded = altered(lambda job: replace(job, max_seconds=chance.uniform(9 * HOUR, 30 * HOUR)))
    cases = {
        "all submitted within two minutes": (young, SHORT_OF["room"]),
        "each with a run time limit of its own, short of money": (bounded, SHORT_OF["money"]),
        "room and money for all: ten thousand releases": (snapshot, AMPLE),
    }
    for name, (case, means) in cases.items():
        config = config_of("compute-wait", means)
        print(f"extreme: {name}: {timed(partial(decide, case, config, NOON, 'd'))[0]:.1f} ms")


if __name__ == "__main__":
    main()
