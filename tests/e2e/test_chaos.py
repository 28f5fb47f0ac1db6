"""What breaks: the agent killed again and again, the API server gone, the ledger lost, a leader frozen, jobs deleted.

Whatever happens, nothing starts in the cloud that was not passed and paid for, and every attempt is closed once.
"""

from __future__ import annotations

import asyncio
import io
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from rich.console import Console

from infra.local import processes
from infra.local.embedded import kwok_pool
from infra.local.errors import KubeError
from infra.replay.books import LedgerReader, highest_exposure
from infra.replay.client import ThreadedClient
from infra.replay.run import replay
from infra.replay.summary import Summary
from infra.replay.synthetic import MINUTE, synthetic
from runtime.cost.ledger import Attempt, Closing, Opening
from stacks.labels import AGENT_NAME, SYSTEM_NAMESPACE
from tests.e2e.conftest import KUEUE, Stack, condition, wait_for

LOCAL, CLOUD = "h100-onprem", "h100-aws-spot"
TEAMS = ("red", "blue", "green")
HANDOVER_SECONDS = 5.0
SEED = 8
Answer = TypeVar("Answer")


def agent_pid(stack: Stack, replica: int = 0) -> int | None:
    found = processes.find(stack.plane.state).get(f"pod.{AGENT_NAME}.{replica}", [])
    return found[0] if found else None


def kill_agent(stack: Stack, replica: int = 0) -> int:
    """Kill a replica where it stands; the pod runner starts it again."""
    pid = wait_for("the agent", lambda: agent_pid(stack, replica))
    os.kill(pid, signal.SIGKILL)
    return pid


def ledger_directory(stack: Stack) -> Path:
    return stack.plane.state.root / "volumes" / SYSTEM_NAMESPACE / AGENT_NAME


def holder(stack: Stack) -> str:
    lease = stack.kube.get("coordination.k8s.io/v1", "Lease", AGENT_NAME, SYSTEM_NAMESPACE)
    return str(lease["spec"].get("holderIdentity") or "")


def attempt_of(stack: Stack, uid: str) -> tuple[Opening | None, Closing | None]:
    """The one attempt of a Workload; more than one is an error."""
    openings, closings = stack.ledger()
    opened = [one for one in openings if one.attempt.workload_uid == uid]
    closed = [one for one in closings if one.attempt.workload_uid == uid]
    assert len(opened) <= 1 >= len(closed)
    return next(iter(opened), None), next(iter(closed), None)


def patiently(look: Callable[[], Answer | None]) -> Callable[[], Answer | None]:
    """A look that an API server under repair may refuse."""

    def tried() -> Answer | None:
        try:
            return look()
        except KubeError:
            return None

    return tried


@contextmanager
def killings(stack: Stack, count: int) -> Iterator[list[int]]:
    """Kill the agent at unforeseeable moments while the block runs; yields the pids that died."""
    killed: list[int] = []
    done, random = threading.Event(), Random(SEED)

    def kill() -> None:
        while len(killed) < count and not done.wait(random.uniform(3.0, 7.0)):
            pid = agent_pid(stack)
            if pid is not None and pid not in killed:
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)

    thread = threading.Thread(target=kill, name="killings")
    thread.start()
    try:
        yield killed
    finally:
        done.set()
        thread.join()


async def replayed(stack: Stack, length_seconds: float) -> Summary:
    """Replay jobs that all fit their team's own GPUs, so that none of them can rightly wait for ever."""
    jobs = synthetic(stack.fleet, seed=SEED, length_seconds=length_seconds)
    async with ThreadedClient(stack.kube) as client:
        return await replay(
            client,
            stack.fleet,
            [job for job in jobs if job.gpus <= stack.fleet.teams[job.team].quota[LOCAL]],
            audit_log=stack.plane.state.audit_log,
            ledger=ledger_directory(stack),
            speed=stack.fleet.agent.replay_speed,
            console=Console(file=io.StringIO()),
            drain=timedelta(seconds=150),
        )


@pytest.mark.parametrize(
    ("kills", "length_seconds"), [(5, 24 * MINUTE), pytest.param(50, 350 * MINUTE, marks=pytest.mark.long)]
)
def test_an_agent_killed_again_and_again_keeps_its_books(stack: Stack, kills: int, length_seconds: float) -> None:
    spent = LedgerReader(ledger_directory(stack)).read().books
    highest = {name: highest_exposure(spent, name, stack.fleet.agent.replay_speed) for name in (*TEAMS, None)}
    try:
        with killings(stack, kills) as killed:
            summary = asyncio.run(replayed(stack, length_seconds))
        assert len(killed) == kills
        assert summary.exact, summary.exactness
        assert summary.complete, summary.notes
        assert summary.placed.cloud > 0
        books = LedgerReader(ledger_directory(stack)).read().books
        own = [one for one in books.openings.values() if one.job.endswith(f"-{summary.run_id}")]
        assert len({one.job for one in own}) == len(own) == summary.placed.cloud
        assert {one.attempt for one in own} <= books.closings.keys()
        assert [one for one in summary.spend if one.difference_usd or one.open_attempts] == []
        # An earlier test may have spent under a larger budget; this replay may add nothing above its own.
        over = [one for one in summary.spend if one.limit_usd is not None and one.highest_usd > one.limit_usd]
        assert [one.team for one in over if one.highest_usd > highest[one.team]] == []
    finally:
        for team in TEAMS:
            stack.clear(team)


