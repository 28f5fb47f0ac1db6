from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx2
import pytest

from runtime import cache as cache_module
from runtime.cache import Cache, Source
from runtime.kube import CONFIG_MAPS, WORKLOADS, Kube
from tests.fakes.cluster import FakeCluster
from tests.fakes.faketime import run
from tests.fakes.workloads import a_workload

Raw = dict[str, Any]
Story = Callable[["Cache[str]"], Awaitable[None]]


def priority_of(raw: Raw) -> str | None:
    """The value kept: enough to tell versions of one object apart."""
    return None if raw["spec"]["queueName"] == "foreign" else f"{raw['metadata']['name']}={raw['spec']['priority']}"


async def following(kube: Kube, story: Story, reduce: Callable[[Raw], str | None] = priority_of) -> None:
    cache: Cache[str] = Cache(kube, WORKLOADS, reduce, asyncio.Event())
    running = asyncio.create_task(cache.run())
    try:
        await story(cache)
    finally:
        running.cancel()
        assert not running.done(), running.exception()


def event(kind: str, version: object, priority: int = 0, name: str = "a", **spec: Any) -> bytes:
    raw = a_workload(name, priority=priority, **spec)
    raw["metadata"]["resourceVersion"] = version
    return json.dumps({"type": kind, "object": raw}).encode() + b"\n"


def after(*lines: bytes) -> list[str]:
    """What a cache holds that listed one object at version 101 and then saw these lines."""
    found: list[str] = []
    cluster = FakeCluster()
    cluster.put(WORKLOADS, a_workload("a", priority=1))

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        for line in lines:
            cluster.send_on_watches(line)
        await asyncio.sleep(0.01)
        found.extend(sorted(cache.values()))

    run(following(cluster.kube(), story))
    return found


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param([event("MODIFIED", "103", 3), event("MODIFIED", "102", 2)], ["job-a=3"], id="swapped"),
        pytest.param([event("MODIFIED", "102", 2), event("MODIFIED", "102", 2)], ["job-a=2"], id="twice"),
        pytest.param([event("ADDED", "101", 1)], ["job-a=1"], id="of the list"),
        pytest.param([event("MODIFIED", "99", 9)], ["job-a=1"], id="from before the list"),
        pytest.param([event("DELETED", "103", 3), event("MODIFIED", "102", 2)], [], id="a late word of a dead object"),
        pytest.param([event("DELETED", "103"), event("DELETED", "103")], [], id="dead twice"),
        pytest.param([event("DELETED", "101", 1)], [], id="dead at its last version"),
        pytest.param([event("MODIFIED", "103", 3), event("DELETED", "102")], ["job-a=3"], id="a death that is past"),
        pytest.param([event("DELETED", "103"), event("ADDED", "104", 4)], ["job-a=4"], id="the same UID again"),
        pytest.param(
            [event("MODIFIED", "103", 3, queueName="foreign"), event("MODIFIED", "102", 2)], [], id="left the fleet"
        ),
        pytest.param([event("MODIFIED", "x1", 5)], ["job-a=5"], id="a version that is no number counts"),
        pytest.param([event("MODIFIED", None, 5)], ["job-a=5"], id="so does none"),
        pytest.param([event("MODIFIED", "9" * 5_000, 5)], ["job-a=5"], id="and an absurd one"),
        pytest.param([event("BOOKMARK", "200", 9)], ["job-a=1"], id="a bookmark is no object"),
        pytest.param([b'{"type":"MODIFIED","object":{}}\n'], ["job-a=1"], id="no metadata"),
        pytest.param([b'{"type":"MODIFIED","object":{"metadata":{"uid":7}}}\n'], ["job-a=1"], id="a UID of a number"),
    ],
)
def test_events_that_come_twice_late_or_odd_change_nothing(lines: list[bytes], expected: list[str]) -> None:
    assert after(*lines) == expected


