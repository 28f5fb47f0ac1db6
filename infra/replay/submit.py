"""Posts the jobs of a trace at their times, compressed, as many at once as the API server takes.

It never changes or deletes a job. Run again with the same id, it finds its jobs in place and posts the missing ones.
A late job is posted as soon as possible and its lateness is reported: a replay that cannot keep up must say so.
"""

from __future__ import annotations

import asyncio
import math
import time
from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from infra.local.errors import KubeError
from infra.replay.client import PARALLEL_REQUESTS, Client, Manifest
from infra.replay.errors import SubmitError, first_error
from infra.replay.trace import TraceJob

ManifestOf = Callable[[TraceJob], Manifest]

_ATTEMPTS: Final = 6  # with the waits below, about six seconds: longer than a webhook's restart
_FIRST_RETRY_SECONDS: Final = 0.2
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_MOST_REASONS: Final = 5


@dataclass(slots=True)
class SubmitReport:
    """What became of the submissions so far. `late_seconds` are real, from the due time to the server's answer."""

    started_at: float
    speed: float
    submitted: int = 0
    existing: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    late_seconds: array[float] = field(default_factory=lambda: array("d"))
    complete: bool = False

    @property
    def in_cluster(self) -> int:
        """Jobs that stand in the cluster."""
        return self.submitted + self.existing

    def late(self, quantile: float) -> float:
        """Real seconds of lateness that this share of the jobs stayed within."""
        ordered = sorted(self.late_seconds)
        return ordered[min(len(ordered) - 1, math.ceil(quantile * len(ordered)) - 1)] if ordered else 0.0

    def lines(self) -> list[str]:
        """The report for a person."""
        text = [
            f"{self.submitted:,} jobs submitted in real time × {self.speed:g}; "
            f"late by {self.late(0.5):.2f} s (median), {self.late(1.0):.2f} s (most)"
        ]
        if self.existing:
            text.append(f"{self.existing:,} jobs of this run stood in the cluster already")
        text.extend(f"{count:,} jobs refused: {reason}" for reason, count in self.refused.most_common(_MOST_REASONS))
        return text


async def submit(
    client: Client,
    jobs: Iterable[TraceJob],
    manifest_of: ManifestOf,
    speed: float,
    report: SubmitReport,
    *,
    parallel: int = PARALLEL_REQUESTS,
) -> None:
    """Post every job at its time; `report` is kept up to date and complete when this returns.

    Raises:
        SubmitError: when the server does not know a team's namespace, stays away, or refuses every job.
    """
    loop = asyncio.get_running_loop()
    start = loop.time()
    slots = asyncio.Semaphore(parallel)

    async def post(job: TraceJob, due: float) -> None:
        try:
            await _post(client, manifest_of(job), report)
            report.late_seconds.append(max(0.0, loop.time() - due))
        finally:
            slots.release()

    try:
        async with asyncio.TaskGroup() as tasks:
            for job in jobs:
                due = start + job.submit_seconds / speed
                await asyncio.sleep(max(0.0, due - loop.time()))
                await slots.acquire()
                tasks.create_task(post(job, due))
    except BaseExceptionGroup as group:
        raise first_error(group) from None
    if report.refused and not report.in_cluster:
        reason, count = report.refused.most_common(1)[0]
        raise SubmitError(f"the API server refused all {report.refused.total():,} jobs; {count:,} times: {reason}")
    report.complete = True


def new_report(speed: float) -> SubmitReport:
    """An empty report that starts now."""
    return SubmitReport(time.time(), speed)


async def _post(client: Client, manifest: Manifest, report: SubmitReport) -> None:
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            await client.create(manifest)
        except KubeError as error:
            if error.status == _CONFLICT and "exists" in f"{error} {error.reason}".lower():
                report.existing += 1
                return
            if error.status == _NOT_FOUND:
                raise SubmitError(f"{error}; the stack is not there (any more): run `gpufleet up` first") from error
            if not _passing(error):
                report.refused[_reason(error, manifest)] += 1
                return
            if attempt == _ATTEMPTS:
                raise SubmitError(f"gave up after {_ATTEMPTS} attempts: {error}") from error
            await asyncio.sleep(_FIRST_RETRY_SECONDS * 2 ** (attempt - 1))
        else:
            report.submitted += 1
            return


def _passing(error: KubeError) -> bool:
    """Whether the same request may succeed later: no answer, too many requests, or a server in trouble."""
    return error.status in (0, _CONFLICT, 429) or error.status >= 500


def _reason(error: KubeError, manifest: Manifest) -> str:
    """The refusal without the job's own name, so that equal refusals are counted together."""
    return str(error).replace(manifest["metadata"]["name"], "JOB")
