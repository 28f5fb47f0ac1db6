"""One drill from beginning to end: say notices, take machines away, follow the jobs, put everything back.

Everything happens on one task and by one clock, the real one. Whatever ends it, the nodes are put back before it
returns; what it could not put back is in its record (infra.chaos.record). A signal is heard between two looks and
cancels no request: one that is under way might still arrive after everything was put back.

Invariant: nothing is written before the record is, and the record stays until everything is undone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from infra.chaos import record as records
from infra.chaos.follow import Follower
from infra.chaos.machines import clean, lose, put_back, say_notice
from infra.chaos.nodes import Target
from infra.chaos.record import Record
from infra.chaos.tale import Outcome
from infra.chaos.terms import SOURCE, ChaosError, DrillTerms
from infra.commands.cluster import Cluster
from infra.local.progress import Step
from runtime.errors import Conflict, KubeError, Unreachable
from runtime.eviction.notice import Notice

POLL_SECONDS: Final = 0.5
"""Between two looks: how exact it is when a job is said to run again."""

CLEANING_SECONDS: Final = 120.0
"""Beyond its end, a drill that is still recorded is taken for one that was killed."""


class DrillInterrupted(Exception):
    """Somebody asked it to end, which is no error: everything is put back."""


@dataclass
class NodeTale:
    """One node: when each thing is due, and when it was done, in real seconds since the epoch."""

    target: Target
    notice: str
    due_at: float
    deadline: float
    back_at: float
    noticed_at: float | None = None
    lost_at: float | None = None
    returned_at: float | None = None


class Drill:
    """One drill. `loses` says that the machines go at the deadline."""

    def __init__(
        self,
        cluster: Cluster,
        terms: DrillTerms,
        targets: Sequence[Target],
        run: str,
        *,
        loses: bool,
        now: Callable[[], float],
        stop: asyncio.Event,
    ) -> None:
        self._cluster = cluster
        self._kube = cluster.kube
        self._terms = terms
        self._loses = loses
        self._now = now
        self._stop = stop
        self._began_at = now()
        self.run_id = run
        self.nodes = list(self._schedule(targets))

    @property
    def until(self) -> float:
        """When it is over at the latest."""
        return max(node.back_at for node in self.nodes) + self._terms.patience_seconds

    async def run(self, progress: Step) -> Follower:
        """Carry it out; returns what became of the jobs.

        Raises:
            DrillInterrupted: it was to end early; everything is put back.
            ChaosError: it could not be carried out, or not be undone.
        """
        targets = [node.target for node in self.nodes]
        ids = [node.notice for node in self.nodes]
        jobs = await Follower.of(self._cluster, targets, ids, certain=self._terms.certain)
        if not jobs.tales:
            raise ChaosError("the jobs on these nodes have ended meanwhile; nothing was changed")
        until = self.until + CLEANING_SECONDS
        record = records.new_record(self.run_id, self._terms.pool, self._began_at, until, targets)
        await records.create(self._kube, record)
        try:
            await self._follow(jobs, record, progress)
            await jobs.count_failures()
        finally:
            await clean(self._kube, record)
        return jobs

    def _schedule(self, targets: Sequence[Target]) -> Iterator[NodeTale]:
        for number, target in enumerate(targets):
            due = self._began_at + number * self._terms.every_seconds
            deadline = due + self._terms.notice_seconds
            back = deadline + (self._terms.away_seconds if self._terms.certain else 0.0)
            yield NodeTale(target, records.notice_id(self.run_id, target.name), due, deadline, back)

    async def _follow(self, jobs: Follower, record: Record, progress: Step) -> None:
        while True:
            await self._do_what_is_due(record)
            await jobs.look(self._now)
            self._tell(jobs, progress)
            all_back = all(node.returned_at is not None for node in self.nodes)
            if (all_back and jobs.settled) or self._now() > self.until:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), self._pause())
            if self._stop.is_set():
                raise DrillInterrupted("interrupted; everything was put back")

    async def _do_what_is_due(self, record: Record) -> None:
        now = self._now()
        steps: list[Awaitable[None]] = []
        for node, recorded in zip(self.nodes, record.nodes, strict=True):
            if node.noticed_at is None and now >= node.due_at:
                steps.append(self._say(node))
            elif node.noticed_at is not None and node.returned_at is None:
                if now >= node.back_at:
                    steps.append(self._return(node, record, recorded.name))
                elif self._loses and node.lost_at is None and now >= node.deadline:
                    steps.append(self._lose(node, record))
        done = await asyncio.gather(*steps, return_exceptions=True)  # none is under way when the first error is raised
        for result in done:
            if isinstance(result, BaseException):
                raise result

    async def _say(self, node: NodeTale) -> None:
        now = self._now()
        node.deadline = now + self._terms.notice_seconds
        node.back_at += now - node.due_at
        notice = Notice(
            id=node.notice,
            kind=self._terms.kind.notice,
            source=SOURCE,
            certainty=self._terms.kind.certainty,
            noticed_at=now,
            deadline=node.deadline if self._terms.certain else None,
            detail=f"drill {self.run_id}",
        )
        await say_notice(self._kube, node.target.name, notice)
        node.noticed_at = now

    async def _lose(self, node: NodeTale, record: Record) -> None:
        try:
            await lose(self._kube, record, node.target.name)
        except Unreachable:
            return  # at the next look
        node.lost_at = self._now()

    async def _return(self, node: NodeTale, record: Record, name: str) -> None:
        if self._loses and node.lost_at is None:
            await self._lose(node, record)
        try:
            present = await records.read(self._kube, record)
            await put_back(self._kube, next(one for one in present.nodes if one.name == name))
        except (Unreachable, Conflict):
            return
        node.returned_at = self._now()

    def _tell(self, jobs: Follower, progress: Step) -> None:
        counts = {outcome: sum(tale.outcome is outcome for tale in jobs.tales) for outcome in Outcome}
        done = sum(tale.settled for tale in jobs.tales)
        said = ", ".join(f"{count} {outcome.value}" for outcome, count in counts.items() if count)
        told = sum(node.noticed_at is not None and node.returned_at is None for node in self.nodes)
        progress.update(done, len(jobs.tales), f"{told} nodes under notice; jobs: {said}")

    def _pause(self) -> float:
        now = self._now()
        due = [node.due_at if node.noticed_at is None else node.deadline for node in self.nodes]
        ahead = [at - now for at in due if at > now]
        return min([POLL_SECONDS, *ahead])


async def unfinished(cluster: Cluster) -> list[Record]:
    """The records of drills that run, or were killed.

    Raises:
        ChaosError: they cannot be read.
    """
    try:
        return await records.find(cluster.kube)
    except KubeError as error:
        raise ChaosError(f"cannot see whether another drill runs: {error}; a drill takes an administrator") from None
