"""Questions that a notice brings up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.clock import Clock
from runtime.eviction import inquiry
from runtime.eviction.inquiry import ASK_AGAIN_SECONDS, Inquiry
from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.observe import Scout
from runtime.eviction.pods import PODSET_LABEL, SeenPod
from runtime.eviction.view import NodeView, PodView
from runtime.kube import NODES, PODS
from tests.builders import NOON, SPOT, a_config
from tests.fakes.cluster import Denied, FakeCluster

Raw = dict[str, Any]
POD = PodView("uid", "vision", "train-0", "n1", 8, "job-1", True, 30.0, "", None, "", False)


def a_stranger(name: str, node: str = "n1", gpus: str | None = "1", **labels: str) -> Raw:
    requests = {} if gpus is None else {"nvidia.com/gpu": gpus}
    return {
        "metadata": {"name": name, "namespace": "vision", "labels": labels},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": requests}}]},
        "status": {"phase": "Running"},
    }


def going(name: str = "n1", certainty: Certainty = Certainty.CERTAIN) -> NodeView:
    return NodeView(name, (Notice("n", NoticeKind.SPOT, "aws", certainty, NOON),), True, True, SPOT)


class Asking:
    """An inquiry about a cluster, and the time."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.now = NOON
        scout = Scout(a_config(), Clock(real_now=lambda: self.now))
        self.inquiry = Inquiry(self.cluster.kube(), scout, lambda: self.now)

    def look(self, *nodes: NodeView, pods: tuple[str, ...] = ()) -> int:
        """Look at these nodes, and at pods of ours on nodes of these names; returns the questions."""
        before = len(self.cluster.requests)
        seen = [SeenPod(replace(POD, uid=node, node=node), "owner") for node in pods]
        asyncio.run(self.inquiry.look({node.name: node for node in nodes}, seen))
        return len(self.cluster.requests) - before

    @property
    def strangers(self) -> set[str]:
        return {pod.view.name for pod in self.inquiry.strangers}


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_nothing_is_asked_while_nothing_goes(asking: Asking) -> None:
    quiet = NodeView("n1", (), True, True, SPOT)
    assert asking.look(quiet, going("n2", Certainty.LIKELY), pods=("n1", "n2")) == 0


def test_gpu_pods_on_a_going_node_that_are_not_kueues_are_found(asking: Asking) -> None:
    for raw in (
        a_stranger("notebook"),
        a_stranger("exporter", gpus=None),
        a_stranger("elsewhere", node="n2"),
        a_stranger("kueues", **{PODSET_LABEL: "main"}),
    ):
        asking.cluster.put(PODS, raw)
    assert asking.look(going()) == 1
    assert asking.strangers == {"notebook"}


def test_a_pod_that_cannot_be_read_hides_no_other(asking: Asking) -> None:
    asking.cluster.put(PODS, a_stranger("odd", gpus="1Ki"))
    asking.cluster.put(PODS, a_stranger("notebook"))
    asking.look(going())
    assert asking.strangers == {"notebook"}


def test_each_question_is_asked_again_only_after_a_while(asking: Asking) -> None:
    assert asking.look(going()) == 1
    asking.now += ASK_AGAIN_SECONDS - 0.1
    assert asking.look(going()) == 0
    asking.now += 0.2
    assert asking.look(going()) == 1


def test_so_many_questions_in_a_round_and_the_others_in_the_next(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiry, "MOST_QUESTIONS", 4)
    nodes = [going(f"n{number}") for number in range(10)]
    assert [asking.look(*nodes) for _ in range(4)] == [4, 4, 2, 0]


def test_with_more_nodes_than_questions_each_has_its_turn_again_and_again(
    asking: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inquiry, "MOST_QUESTIONS", 4)
    nodes = [going(f"n{number}") for number in range(10)]
    for turn in ("first", "second"):
        for number in range(10):
            asking.cluster.put(PODS, a_stranger(f"{turn}-{number}", node=f"n{number}"))
        for _ in range(3):
            asking.now += ASK_AGAIN_SECONDS
            assert asking.look(*nodes) == 4
        assert asking.strangers >= {f"{turn}-{number}" for number in range(10)}


def test_what_a_node_had_is_forgotten_when_its_notice_is_gone(asking: Asking) -> None:
    asking.cluster.put(PODS, a_stranger("notebook"))
    asking.look(going())
    asking.look(NodeView("n1", (), True, True, SPOT))
    assert asking.strangers == set()


def test_a_node_is_gone_only_where_the_api_server_says_so(asking: Asking) -> None:
    asking.cluster.put(NODES, {"metadata": {"name": "unlabeled"}})
    assert asking.look(pods=("unlabeled", "lost")) == 2
    assert set(asking.inquiry.gone) == {"lost"}


def test_a_node_that_is_back_is_not_gone_any_more(asking: Asking) -> None:
    asking.look(pods=("n1",))
    asking.cluster.put(NODES, {"metadata": {"name": "n1"}})
    asking.now += ASK_AGAIN_SECONDS
    asking.look(pods=("n1",))
    assert set(asking.inquiry.gone) == set()


@pytest.mark.parametrize("code", [403, 500, 429])
def test_an_api_server_that_does_not_answer_makes_no_node_gone_and_fails_no_round(asking: Asking, code: int) -> None:
    def deny(method: str, path: str, body: Any) -> None:
        raise Denied(code)

    asking.cluster.rule = deny
    assert asking.look(going("n2"), pods=("n1", "n3")) == 3
    assert (set(asking.inquiry.gone), asking.strangers) == (set(), set())


def test_one_question_that_fails_stops_no_other(asking: Asking) -> None:
    asking.cluster.put(PODS, a_stranger("notebook"))

    def deny(method: str, path: str, body: Any) -> None:
        if path.endswith("/nodes"):
            raise Denied(403)

    asking.cluster.rule = deny
    asking.look(going(), pods=("a-missing-one",))
    assert asking.strangers == {"notebook"}
