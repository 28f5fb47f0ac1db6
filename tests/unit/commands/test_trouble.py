"""Every command that reads a cluster, against clusters that do not answer as they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from runtime import kube
from runtime.kube import Kube
from tests.fakes.cluster import FakeCluster
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]

COMMANDS = [
    ("queue",),
    ("queue", "--json"),
    ("queue", "-n", "vision"),
    ("explain", "train"),
    ("explain", "vision/train", "--json"),
    ("recall", "vision/train", "--reason", "costs", "--yes"),
    ("budget", "show"),
    ("budget", "log"),
    ("budget", "top-up", "fleet", "5USD", "--reason", "a paper"),
    ("ledger", "verify"),
    ("ledger", "compact"),
    ("ledger", "export"),
]
ANSWERS: dict[str, Callable[[httpx2.Request], httpx2.Response]] = {
    "401": lambda _: httpx2.Response(401, json={"message": "Unauthorized"}),
    "403": lambda _: httpx2.Response(403, json={"message": "forbidden: no rights"}),
    "429": lambda _: httpx2.Response(429, headers={"Retry-After": "1"}, text="too many"),
    "500": lambda _: httpx2.Response(500, text=""),
    "a page of a proxy": lambda _: httpx2.Response(200, text="<html>sign in</html>"),
    "an empty object": lambda _: httpx2.Response(200, json={}),
    "a list": lambda _: httpx2.Response(200, json=[]),
    "nothing there": lambda _: httpx2.Response(404, json={"message": "not found"}),
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_cluster_in_trouble_is_one_message_and_exit_1(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    for name, answer in ANSWERS.items():

        def connect(_: Any, answer: Any = answer) -> Kube:
            return Kube(httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="https://cluster"))

        monkeypatch.setattr(kube, "connect", connect)
        ended = gpufleet(*command)
        assert (ended.code, ended.out) == (1, ""), name
        assert ended.err.startswith("gpufleet: "), name
        assert len(ended.err.splitlines()) == 1, name
        assert "Traceback" not in ended.err, name


def test_of_a_cluster_that_does_not_answer_the_kubeconfig_is_named(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/somewhere")
    cluster = FakeCluster()
    monkeypatch.setattr(kube, "connect", lambda _: cluster.kube())
    with cluster.refusing():
        ended = gpufleet("queue")
    assert (ended.code, ended.said.endswith("is KUBECONFIG=/somewhere the right one?")) == (1, True)
