"""A whole replay against a small stand-in for the cluster, which runs jobs locally as soon as they come."""

from __future__ import annotations

import asyncio
import io
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from infra.local.errors import KubeError
from infra.replay import follow as follow_module
from infra.replay.errors import EvidenceError, ReplayError, SubmitError
from infra.replay.run import replay
from infra.replay.summary import Summary
from infra.replay.trace import TraceJob
from runtime.simulation.forecast import Forecast
from runtime.simulation.text import team_forecast, to_data
from tests.builders import a_job
from tests.unit.replay.scenario import LOCAL, START, Job, Log, local_fleet

FLEET = local_fleet()
SPEED = 60_000.0


class Cluster:
    """Takes Jobs, shows a Workload for each, finishes it after a few looks, and keeps an audit log."""

    def __init__(self, directory: Path, *, looks: int = 1, namespaces: tuple[str, ...] = ("gpufleet-system",)) -> None:
        self.audit_log, self.looks, self.namespaces = directory / "audit.log", looks, namespaces
        self.log, self.jobs, self.seen = Log(), list[Job](), 0
        self.down, self.followed = False, asyncio.Event()

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        metadata = manifest["metadata"]
        job = Job(self.log, metadata["name"], metadata["namespace"], gpus=1).submitted(len(self.jobs))
        self.jobs.append(job.local(len(self.jobs) + 0.5))
        return manifest

    async def list(self, api_version: str, kind: str, label_selector: str = "") -> list[dict[str, Any]]:
        if self.down:
            raise KubeError("GET /: no answer", 0)
        if kind == "Namespace":
            created = "2026-11-21T12:00:00Z"
            return [{"metadata": {"name": name, "creationTimestamp": created}} for name in self.namespaces]
        if kind == "Node":
            return [{"metadata": {"name": "rack-0", "labels": {"gpufleet.dev/flavor": LOCAL}}}]
        if kind == "ConfigMap":
            waiting = a_job("u", name=f"job-{trace()[0].name}-r1", team="vision")
            said = team_forecast("vision", [waiting], {"u": Forecast(1, START + 5)}, at=START, real_at=START)
            metadata = {"name": "gpufleet-forecast", "namespace": "vision"}
            return [{"metadata": {"name": "other"}}, {"metadata": metadata, "data": to_data(said)}]
        self.seen += 1
        if len(self.jobs) == len(trace()):
            self.followed.set()
        if self.jobs and self.seen > self.looks:
            for job in self.jobs:
                if not any(one["type"] == "Finished" for one in job.status["conditions"]):
                    job.finished(100)
        self.audit_log.write_text("".join(self.log.lines))
        return [job.raw() for job in self.jobs]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "_POLL_SECONDS", 0.005)


def trace(count: int = 5) -> list[TraceJob]:
    return [TraceJob(f"job-{index}", "vision", "P1", 1, 0, 60, None, 120) for index in range(count)]


async def started(cluster: Cluster, tmp_path: Path, console: Console, drain: timedelta | None = None) -> Summary:
    return await replay(
        cluster,
        FLEET,
        trace(),
        audit_log=cluster.audit_log,
        ledger=tmp_path / "ledger",
        speed=SPEED,
        console=console,
        run_id="r1",
        drain=drain,
    )


def run(cluster: Cluster, tmp_path: Path, console: Console | None = None, drain: timedelta | None = None) -> Summary:
    return asyncio.run(started(cluster, tmp_path, console or Console(file=io.StringIO()), drain))


def test_a_replay_ends_when_its_jobs_have_and_sums_them_up(tmp_path: Path) -> None:
    found = run(Cluster(tmp_path), tmp_path)
    assert found.complete
    assert found.placed.succeeded == found.placed.local == 5
    assert found.exact


def test_the_first_forecast_of_a_job_is_held_against_its_start(tmp_path: Path) -> None:
    (error,) = run(Cluster(tmp_path), tmp_path).exactness.eta_errors
    assert (error.job, error.ahead_seconds) == ("job-0-r1", 5)


def test_the_progress_is_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    output = io.StringIO()
    run(Cluster(tmp_path), tmp_path, Console(file=output, width=200))
    assert "queued vision=0 nlp=0 speech=0" in output.getvalue()


def test_a_terminal_gets_a_table_with_every_team(tmp_path: Path) -> None:
    output = io.StringIO()
    run(Cluster(tmp_path), tmp_path, Console(file=output, width=200, force_terminal=True))
    assert all(team in output.getvalue() for team in FLEET.teams)


def test_a_replay_that_nothing_moves_any_more_ends_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "_STALLED_SECONDS", 0.02)
    cluster = Cluster(tmp_path)

    async def never_admitted(manifest: dict[str, Any]) -> dict[str, Any]:
        metadata = manifest["metadata"]
        cluster.jobs.append(Job(cluster.log, metadata["name"], metadata["namespace"]).submitted(1))
        cluster.jobs[-1].status["conditions"] = []
        return manifest

    monkeypatch.setattr(cluster, "create", never_admitted)
    cluster.looks = 1_000_000
    found = run(cluster, tmp_path)
    assert not found.complete
    assert any("5 jobs still wait and nothing moved" in note for note in found.notes)


def test_a_drain_limit_ends_a_replay_whose_jobs_run_on(tmp_path: Path) -> None:
    found = run(Cluster(tmp_path, looks=1_000_000), tmp_path, drain=timedelta(seconds=0.02))
    assert found.placed.running == 5
    assert any("had not ended" in note for note in found.notes)


def test_a_cluster_without_the_stack_is_a_plain_error(tmp_path: Path) -> None:
    with pytest.raises(SubmitError, match="deploy the stack first"):
        run(Cluster(tmp_path, namespaces=("default",)), tmp_path)


def test_a_server_that_goes_away_for_good_is_a_plain_error(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, looks=1_000_000)
    create = cluster.create

    async def last_words(manifest: dict[str, Any]) -> dict[str, Any]:
        cluster.down = True
        return await create(manifest)

    cluster.create = last_words  # type: ignore[method-assign]
    with pytest.raises(ReplayError, match="15 times in a row"):
        run(cluster, tmp_path)


def test_a_replay_without_an_audit_log_proves_nothing_and_says_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    cluster.audit_log = tmp_path / "elsewhere.log"
    with pytest.raises(EvidenceError, match="nothing can be proved"):
        asyncio.run(
            replay(
                cluster,
                FLEET,
                trace(),
                audit_log=tmp_path / "audit.log",
                ledger=tmp_path,
                speed=SPEED,
                console=Console(file=io.StringIO()),
            )
        )


def test_an_interrupted_replay_leaves_its_jobs_and_says_how_to_remove_them(tmp_path: Path) -> None:
    cluster, output = Cluster(tmp_path, looks=1_000_000), io.StringIO()

    async def interrupt() -> None:
        task = asyncio.create_task(started(cluster, tmp_path, Console(file=output, width=200)))
        await cluster.followed.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupt())
    assert len(cluster.jobs) == 5
    assert "5 jobs of replay r1 stay in the cluster" in output.getvalue()
    assert "kubectl delete jobs -A -l gpufleet.dev/replay=r1" in output.getvalue()
