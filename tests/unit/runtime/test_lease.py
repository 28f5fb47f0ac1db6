from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2

from runtime.kube import LEASES, Kube
from runtime.lease import Lease, Terms
from runtime.settings import DEFAULT_LEASE
from stacks.quantities import parse_duration
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.faketime import run


@asynccontextmanager
async def candidate(cluster: FakeCluster, identity: str, seconds: int = 15) -> AsyncIterator[Lease]:
    """A replica that lives while the block does, then dies without a word."""
    lease = Lease(
        cluster.kube(), Terms("system", "router", identity, seconds), asyncio.Event(), asyncio.get_running_loop().time
    )
    running = asyncio.create_task(lease.run())
    try:
        yield lease
    finally:
        running.cancel()


def test_the_first_candidate_leads_and_the_second_waits() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        async with candidate(cluster, "a") as first:
            await asyncio.sleep(1)
            async with candidate(cluster, "b") as second:
                for _ in range(120):
                    await asyncio.sleep(1)
                    assert first.held
                    assert not second.held

    run(story())


def test_a_dead_leader_is_followed_within_one_duration_and_never_overlapped() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        async with candidate(cluster, "a") as first:
            await asyncio.sleep(60)
        async with candidate(cluster, "b") as second:
            waited = 0.0
            while not second.held:
                assert waited <= 17
                await asyncio.sleep(0.1)
                waited += 0.1
            assert [first.held] == [False]
            assert second.term == 1

    run(story())


def test_with_the_default_a_leader_that_dies_without_a_word_is_followed_within_five_seconds() -> None:
    seconds = int(parse_duration(DEFAULT_LEASE).total_seconds())

    async def story() -> None:
        loop = asyncio.get_running_loop()
        for alive in (2.0, 2.13, 2.31, 2.47, 20.0):
            cluster = FakeCluster()
            async with candidate(cluster, "a", seconds) as first:
                await asyncio.sleep(alive / 2)
                assert first.held
                standby = candidate(cluster, "b", seconds)
                second = await standby.__aenter__()
                await asyncio.sleep(alive / 2)
                led = [second.held]
            died, leads_at = loop.time(), 0.0
            for _ in range(500):
                await asyncio.sleep(0.01)
                led.append(second.held)
                leads_at = leads_at or (loop.time() if second.held else 0.0)
            assert led[0] is False
            assert led[-1] is True
            assert leads_at - died < 5
            assert [first.held] == [False]
            await standby.__aexit__(None, None, None)

    run(story())


def test_a_restarted_container_takes_its_own_lease_at_once() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        async with candidate(cluster, "pod-1"):
            await asyncio.sleep(60)
        async with candidate(cluster, "pod-1") as again:
            await asyncio.sleep(0.01)
            assert again.held

    run(story())


def test_a_leader_that_cannot_renew_stops_leading_before_anybody_may_follow() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        async with candidate(cluster, "a") as first:
            await asyncio.sleep(1)
            with cluster.refusing():
                await asyncio.sleep(10)
                lost = not first.held
            assert lost
            await asyncio.sleep(3)
            assert first.held
            assert first.term == 2, "what it knew before may be stale"

    run(story())


def test_a_stop_hands_over_at_once() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        async with candidate(cluster, "a") as first, candidate(cluster, "b") as second:
            await asyncio.sleep(10)
            leader, other = (first, second) if first.held else (second, first)
            await leader.release()
            assert not leader.held
            await asyncio.sleep(1.9)
        assert other.held or leader.term == 2, "somebody leads again within one retry"

    run(story())


def test_releasing_what_is_not_held_touches_nothing() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        async with candidate(cluster, "a"):
            await asyncio.sleep(1)
            idle = Lease(cluster.kube(), Terms("system", "router", "b", 15), asyncio.Event())
            await idle.release()
        assert cluster.get(LEASES, "router", "system")["spec"]["holderIdentity"] == "a"

    run(story())


def test_two_that_race_for_a_free_lease_do_not_both_win() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        created = asyncio.Event()

        def lose_the_race(method: str, path: str, body: object) -> None:
            if method == "POST" and "leases" in path and not created.is_set():
                created.set()
                raise Denied(409, "already exists")

        cluster.rule = lose_the_race
        async with candidate(cluster, "a") as first:
            await asyncio.sleep(0.01)
            assert created.is_set()
            assert [first.held] == [False]
            await asyncio.sleep(3)
            assert first.held

    run(story())


def test_rights_that_are_missing_do_not_end_the_candidate() -> None:
    async def story() -> None:
        cluster = FakeCluster()

        def forbid(method: str, path: str, body: object) -> None:
            raise Denied(403)

        cluster.rule = forbid
        async with candidate(cluster, "a") as first:
            await asyncio.sleep(60)
            cluster.rule = lambda method, path, body: None
            await asyncio.sleep(3)
            assert first.held

    run(story())


def test_a_lease_that_is_deleted_never_has_two_holders() -> None:
    async def story() -> None:
        for moment in (0.05, 0.17, 0.29, 0.41):
            cluster = FakeCluster()
            async with candidate(cluster, "a", 4) as first:
                await asyncio.sleep(1)
                async with candidate(cluster, "b", 4) as second:
                    await asyncio.sleep(2 + moment)
                    cluster.remove(LEASES, "router", "system")
                    for _ in range(300):
                        await asyncio.sleep(0.01)
                        assert not (first.held and second.held)
                    assert first.held, "a Lease that is gone is the holder's to make anew"

    run(story())


def test_a_lease_edited_by_hand_blocks_for_a_minute_at_most() -> None:
    async def story() -> None:
        cluster = FakeCluster()
        async with candidate(cluster, "a", 4) as first:
            await asyncio.sleep(1)
            edit = {"holderIdentity": "nobody", "leaseDurationSeconds": 1_000_000}
            cluster.change(LEASES, "router", "system", lambda raw: raw["spec"].update(edit))
            await asyncio.sleep(3)
            assert not first.held, "whoever it is, it may write"
            await asyncio.sleep(60)
            assert first.held

    run(story())


def test_an_api_server_that_takes_its_time_does_not_cost_the_lease_again_and_again() -> None:
    async def story() -> None:
        cluster = FakeCluster()

        async def slow(request: httpx2.Request) -> httpx2.Response:
            await asyncio.sleep(1.2)
            return cluster._answer(request)

        client = httpx2.AsyncClient(transport=httpx2.MockTransport(slow), base_url="https://cluster")
        lease = Lease(Kube(client), Terms("system", "router", "a", 4), asyncio.Event())
        running = asyncio.create_task(lease.run())
        await asyncio.sleep(5)
        term = lease.term
        for _ in range(200):
            await asyncio.sleep(0.1)
            assert lease.held
        assert lease.term == term
        running.cancel()

    run(story())
