"""Values for tests, complete and ordinary, so that a test names only what it is about."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

from runtime.cost.ledger import Attempt, Books, Closing, Opening, committed_usd
from runtime.routing.snapshot import Job, Snapshot, Stage
from stacks.agent_config import AgentConfig
from stacks.labels import burst_queue

NOON = 1_795_262_400.0
"""2026-11-21 12:00:00 UTC, a Saturday far from the ends of its month."""

HOUR = 3_600.0

SPOT, ON_DEMAND, LOCAL = "h100-spot", "h100-on-demand", "h100-onprem"


def a_config(**changes: Any) -> AgentConfig:
    """Two teams; three classes; 16 spot GPUs at 2 USD, then 8 on-demand at 4 USD; every job waits half an hour."""
    values: dict[str, Any] = {
        "organization": "acme",
        "gate": "gpufleet-burst-gate",
        "flavors": {
            LOCAL: a_flavor("onprem", 16, "0"),
            SPOT: a_flavor("spot", 16, "2"),
            ON_DEMAND: a_flavor("on-demand", 8, "4"),
        },
        "burst_order": (SPOT, ON_DEMAND),
        "teams": {"vision": a_team("vision"), "nlp": a_team("nlp")},
        "classes": {
            "p0": {"max_wait": "5m", "burst": "allowed", "expected_runtime": "1h"},
            "p1": {"burst": "allowed", "expected_runtime": "1h"},
            "p2": {"burst": "never", "expected_runtime": "1h"},
        },
        "default_class": "p1",
        "policy": {"kind": "constant", "wait": "30m"},
        "interval": "5s",
        "ledger": {"kind": "volume"},
    }
    return AgentConfig.model_validate(values | changes)


def a_team(name: str, **changes: Any) -> dict[str, Any]:
    """One team of the configuration, as plain values: it owns half of the local GPUs, and may borrow and lend."""
    twins = {flavor: burst_queue(name, flavor) for flavor in (SPOT, ON_DEMAND)}
    return {"namespace": name, "queue": name, "burst_queues": twins, "quota": {LOCAL: 8}} | changes


def a_flavor(place: str, gpus: int, usd_per_gpu_hour: str, **changes: Any) -> dict[str, Any]:
    """One flavor of the configuration, as plain values: H100 nodes of eight."""
    return {
        "gpus": gpus,
        "gpus_per_node": 8,
        "gpu": "h100",
        "place": place,
        "cloud": place != "onprem",
        "usd_per_gpu_hour": usd_per_gpu_hour,
    } | changes


def a_job(uid: str = "job-1", **changes: Any) -> Job:
    """A queued job of one GPU that has waited an hour, runs an hour at most, and was never told anything.

    One that was released stands in the twin of the spot flavor, unless its target is given.
    """
    job = Job(
        uid=uid,
        namespace="vision",
        name=f"job-{uid}",
        owner_kind="Job",
        owner_name=uid,
        owner_uid=f"owner-{uid}",
        team="vision",
        job_class="p1",
        priority=0,
        gpus=1,
        created_at=NOON - HOUR,
        stage=Stage.QUEUED,
        max_seconds=HOUR,
        ever_admitted=False,
    )
    if changes.get("stage") is Stage.RELEASED:
        changes = {"target": SPOT, **changes}
    return replace(job, **changes)


def a_job_at_the_gate(uid: str = "job-1", **changes: Any) -> Job:
    """A job that reserved quota ten seconds ago, of the spot flavor unless another is given."""
    values = {"stage": Stage.AT_GATE, "flavor": SPOT, "reserved_at": NOON - 10, "attempt": int(NOON) - 10} | changes
    return a_job(uid, **({"target": values["flavor"]} | values))


def an_opening(uid: str = "job-1", **changes: Any) -> Opening:
    """An attempt of one spot GPU for an hour at most, opened ten seconds ago under a hard budget."""
    values: dict[str, Any] = {
        "attempt": Attempt(uid, int(NOON) - 10),
        "namespace": "vision",
        "job": uid,
        "workload": "job-job-1",
        "team": "vision",
        "job_class": "p1",
        "flavor": SPOT,
        "gpus": 1,
        "usd_per_gpu_hour": Decimal(2),
        "max_seconds": HOUR,
        "expected_seconds": HOUR,
        "hard": True,
        "opened_at": NOON - 10,
        "decision_id": "d-1",
    } | changes
    values.setdefault(
        "committed_usd",
        committed_usd(
            values["usd_per_gpu_hour"],
            values["gpus"],
            max_seconds=values["max_seconds"],
            expected_seconds=values["expected_seconds"],
            hard=values["hard"],
        ),
    )
    return Opening(**values)


def some_books(*openings: Opening, closings: tuple[Closing, ...] = ()) -> Books:
    """A ledger with these entries."""
    return Books(
        openings={opening.attempt: opening for opening in openings},
        closings={closing.attempt: closing for closing in closings},
    )


def a_snapshot(*jobs: Job, books: Books | None = None) -> Snapshot:
    """What the agent sees: these jobs and, unless given, an empty ledger."""
    return Snapshot(jobs=jobs, books=some_books() if books is None else books)


def a_snapshot_without_ledger(*jobs: Job) -> Snapshot:
    """What the agent sees while the ledger cannot be read."""
    return Snapshot(jobs=jobs, books=None)
