"""Posting jobs on time, once, and with plain words when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from infra.local.errors import KubeError
from infra.replay import submit as submit_module
from infra.replay.errors import SubmitError, TraceError
from infra.replay.jobs import job_manifest
from infra.replay.submit import SubmitReport, new_report, submit
from infra.replay.trace import TraceJob
from tests.unit.replay.scenario import local_fleet

FLEET = local_fleet()
SPEED = 60_000.0  # a fleet minute in a millisecond


class Server:
    """Answers creations; `trouble` may raise first."""

    def __init__(self, trouble: Callable[[int], None] = lambda number: None) -> None:
        self.trouble, self.asked, self.busy, self.most_busy = trouble, 0, 0, 0
        self.names: list[str] = []

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        number = self.asked
        self.busy += 1
        self.most_busy = max(self.most_busy, self.busy)
        try:
            await asyncio.sleep(0.001)
            self.trouble(number)
            name = manifest["metadata"]["name"]
            if name in self.names:
                raise KubeError(f'jobs.batch "{name}" already exists', 409, "AlreadyExists")
            self.names.append(name)
            return manifest
        finally:
            self.busy -= 1

    async def list(self, api_version: str, kind: str, label_selector: str = "") -> list[dict[str, Any]]:
        raise NotImplementedError


def jobs(count: int = 20) -> list[TraceJob]:
    return [TraceJob(f"job-{index}", "vision", "P1", 1, index * 60.0, 60, None, 120) for index in range(count)]


def run(server: Server, trace: Any = None, parallel: int = 4) -> SubmitReport:
    report = new_report(SPEED)
    manifest = lambda job: job_manifest(job, FLEET, SPEED, run_id="r1")  # noqa: E731
    asyncio.run(submit(server, jobs() if trace is None else trace, manifest, SPEED, report, parallel=parallel))
    return report


@pytest.fixture(autouse=True)
def _quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit_module, "_FIRST_RETRY_SECONDS", 0.0001)


def fail(status: int, until: int = 1_000_000) -> Callable[[int], None]:
    def trouble(number: int) -> None:
        if number <= until:
            raise KubeError(f"POST /jobs: {status} says job-{number - 1}-r1 is unwelcome", status)

    return trouble


def test_every_job_is_posted_once_in_bounded_parallel() -> None:
    server = Server()
    report = run(server)
    assert sorted(server.names) == sorted(f"job-{index}-r1" for index in range(20))
    assert report.submitted == len(report.late_seconds) == 20
    assert server.most_busy <= 4
    assert report.complete


def test_a_second_run_with_the_same_id_posts_only_what_is_missing() -> None:
    server = Server()
    run(server, jobs(5))
    report = run(server, jobs(8))
    assert (report.submitted, report.existing) == (3, 5)
    assert len(server.names) == 8


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_passing_trouble_is_waited_out(status: int) -> None:
    assert run(Server(fail(status, until=3)), jobs(2)).submitted == 2


def test_a_server_that_stays_away_is_a_plain_error() -> None:
    with pytest.raises(SubmitError, match="gave up after 6 attempts"):
        run(Server(fail(0)))


def test_a_missing_namespace_says_what_to_do() -> None:
    with pytest.raises(SubmitError, match="gpufleet up"):
        run(Server(fail(404)))


def test_jobs_that_are_refused_are_counted_by_reason_and_the_rest_goes_on() -> None:
    report = run(Server(fail(403, until=2)), jobs(6))
    assert report.submitted == 4
    assert report.refused.total() == 2
    assert "jobs refused" in "\n".join(report.lines())


def test_a_replay_whose_jobs_are_all_refused_fails() -> None:
    with pytest.raises(SubmitError, match="refused all 20 jobs"):
        run(Server(fail(403)))


def test_a_trace_that_breaks_on_the_way_is_reported_as_itself() -> None:
    def broken() -> Any:
        yield from jobs(3)
        raise TraceError("t.csv: cannot be read after row 3")

    with pytest.raises(TraceError, match="after row 3"):
        run(Server(), broken())


def test_a_server_too_slow_for_the_trace_makes_the_jobs_late_and_the_report_say_so() -> None:
    report = run(Server(), [TraceJob(f"job-{n}", "vision", "P1", 1, 0, 60, None, 120) for n in range(40)], parallel=1)
    assert report.late(1.0) > 0.03
    assert report.late(0.5) < report.late(1.0)
    assert "late by" in report.lines()[0]
