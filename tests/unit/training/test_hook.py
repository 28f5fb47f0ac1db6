"""The HTTP server in the pod, spoken to over a socket."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime import training
from runtime.training import Saving, Session, Stopped
from runtime.training.hook import MAX_AT_ONCE

Reply = tuple[int, str]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    with training.session(tmp_path / "c", hook_port=0) as session:
        yield session


def call(session: Session, method: str, path: str, body: bytes | str | None = None) -> Reply:
    assert session.hook is not None
    connection = http.client.HTTPConnection("127.0.0.1", session.hook.port, timeout=60)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def ask(session: Session, identity: str, replies: list[Reply]) -> threading.Thread:
    body = json.dumps({"version": 1, "request": identity, "deadline": 1.0, "reason": "maintenance", "certain": True})
    thread = threading.Thread(target=lambda: replies.append(call(session, "POST", "/save", body)))
    thread.start()
    return thread


def save(saving: Saving) -> None:
    saving.pickle(saving.step)


def run_until(session: Session, threads: list[threading.Thread], save_function: object = save) -> int:
    step = 0
    until = time.monotonic() + 60
    while any(thread.is_alive() for thread in threads) and time.monotonic() < until:
        step += 1
        assert callable(save_function)
        session.step(step, save_function)
        time.sleep(0.002)
    return step


def test_a_request_is_answered_once_the_save_is_done(session: Session) -> None:
    replies: list[Reply] = []
    run_until(session, [ask(session, "r1", replies)])

    [(status, body)] = replies
    answer = json.loads(body)
    assert status == 200
    assert answer["request"] == "r1"
    assert answer["url"].endswith(f"step-{answer['step']:012d}")
    assert abs(answer["at"] - time.time()) < 10


def test_requests_that_wait_together_are_served_by_few_saves_and_each_gets_its_own_id(session: Session) -> None:
    replies: list[Reply] = []
    run_until(session, [ask(session, f"r{number}", replies) for number in range(5)])

    assert sorted(json.loads(body)["request"] for status, body in replies) == [f"r{number}" for number in range(5)]


def test_a_request_that_comes_once_more_gets_the_same_answer(session: Session) -> None:
    replies: list[Reply] = []
    run_until(session, [ask(session, "r1", replies)])
    run_until(session, [ask(session, "r1", replies)])

    assert replies[0] == replies[1]


def test_a_save_that_fails_is_not_answered_as_done(session: Session) -> None:
    def full(saving: Saving) -> None:
        raise OSError(28, "No space left on device")

    replies: list[Reply] = []
    run_until(session, [ask(session, "r1", replies)], full)

    assert [status for status, _ in replies] == [503]


def test_it_shows_metrics(session: Session) -> None:
    session.save(3, save)

    status, text = call(session, "GET", "/metrics")

    assert status == 200
    assert "gpufleet_training_checkpoint_step 3\n" in text
    assert "gpufleet_training_checkpoint_age_seconds " in text
    assert call(session, "GET", "/")[0] == 404


@pytest.mark.parametrize("body", ["", "{", "[]", '{"request": 1}', b"\xff\xfe"])
def test_garbage_is_refused(session: Session, body: str | bytes) -> None:
    assert call(session, "POST", "/save", body)[0] == 400


def test_a_huge_request_is_refused_before_it_is_read(session: Session) -> None:
    assert session.hook is not None
    with socket.create_connection(("127.0.0.1", session.hook.port), timeout=10) as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.0 413 ")


def test_clients_that_say_nothing_do_not_pile_up(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.training.hook._Handler.timeout", 600)
    assert session.hook is not None
    clients = [socket.create_connection(("127.0.0.1", session.hook.port), timeout=60) for _ in range(MAX_AT_ONCE + 4)]
    try:
        sent_away: list[socket.socket] = []
        while len(sent_away) < 4:
            sent_away, _, _ = select.select(clients, [], [], 60)
        assert [client.recv(1) for client in sent_away] == [b""] * 4
    finally:
        for client in clients:
            client.close()


def test_only_the_first_rank_of_a_node_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    with training.session(tmp_path / "c", hook_port=0) as session:
        assert session.hook is None


def test_an_answer_arrives_though_the_process_ends_with_that_save(tmp_path: Path) -> None:
    replies: list[Reply] = []
    with contextlib.suppress(Stopped), training.session(tmp_path / "c", hook_port=0) as session:
        asking = ask(session, "r1", replies)
        while not session._inbox.waiting:
            time.sleep(0.001)
        session._signals.stop = True
        session.step(1, save)
    assert session.hook is not None
    asking.join(timeout=60)

    assert [status for status, _ in replies] == [200]


def test_who_still_waits_at_the_end_is_told_that_nothing_was_saved(tmp_path: Path) -> None:
    replies: list[Reply] = []
    with training.session(tmp_path / "c", hook_port=0) as session:
        asking = ask(session, "r1", replies)
        while not session._inbox.waiting:
            time.sleep(0.001)
    asking.join(timeout=60)

    assert [status for status, _ in replies] == [503]
