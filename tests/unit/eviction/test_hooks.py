"""Pods that are asked over HTTP to save, on a real loopback server that does what pods may do."""

from __future__ import annotations

import asyncio
import gzip
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from runtime.eviction import hooks
from runtime.eviction.hooks import Hooks
from runtime.eviction.marker import LONGEST_ANSWER_BYTES, asked_in
from runtime.eviction.notice import NoticeKind
from runtime.eviction.steps import CheckpointRequest
from runtime.eviction.view import Answer, PodView

REQUEST = CheckpointRequest("spot-1", NoticeKind.SPOT, True, 1_790_000_100.0)
ANSWER = b'{"version":1,"request":"spot-1","step":1200,"url":"s3://b/1200","at":1790000010.0}'
POD = PodView("uid-1", "vision", "train-0", "n1", 8, "job-1", True, 30.0, "", None, "", False)

Handler = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Server:
    """Answers every request as told; `requests` are their heads and bodies."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self.requests: list[tuple[str, str]] = []
        self.ended = 0
        self.port = 0

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    def pod(self, uid: str = "uid-1") -> PodView:
        return replace(POD, uid=uid, name=f"train-{uid}", hook=f"http://127.0.0.1:{self.port}/save")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(line for line in head.lower().split("\r\n") if line.startswith("content-length:"))
        body = (await reader.readexactly(int(length.partition(":")[2]))).decode()
        self.requests.append((head, body))
        with suppress(ConnectionError):
            answering = asyncio.ensure_future(self._handler(writer))
            gone = asyncio.ensure_future(reader.read())
            await asyncio.wait({answering, gone}, return_when=asyncio.FIRST_COMPLETED)
            for task in (answering, gone):
                task.cancel()
            await asyncio.gather(answering, gone, return_exceptions=True)
        self.ended += 1
        writer.close()


def says(body: bytes, status: str = "200 OK", *headers: str) -> Handler:
    async def handle(writer: asyncio.StreamWriter) -> None:
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        await writer.drain()

    return handle


async def hangs(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


async def drips(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.02)


async def hangs_up(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()


class Heard:
    """Takes answers; `kept` is what it says of each."""

    def __init__(self, kept: bool = True) -> None:
        self.answers: list[tuple[str, Answer]] = []
        self.kept = kept

    async def __call__(self, pod: PodView, answer: Answer) -> bool:
        self.answers.append((pod.uid, answer))
        return self.kept


async def until(happened: Callable[[], object], seconds: float = 2.0) -> None:
    async with asyncio.timeout(seconds):
        while not happened():  # noqa: ASYNC110
            await asyncio.sleep(0.002)


def test_a_pod_is_sent_the_request_without_credentials_and_its_answer_is_heard() -> None:
    async def story() -> None:
        heard = Heard()
        async with Server(says(ANSWER)) as server:
            caller = Hooks(heard)
            caller.call(server.pod(), REQUEST)
            await until(lambda: heard.answers)
            await caller.close()
        assert heard.answers == [("uid-1", Answer("spot-1", 1200, "s3://b/1200", 1_790_000_010.0))]
        [(head, body)] = server.requests
        assert head.startswith("POST /save HTTP/1.1")
        assert not any(word in head.lower() for word in ("authorization", "cookie"))
        assert asked_in(body) == "spot-1"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        pytest.param(says(b"", "404 Not Found"), "it answered 404", id="has no such path"),
        pytest.param(says(b"", "302 Found", "Location: http://127.0.0.1:1/"), "it answered 302", id="redirects"),
        pytest.param(says(b"<!doctype html><h1>Hello</h1>"), "JSON", id="HTML"),
        pytest.param(says(b""), "JSON", id="nothing"),
        pytest.param(says(b"\xff\xfe\x00"), "JSON", id="not even text"),
        pytest.param(says(b"[" * LONGEST_ANSWER_BYTES), "JSON", id="very deep"),
        pytest.param(says(b'{"request":"spot-1"}'), "'at'", id="an answer without a time"),
        pytest.param(says(b"x" * 1_000_000), "more than 4096 bytes", id="a megabyte"),
        pytest.param(
            says(gzip.compress(b" " * 3_000_000), "200 OK", "Content-Encoding: gzip"), "JSON|bytes", id="a packed bomb"
        ),
    ],
)
def test_what_is_no_answer_is_said_once_and_the_pod_is_not_called_again(
    handler: Handler, complaint: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING, "runtime.eviction.hooks")
    monkeypatch.setattr(hooks, "FIRST_PAUSE_SECONDS", 0.0)

    async def story() -> None:
        heard = Heard()
        async with Server(handler) as server:
            caller = Hooks(heard)
            caller.call(server.pod(), REQUEST)
            await until(lambda: caplog.records)
            caller.call(server.pod(), REQUEST)
            await asyncio.sleep(0.01)
            await caller.close()
        assert heard.answers == []
        assert len(server.requests) == 1

    asyncio.run(story())
    [record] = caplog.records
    assert record.__dict__["again"] is False
    said = str(record.__dict__["error"])
    assert said
    assert any(part in said for part in complaint.split("|"))


async def breaks_off(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(says(b"", "503 Busy"), id="503"),
        pytest.param(says(b"", "500 Oh"), id="500"),
        pytest.param(says(b"", "429 Later"), id="429"),
        pytest.param(says(b"", "408 Slow"), id="408"),
        pytest.param(hangs_up, id="hangs up in the middle"),
        pytest.param(breaks_off, id="breaks off"),
        pytest.param(says(b"", "what"), id="not HTTP"),
    ],
)
def test_a_call_that_failed_is_made_again_after_a_pause_and_said_once(
    failure: Handler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hooks, "FIRST_PAUSE_SECONDS", 0.01)

    async def story() -> None:
        heard = Heard()
        async with Server(failure) as server:

            async def fails_twice(writer: asyncio.StreamWriter) -> None:
                await (failure if len(server.requests) <= 2 else says(ANSWER))(writer)

            server._handler = fails_twice
            caller = Hooks(heard)

            def answered() -> object:
                caller.call(server.pod(), REQUEST)  # as each tick does while its answer is wanted
                return heard.answers

            await until(answered, 20)
            caller.call(server.pod(), REQUEST)
            await caller.close()
        assert [answer.step for _, answer in heard.answers] == [1200]
        assert len(server.requests) == 3

    asyncio.run(story())
    assert failures(caplog) == [("WARNING", True)]


def test_pauses_between_calls_grow_and_calls_come_to_an_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "runtime.eviction.hooks")

    async def story() -> None:
        now = 0.0
        async with Server(says(b"", "503 Busy")) as server:
            caller = Hooks(Heard(), lambda: now)

            async def fails(times: int) -> None:
                caller.call(server.pod(), REQUEST)
                await until(lambda: len(failures(caplog)) == times, 20)

            await fails(1)
            for number, pause in enumerate((0.5, 1, 2, 4, 8, 8), 2):
                now += pause - 0.01
                caller.call(server.pod(), REQUEST)
                now += 0.02
                await fails(number)
            now += hooks.LONGEST_SECONDS
            await fails(8)
            now += hooks.LONGEST_SECONDS
            caller.call(server.pod(), REQUEST)
            await asyncio.sleep(0.01)
            await caller.close()
        assert len(server.requests) == 8

    asyncio.run(story())
    assert failures(caplog) == [("WARNING", True), *[("DEBUG", True)] * 6, ("WARNING", False)]


def failures(caplog: pytest.LogCaptureFixture) -> list[tuple[str, bool]]:
    """How each call that failed was said: its level, and whether there will be another."""
    return [(record.levelname, record.__dict__["again"]) for record in caplog.records if "again" in record.__dict__]


def test_a_pod_where_nobody_listens_is_said(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        async with Server(hangs) as server:
            pass
        caller = Hooks(Heard())
        caller.call(server.pod(), REQUEST)
        await until(lambda: caplog.records)
        await caller.close()

    asyncio.run(story())


def test_each_pod_is_called_once_for_each_request() -> None:
    async def story() -> None:
        heard = Heard()
        async with Server(says(ANSWER)) as server:
            caller = Hooks(heard)
            for _ in range(3):
                for uid in ("a", "b"):
                    caller.call(server.pod(uid), REQUEST)
                await asyncio.sleep(0.01)
            caller.call(server.pod("a"), replace(REQUEST, id="spot-2"))
            await until(lambda: len(heard.answers) == 3)
            await caller.close()
        assert sorted(asked_in(body) for _, body in server.requests) == ["spot-1", "spot-1", "spot-2"]

    asyncio.run(story())


def test_a_pod_whose_answer_could_not_be_kept_may_be_called_again() -> None:
    async def story() -> None:
        heard = Heard(kept=False)
        async with Server(says(ANSWER)) as server:
            caller = Hooks(heard)
            caller.call(server.pod(), REQUEST)
            await until(lambda: heard.answers)
            await asyncio.sleep(0)
            caller.call(server.pod(), REQUEST)
            await until(lambda: len(heard.answers) == 2)
            await caller.close()

    asyncio.run(story())


def test_a_call_ends_when_its_pod_is_gone_and_no_other() -> None:
    async def story() -> None:
        async with Server(hangs) as server:
            caller = Hooks(Heard())
            for uid in ("a", "b"):
                caller.call(server.pod(uid), REQUEST)
            await until(lambda: len(server.requests) == 2)
            caller.keep_only({"b"})
            await until(lambda: server.ended == 1)
            await asyncio.sleep(0.01)
            assert server.ended == 1
            await caller.close()
            await until(lambda: server.ended == 2)

    asyncio.run(story())


@pytest.mark.parametrize("handler", [pytest.param(hangs, id="hangs"), pytest.param(drips, id="a byte now and then")])
def test_a_call_has_an_end(handler: Handler, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "LONGEST_SECONDS", 0.1)

    async def story() -> None:
        async with Server(handler) as server:
            caller = Hooks(Heard())
            caller.call(server.pod(), REQUEST)
            await until(lambda: caplog.records)
            await until(lambda: server.ended == 1)
            await caller.close()

    asyncio.run(story())


def test_pods_that_hang_keep_no_other_from_being_called() -> None:
    async def story() -> None:
        heard = Heard()
        async with Server(hangs) as stuck, Server(says(ANSWER)) as server:
            caller = Hooks(heard)
            for number in range(120):  # more than the connections that a client opens if nobody says how many
                caller.call(stuck.pod(f"stuck-{number}"), REQUEST)
            caller.call(server.pod(), REQUEST)
            await until(lambda: heard.answers)
            await caller.close()
            await until(lambda: stuck.ended == len(stuck.requests))

    asyncio.run(story())
