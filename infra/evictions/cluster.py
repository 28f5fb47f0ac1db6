"""Simulated nodes and jobs on fake time, and the books of where their GPU-time went.

It decides nothing about evictions: a `Way` is told of notices, losses and ends, and ends jobs. Jobs behave as the
contract for checkpoints says (docs/checkpointing.md): while they save they do not train, they train on after a save
that was asked for, and at SIGTERM they save once more and exit, if they are let.

Invariants: every GPU-second that a node is there is in exactly one of the books; jobs get nodes in the order of their
numbers, whatever happened to them before.
"""

from __future__ import annotations

from collections.abc import Callable

from infra.evictions.agenda import Agenda
from infra.evictions.nodes import NodeLife, SpotTrace
from infra.evictions.states import Books, SimJob, SimNode, State, Way
from infra.evictions.terms import ReplayTerms


class Cluster:
    """The nodes of a trace and as many jobs as they can hold, and one more."""

    def __init__(self, trace: SpotTrace, terms: ReplayTerms, agenda: Agenda) -> None:
        self.terms = terms
        self.agenda = agenda
        self.books = Books()
        self.interruptions = 0
        self.losses = 0
        """Interruptions that cost a job work."""

        self.nodes: list[SimNode] = []
        self.jobs = [SimJob(number) for number in range(trace.most_nodes // terms.nodes_per_job + 1)]
        self._waiting = {job.number for job in self.jobs}
        self._way: Way | None = None
        self._made = 0
        for life in trace.nodes:
            agenda.at(life.added_at, lambda life=life: self._added(life))  # type: ignore[misc]

    def follow(self, way: Way) -> None:
        """Say who deals with evictions."""
        self._way = way

    @property
    def way(self) -> Way:
        """Who deals with evictions."""
        assert self._way is not None, "follow(way) comes first"
        return self._way

    def close(self) -> None:
        """Enter into the books what is under way at the end of the trace; what trains then is not lost."""
        for job in self.jobs:
            self._settle(job)
            if job.state is State.ENDING:
                self._lose(job)
            self._keep(job)
        for node in self.nodes:
            self._count_idle(node)

    def queue(self, job: SimJob) -> None:
        """Let a job that has ended take nodes again."""
        self._waiting.add(job.number)
        self._place()

    def ask(self, job: SimJob, answer: Callable[[], None]) -> None:
        """Ask a job to save; it does so when it can, and answers."""
        if job.leaving:
            return
        job.asked = answer
        if job.state is State.TRAINING:
            self._save(job)

    def terminate(self, job: SimJob, grace_seconds: float) -> None:
        """Send SIGTERM to every pod of a job, and SIGKILL after the grace period."""
        if job.leaving or job.state is State.WAITING:
            return
        job.leaving, job.killed_at = True, self.agenda.now + grace_seconds
        match job.state:
            case State.TRAINING:
                self._settle(job)
                self._save_in_time(job, self.terms.save_seconds if job.unsaved else 0.0)
            case State.SAVING:
                self._save_in_time(job, job.until - self.agenda.now)
            case State.LOADING:
                self._end(job)
            case _:
                self._enter(job, State.ENDING, grace_seconds, self._kill)

    # Nodes

    def _added(self, life: NodeLife) -> None:
        now, notice_at = self.agenda.now, None
        if life.gone_at is not None:
            notice_at = max(life.added_at, life.gone_at - self.terms.notice_seconds)
        node = SimNode(self._made, life, notice_at, free_since=now)
        self._made += 1
        self.nodes.append(node)
        if notice_at is not None and life.gone_at is not None:
            if notice_at < life.gone_at:
                self.agenda.at(notice_at, lambda: self._notice(node))
            self.agenda.at(life.gone_at, lambda: self._remove(node))
        self._place()

    def _notice(self, node: SimNode) -> None:
        node.noticed = True
        self.way.noticed(node)

    def _remove(self, node: SimNode) -> None:
        job = node.job
        if job is None:
            self._count_idle(node)
            node.present = False
            self.nodes.remove(node)
            return
        self._settle(job)
        node.present = False
        self._lose(job)
        if not job.leaving:
            self._enter(job, State.HUNG)
            self.way.lost(job)
        elif any(other.present for other in job.nodes):
            self._enter(job, State.ENDING, job.killed_at - self.agenda.now, self._kill)
        else:
            self._end(job)

    def _count_idle(self, node: SimNode) -> None:
        if node.job is None and node.present:
            self.books.idle += (self.agenda.now - node.free_since) * self.terms.gpus_per_node

    def _place(self) -> None:
        for number in sorted(self._waiting):
            free = [node for node in self.nodes if node.job is None and not (node.noticed and self.way.cordons)]
            if len(free) < self.terms.nodes_per_job:
                return
            self._start(self.jobs[number], free[: self.terms.nodes_per_job])

    # Jobs

    def _start(self, job: SimJob, nodes: list[SimNode]) -> None:
        self._waiting.discard(job.number)
        for node in nodes:
            self._count_idle(node)
            node.job = job
        job.nodes, job.since, job.placed_at = nodes, self.agenda.now, self.agenda.now
        job.asked, job.leaving, job.runs = None, False, job.runs + 1
        self._enter(job, State.LOADING, self.terms.restart_seconds, self._train)

    def _train(self, job: SimJob) -> None:
        if job.asked is not None:
            self._save(job)
        else:
            self._enter(job, State.TRAINING, self.terms.checkpoint_every_seconds, self._save)

    def _save(self, job: SimJob) -> None:
        """Save, and answer whoever had asked before the save began."""
        answer, job.asked = job.asked, None

        def saved(job: SimJob) -> None:
            self._keep(job)
            if answer is not None:
                answer()
            self._train(job)

        self._enter(job, State.SAVING, self.terms.save_seconds, saved)

    def _save_in_time(self, job: SimJob, seconds: float) -> None:
        if seconds <= job.killed_at - self.agenda.now:
            self._enter(job, State.SAVING, seconds, self._exit)
        else:
            self._enter(job, State.ENDING, job.killed_at - self.agenda.now, self._kill)

    def _exit(self, job: SimJob) -> None:
        self._keep(job)
        self._end(job)

    def _kill(self, job: SimJob) -> None:
        self._lose(job)
        self._end(job)

    def _end(self, job: SimJob) -> None:
        self._enter(job, State.WAITING)
        for node in job.nodes:
            node.job, node.free_since = None, self.agenda.now
            if not node.present:
                self.nodes.remove(node)
        job.former, job.nodes = tuple(job.nodes), []
        self.interruptions += 1
        self.way.ended(job)
        self._place()

    def _enter(
        self, job: SimJob, state: State, seconds: float | None = None, then: Callable[[SimJob], None] | None = None
    ) -> None:
        """Change what a job does; after `seconds` comes `then`, unless something else came before."""
        self._settle(job)
        job.state, job.turn = state, job.turn + 1
        if seconds is not None and then is not None:
            job.until = self.agenda.now + seconds
            turn = job.turn

            def due() -> None:
                if job.turn == turn:
                    then(job)

            self.agenda.at(job.until, due)

    def _settle(self, job: SimJob) -> None:
        """Enter into the books what the job has done since the last time."""
        now = self.agenda.now
        spent = (now - job.since) * sum(node.present for node in job.nodes) * self.terms.gpus_per_node
        if job.state is State.TRAINING:
            job.unsaved += spent
        else:
            self.books.held += spent
        job.since = now

    def _keep(self, job: SimJob) -> None:
        self.books.useful += job.unsaved
        job.unsaved, job.checkpoint_at = 0.0, self.agenda.now

    def _lose(self, job: SimJob) -> None:
        self.losses += job.unsaved > 0
        self.books.lost += job.unsaved
        job.unsaved = 0.0