def test_the_agent_outlives_an_api_server_that_was_killed(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 8, job_class="urgent", run=60, longest=80)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    job, before = stack.submit(team, 4), agent_pid(stack)
    server = processes.records(stack.plane.state)["apiserver"]
    os.kill(server.pid or 0, signal.SIGKILL)
    wait_for("its end", lambda: not server.alive)
    stack.restart("apiserver")
    assert wait_for("the job in the cloud", patiently(lambda: stack.flavor(team, job))) == CLOUD
    assert agent_pid(stack) == before


def test_a_control_plane_that_is_started_again_goes_on_where_it_was(stack: Stack, team: str) -> None:
    filler = stack.submit(team, 8, job_class="urgent", run=60, longest=80)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    job = stack.submit(team, 4)
    os.kill(processes.records(stack.plane.state)["apiserver"].pid or 0, signal.SIGKILL)
    pools = [kwok_pool(name, pool) for name, pool in stack.fleet.pools.items()]
    stack.plane.control.start(pools, console=Console(file=io.StringIO()))
    assert wait_for("the job in the cloud", patiently(lambda: stack.flavor(team, job))) == CLOUD
    stack.clear(team)
    local = stack.submit(team, 8)
    assert wait_for("local work, on nodes that kept their labels", lambda: stack.flavor(team, local)) == LOCAL
    wait_for("its end", lambda: condition(stack.workload(team, local), "Finished"))


@pytest.mark.parametrize("away_seconds", [6, pytest.param(60, marks=pytest.mark.long)])
def test_a_lost_ledger_holds_the_gate_until_it_is_back_and_local_work_goes_on(
    stack: Stack, team: str, away_seconds: float
) -> None:
    filler = stack.submit(team, 8, job_class="urgent", run=60 + away_seconds, longest=80 + away_seconds)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    entries = ledger_directory(stack) / "v1"
    away = entries.rename(entries.with_name("away"))
    entries.write_text("somebody put a file where the ledger was")
    try:
        job = stack.submit(team, 4, job_class="urgent")
        wait_for("the verdict", lambda: stack.verdict(team, job).get("code") == "ledger-down")
        with pytest.raises(pytest.fail.Exception):
            wait_for("a start that must not happen", lambda: stack.flavor(team, job), away_seconds)
        path = stack.kube.path("batch/v1", "Job", filler, team)
        stack.kube.request("DELETE", path, {"propagationPolicy": "Background"})
        local = stack.submit(team, 4, job_class="urgent", run=60, longest=80)  # nothing that comes later preempts it
        assert wait_for("local work", lambda: stack.flavor(team, local)) == LOCAL
        later = stack.submit(team, 8, job_class="urgent")
    finally:
        entries.unlink()
        away.rename(entries)
    assert wait_for("the job in the cloud", lambda: stack.flavor(team, later)) == CLOUD
    opening, _ = attempt_of(stack, stack.workload(team, later)["metadata"]["uid"])
    assert opening is not None


def test_of_two_replicas_one_leads_and_the_other_takes_over_from_one_that_freezes(stack: Stack, team: str) -> None:
    stack.scale_agent(2)
    frozen: int | None = None
    try:
        first = wait_for("a leader", lambda: holder(stack))
        index = int(first.rsplit("-", 1)[1])
        wait_for("the other replica", lambda: agent_pid(stack, 1 - index))
        frozen = wait_for("the leader", lambda: agent_pid(stack, index))
        os.kill(frozen, signal.SIGSTOP)
        second = wait_for(
            "another leader", lambda: holder(stack) not in ("", first) and holder(stack), HANDOVER_SECONDS + 1
        )
        filler = stack.submit(team, 8, job_class="urgent", run=60, longest=80)
        wait_for("the filler", lambda: stack.flavor(team, filler))
        job = stack.submit(team, 4, job_class="urgent")
        assert wait_for("the job in the cloud", lambda: stack.flavor(team, job)) == CLOUD
        os.kill(frozen, signal.SIGCONT)
        frozen = None
        kill_agent(stack, 1 - index)  # its successor has its name, and leads again at once
        another = stack.submit(team, 4, job_class="urgent")
        assert wait_for("the next job in the cloud", lambda: stack.flavor(team, another)) == CLOUD
        assert holder(stack) == second
    finally:
        if frozen is not None:
            os.kill(frozen, signal.SIGCONT)
        stack.scale_agent(1)


def test_jobs_deleted_while_the_agent_is_away_are_closed_with_a_bounded_charge_when_it_returns(
    stack: Stack, team: str
) -> None:
    filler = stack.submit(team, 8, job_class="urgent", run=60, longest=80)
    wait_for("the filler", lambda: stack.flavor(team, filler))
    bursting = stack.submit(team, 4, job_class="urgent", run=30, longest=40)
    wait_for("the job in the cloud", lambda: stack.flavor(team, bursting) == CLOUD)
    uid = stack.workload(team, bursting)["metadata"]["uid"]
    opening, _ = attempt_of(stack, uid)
    assert opening is not None
    stack.scale_agent(0)
    try:
        path = stack.kube.path("batch/v1", "Job", bursting, team)
        stack.kube.request("DELETE", path, {"propagationPolicy": "Background"})
        wait_for("the Workload's end", lambda: not stack.workload(team, bursting))
        assert attempt_of(stack, uid)[1] is None
    finally:
        stack.scale_agent(1)
    closing = wait_for("the closing", lambda: attempt_of(stack, uid)[1])
    assert closing.attempt == Attempt(uid, opening.attempt.reserved_at)
    assert 0 < closing.usd <= opening.committed_usd
    assert not any(item["metadata"]["uid"] == uid for item in stack.kube.list(KUEUE, "Workload", team)[0])