def test_in_whatever_order_events_come_the_last_version_stands() -> None:
    shuffled = random.Random(7)
    for _ in range(5):
        versions = list(range(102, 112))
        shuffled.shuffle(versions)
        assert after(*(event("MODIFIED", str(version), version) for version in versions)) == ["job-a=111"]


def test_a_lost_event_is_found_by_the_next_list() -> None:
    cluster = FakeCluster()
    cluster.put(WORKLOADS, a_workload("a", priority=1))

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        next(iter(cluster.objects.values()))["spec"]["priority"] = 2
        await asyncio.sleep(500 - 20)
        await asyncio.sleep(130)
        assert list(cache.values()) == ["job-a=2"]

    run(following(cluster.kube(), story))


def test_more_deletions_than_are_remembered_are_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "TOMBSTONES_LIMIT", 3)
    cluster = FakeCluster()
    for number in range(5):
        cluster.put(WORKLOADS, a_workload(f"w{number}"))

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        for number in range(5):
            cluster.remove(WORKLOADS, f"job-w{number}", "vision")
        await asyncio.sleep(5)
        assert list(cache.values()) == []
        assert sum(method == "GET" for method, _, _ in cluster.requests) == 4, "list, watch, list, watch"

    run(following(cluster.kube(), story))


def test_an_object_that_makes_the_reducer_fail_does_not_end_the_agent() -> None:
    cluster = FakeCluster()
    cluster.put(WORKLOADS, a_workload("a"))

    def reduce(raw: Raw) -> str:
        raise ZeroDivisionError("a bug")

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(60)
        assert cache.tried.is_set()
        assert not cache.synced.is_set()

    run(following(cluster.kube(), story, reduce))


def server(answers: Iterator[httpx2.Response]) -> tuple[Kube, list[float]]:
    """A server that gives these answers, and the times at which it was asked."""
    asked: list[float] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(asyncio.get_running_loop().time())
        return next(answers)

    return Kube(httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster")), asked


HTML = b"<html><body>Sign in to continue</body></html>"


@pytest.mark.parametrize(
    "content",
    [HTML, b"", b"[]", b"null", b'{"items": 5}', b'{"items": [1, null, "x", {}, {"metadata": 3}]}', b"\xff\xfe"],
    ids=repr,
)
def test_answers_that_are_no_list_never_end_the_agent(content: bytes) -> None:
    def answers() -> Iterator[httpx2.Response]:
        while True:
            yield httpx2.Response(200, content=content)

    kube, asked = server(answers())

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(60)
        assert list(cache.values()) == []
        assert 10 < len(asked) < 80

    run(following(kube, story))


@pytest.mark.parametrize("code", [429, 500, 503])
def test_a_storm_is_sat_out_as_long_as_the_server_asks(code: int) -> None:
    def answers() -> Iterator[httpx2.Response]:
        while True:
            yield httpx2.Response(code, headers={"Retry-After": "20"}, content=HTML)

    kube, asked = server(answers())

    async def story(_: Cache[str]) -> None:
        await asyncio.sleep(300)
        pauses = [later - earlier for earlier, later in itertools.pairwise(asked)]
        assert all(20 <= pause <= 25.1 for pause in pauses)
        assert len(set(pauses)) > 5, "not all agents at once"

    run(following(kube, story))


def test_a_source_is_narrowed_on_the_servers_side() -> None:
    cluster = FakeCluster()
    for name, namespace in (("mine", "here"), ("other", "here"), ("mine", "there")):
        cluster.put(CONFIG_MAPS, {"metadata": {"name": name, "namespace": namespace}})

    async def story() -> None:
        source = Source(CONFIG_MAPS, "here", fields="metadata.name=mine")
        changed = asyncio.Event()
        cache: Cache[str] = Cache(
            cluster.kube(), source, lambda raw: f"{raw['metadata']['namespace']}/{raw['metadata']['name']}", changed
        )
        running = asyncio.create_task(cache.run())
        await cache.synced.wait()
        assert list(cache.values()) == ["here/mine"]
        running.cancel()

    run(story())
