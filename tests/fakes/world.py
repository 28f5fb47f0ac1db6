"""A cluster, a ledger and agents that come and go, for tests of acting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from runtime.clock import Clock
from runtime.cost.ledger import Books
from runtime.kube import WORKLOADS, Resource, job_resource
from runtime.routing.act import Actor, Context
from runtime.routing.decide import decide
from runtime.routing.decision import Clear, Decision
from runtime.routing.observe import Observer, snapshot
from runtime.routing.snapshot import Job, Snapshot
from runtime.routing.verdict import Code, Verdict
from runtime.store import Owner, Store
from stacks.kinds import JOB_KINDS, JobKind
from stacks.labels import (
    GATE_NAME,
    QUEUE_LABEL,
    VERDICT_ANNOTATION,
    VERDICT_CONDITION,
    burst_queue,
    window_queue,
)
from tests.builders import NOON, ON_DEMAND, SPOT, a_config, an_opening
from tests.fakes import kueue
from tests.fakes.cluster import FakeCluster
from tests.fakes.workloads import a_batch_job, a_workload, reserve

Raw = dict[str, Any]
TWIN, OTHER_TWIN = burst_queue("vision", SPOT), burst_queue("vision", ON_DEMAND)
NIGHT = window_queue("vision", "p1")


def resource(kind: JobKind) -> Resource:
    found = job_resource(kind.api_version, kind.kind)
    assert found is not None
    return found


def answers_gate(body: Any) -> bool:
    return bool(body) and "admissionChecks" in body.get("status", {})


class Killed(BaseException):
    """The process ends here, without a word."""


class World:
    """A cluster and a ledger that outlive agents; `tick` is one agent's whole life: start, observe, decide, act, die."""

    def __init__(self, directory: Path) -> None:
        self.cluster = FakeCluster(webhook=kueue.admit)
        self.directory = directory
        self.now = NOON
        self.config = a_config()
        self.leading = True

    def submit(self, name: str = "job-1", *, kind: JobKind = JOB_KINDS[0], queue: str = "vision", **spec: Any) -> None:
        self.cluster.put(resource(kind), a_batch_job(name, queue, kind))
        self.cluster.put(WORKLOADS, a_workload(name, kind=kind, queue=queue, **spec))

    def workload(self, name: str = "job-1") -> Raw:
        return self.cluster.get(WORKLOADS, f"job-{name}", "vision")

    def queue(self, name: str = "job-1") -> str:
        owner = self.workload(name)["metadata"]["ownerReferences"][0]
        return str(self.cluster.get(kueue.resource_of(owner), name, "vision")["metadata"]["labels"][QUEUE_LABEL])

    def gate(self, name: str = "job-1") -> str | None:
        checks = self.workload(name)["status"].get("admissionChecks", [])
        return next((entry["state"] for entry in checks if entry["name"] == GATE_NAME), None)

    def code(self, name: str = "job-1") -> str | None:
        text = self.workload(name)["metadata"].get("annotations", {}).get(VERDICT_ANNOTATION)
        return json.loads(text)["code"] if text else None

    def burst(self, name: str = "job-1") -> Raw:
        """The condition for people."""
        return next(c for c in self.workload(name)["status"]["conditions"] if c["type"] == VERDICT_CONDITION)

    def events(self) -> list[Raw]:
        return [raw for key, raw in self.cluster.objects.items() if key[0] == "events.k8s.io/v1/events"]

    def change(self, edit: Callable[[Raw], object], name: str = "job-1") -> None:
        self.cluster.change(WORKLOADS, f"job-{name}", "vision", edit)

    def jobs(self) -> list[Job]:
        observer = Observer(self.config, Clock(), lambda *_: None)
        raws = [raw for key, raw in self.cluster.objects.items() if key[0].endswith("/workloads")]
        return [job for raw in raws if (job := observer.reduce(raw)) is not None]

    def job(self, name: str = "job-1") -> Job:
        return next(job for job in self.jobs() if job.uid == name)

    def store(self) -> Store:
        return Store(self.directory.as_uri(), self.clock(), Owner("cluster-1", 1.0))

    def clock(self) -> Clock:
        return Clock(real_now=lambda: self.now)

    def books(self) -> Books:
        store = self.store()
        asyncio.run(store.refresh())
        assert store.books is not None
        return store.books

    def actor(self, store: Store) -> Actor:
        observer = Observer(self.config, Clock(), lambda *_: None)
        context = Context(
            self.cluster.kube(), store, self.clock(), self.config, "pod-1", lambda: self.leading, observer.reduce
        )
        return Actor(context)

    @staticmethod
    async def acted(actor: Actor, decision: Decision) -> int:
        """Act, and wait until people were told as well."""
        unfinished = await actor.act(decision)
        await actor.finish()
        return unfinished

    def act(self, decision: Decision) -> int:
        async def life() -> int:
            store = self.store()
            await store.refresh()
            return await self.acted(self.actor(store), decision)

        return asyncio.run(life())

    def tick(self, judge: Callable[[Snapshot], Decision] | None = None) -> int:
        async def life() -> int:
            store = self.store()
            await store.refresh()
            seen = snapshot(self.jobs(), store.books)
            decision = judge(seen) if judge else decide(seen, self.config, self.now, f"d-{self.now}")
            return await self.acted(self.actor(store), decision)

        return asyncio.run(life())

    def settle(self, rounds: int = 8) -> None:
        """Agent and Kueue take turns, a second each."""
        for _ in range(rounds):
            self.now += 1
            kueue.step(self.cluster, self.now)
            self.now += 1
            self.tick()


def a_decision(**actions: Any) -> Decision:
    return Decision(id="d-1", decided_at=NOON, **actions)


RELEASED = Verdict(Code.RELEASED, {"waited_s": 3_600.0})
RECALLED = Verdict(Code.RECALLED, {"cause": "budget"})
CLEARED = Verdict(Code.CLEARED, {"flavor": SPOT})
WAITING = Verdict(Code.WAITING, {})


def at_gate(world: World) -> Clear:
    world.submit()
    world.cluster.put(WORKLOADS, reserve(a_workload(queue=TWIN)))
    return Clear(world.job(), an_opening(), CLEARED)
