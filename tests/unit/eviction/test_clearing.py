"""When it is said on a Node that nothing of ours is left there, and when it is taken back."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.clock import Clock
from runtime.eviction import clearing
from runtime.eviction.clearing import SETTLING_SECONDS, cleared
from runtime.eviction.notice import Certainty, Notice, NoticeKind, notices_to_json
from runtime.eviction.observe import Scout
from runtime.eviction.pods import PODSET_LABEL, WORKLOAD_ANNOTATION
from runtime.eviction.sources import ACKNOWLEDGED, Source
from runtime.eviction.sources.aws import aws_sources
from runtime.eviction.sources.azure import AzureSource
from runtime.eviction.sources.file import FileSource
from runtime.eviction.sources.gcp import gcp_sources
from runtime.eviction.view import NodeView, PodView, View
from runtime.evictions import Evictions
from runtime.kube import NODES, PODS
from runtime.routing.act import Context
from runtime.watching import Watching
from stacks.labels import CLEARED_ANNOTATION, FLAVOR_LABEL, NOTICES_ANNOTATION
from tests.builders import NOON, SPOT, a_config
from tests.fakes.cluster import Denied
from tests.fakes.world import World

Raw = dict[str, Any]
CERTAIN, LIKELY = Certainty.CERTAIN, Certainty.LIKELY


def notice(
    name: str = "azure-1", certainty: Certainty = CERTAIN, *, source: str = "azure", machines: int = 1
) -> Notice:
    return Notice(name, NoticeKind.SPOT, source, certainty, NOON, NOON + 30, machines=machines)


def node(*notices: Notice, name: str = "n1", said: str = "", present: bool = True) -> NodeView:
    return NodeView(name, notices, present=present, ready=True, flavor=SPOT, cleared=said)


def pod(on: str = "n1", **changes: Any) -> PodView:
    plain = PodView("uid-p", "vision", "p", on, 1, "job-job-1", True, 30.0, "", None, "", False, managed=True)
    return replace(plain, **changes)


def view(*nodes: NodeView, pods: list[PodView] | None = None) -> View:
    return View({one.name: one for one in nodes}, pods or [], [])


# What has to be written


def test_a_node_that_nothing_of_ours_is_left_on_is_clear_of_its_certain_notices() -> None:
    going = node(notice("b"), notice("a"), notice("c", LIKELY), notice("a"))
    assert cleared(view(going)) == {"n1": "a,b"}


@pytest.mark.parametrize(
    "there",
    [
        pod(),
        pod(running=False),
        pod(leaving=True),
        pod(gpus=0),
        pod(daemon=True),
        pod(workload=""),
        pod(managed=False),
    ],
)
def test_while_a_pod_of_ours_is_there_nothing_is_said(there: PodView) -> None:
    assert cleared(view(node(notice()), pods=[there])) == {}


@pytest.mark.parametrize(
    "there",
    [
        pod(ended=True),
        pod(workload="", gpus=0),
        pod(workload="", managed=False),
        pod(workload="", daemon=True),
        pod("n2"),
    ],
)
def test_pods_that_have_ended_are_not_ours_or_are_elsewhere_hold_nothing_up(there: PodView) -> None:
    assert cleared(view(node(notice()), pods=[there])) == {"n1": "azure-1"}


@pytest.mark.parametrize(
    "quiet",
    [
        node(),
        node(notice("a", LIKELY)),
        node(notice(), present=False),
        node(notice("a"), notice("b"), said="a,b"),
        node(notice("aws-spot-1", source="aws-spot"), notice("drill-1", source="drill")),
    ],
)
def test_a_node_that_has_nothing_to_be_said_or_says_it_already_is_not_written(quiet: NodeView) -> None:
    assert cleared(view(quiet)) == {}


@pytest.mark.parametrize(
    ("said", "notices", "wanted"),
    [
        ("a", (), None),
        ("a", (notice("a", LIKELY),), None),
        ("a", (notice("a", source="aws-spot"),), None),
        ("a", (notice("b"),), "b"),
        ("a,b", (notice("b"),), "b"),
        ("whatever stands there", (notice("b"),), "b"),
    ],
)
def test_what_no_longer_applies_is_taken_back(said: str, notices: tuple[Notice, ...], wanted: str | None) -> None:
    assert cleared(view(node(*notices, said=said))) == {"n1": wanted}


def test_a_node_on_which_a_job_appears_again_is_not_clear_any_more() -> None:
    assert cleared(view(node(notice(), said="azure-1"), pods=[pod()])) == {"n1": None}


def test_an_event_that_several_nodes_share_waits_for_the_last_of_them() -> None:
    empty, busy = node(notice("shared"), notice("own")), node(notice("shared"), name="n2")
    assert cleared(view(empty, busy, pods=[pod("n2")])) == {"n1": "own"}
    assert cleared(view(replace(empty, cleared="own,shared"), busy, pods=[pod("n2")])) == {"n1": "own"}
    assert cleared(view(empty, busy)) == {"n1": "own,shared", "n2": "shared"}


def test_an_event_that_also_names_machines_that_are_not_ours_is_left_to_its_deadline() -> None:
    shared = notice("shared", machines=3)
    two = (node(shared, notice("own")), node(shared, name="n2"))
    assert cleared(view(*two)) == {"n1": "own"}
    assert cleared(view(*two, node(shared, name="n3"))) == {"n1": "own,shared", "n2": "shared", "n3": "shared"}
    gone = node(name="n3", present=False)
    assert cleared(view(*two, gone)) == {"n1": "own"}, "who knows what became of it"


def test_every_source_that_waits_for_a_word_is_told_and_no_other() -> None:
    found: tuple[Source, ...] = (*aws_sources(), *gcp_sources(), AzureSource(), FileSource("/notices", "n1"))
    assert {source.name for source in found if hasattr(source, "acknowledge")} == ACKNOWLEDGED


def test_the_order_in_which_things_are_seen_changes_nothing() -> None:
    rng = random.Random(7)
    nodes = [node(notice("a"), notice(f"b{n}"), name=f"n{n}", said="a" if n % 2 else "") for n in range(9)]
    pods = [pod(f"n{n}") for n in range(3)]
    first = cleared(view(*nodes, pods=pods))
    for _ in range(5):
        rng.shuffle(nodes)
        rng.shuffle(pods)
        assert list(cleared(view(*nodes, pods=pods)).items()) == list(first.items())


def test_what_was_written_needs_no_second_write() -> None:
    before = view(node(notice("a"), notice("b")), node(said="x", name="n2"), node(notice("c"), name="n3"))
    texts = cleared(before)
    after = [replace(one, cleared=texts.get(name) or "") for name, one in before.nodes.items()]
    assert cleared(view(*after)) == {}


@pytest.mark.parametrize(("annotations", "seen"), [({CLEARED_ANNOTATION: "a,b"}, "a,b"), ({}, ""), (None, "")])
def test_what_was_said_before_is_read_from_the_node(annotations: Raw | None, seen: str) -> None:
    metadata = {"name": "n1", "labels": {FLAVOR_LABEL: SPOT}, "annotations": annotations}
    found = Scout(a_config(), Clock()).node({"metadata": metadata})
    assert found is not None
    assert found.view.cleared == seen


# Writing it


class Site(World):
    """Nodes, pods, and an agent that ticks; only `now` moves time."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.under_way: list[bool] = []

    def node(self, *notices: Notice, name: str = "n1", said: str | None = None) -> None:
        annotations = {NOTICES_ANNOTATION: notices_to_json(notices)} if notices else {}
        annotations |= {} if said is None else {CLEARED_ANNOTATION: said}
        metadata = {"name": name, "labels": {FLAVOR_LABEL: SPOT}, "annotations": annotations}
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.cluster.put(NODES, {"metadata": metadata, "spec": {}, "status": status})

    def pod(self, name: str = "p", *, kueue: bool = True, gpus: str = "1") -> None:
        metadata: Raw = {"name": name, "namespace": "vision"}
        if kueue:
            metadata |= {"labels": {PODSET_LABEL: "main"}, "annotations": {WORKLOAD_ANNOTATION: "job-job-1"}}
        spec = {"nodeName": "n1", "containers": [{"name": "a", "resources": {"requests": {"nvidia.com/gpu": gpus}}}]}
        self.cluster.put(PODS, {"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def said(self, name: str = "n1") -> str | None:
        text = self.cluster.get(NODES, name)["metadata"]["annotations"].get(CLEARED_ANNOTATION)
        return None if text is None else str(text)

    def live(self, *seconds: float, between: Callable[[], object] = lambda: None) -> None:
        """One agent's life: a tick after each of these pauses."""

        async def life() -> None:
            store = self.store()
            watching = Watching(self.cluster.kube(), self.config, self.clock(), lambda *_: None, asyncio.Event())
            context = Context(
                self.cluster.kube(), store, self.clock(), self.config, "pod-1", lambda: self.leading,
                watching.observer.reduce,
            )  # fmt: skip
            evictions = Evictions(context, watching, lambda _: None)
            caches = asyncio.create_task(watching.run())
            await store.refresh()
            try:
                for pause in seconds:
                    self.now += pause
                    while not watching.complete:  # noqa: ASYNC110
                        await asyncio.sleep(0)
                    for _ in range(12):
                        await asyncio.sleep(0)  # the watches catch up
                    await evictions.tick([*watching.jobs])
                    self.under_way.append(evictions.under_way)
                    between()
            finally:
                caches.cancel()
                await asyncio.gather(caches, return_exceptions=True)
                await evictions.close()

        asyncio.run(life())


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "ledger")


def test_it_is_said_once_and_only_after_it_has_been_true_for_a_while(site: Site) -> None:
    site.node(notice())
    site.live(0, SETTLING_SECONDS - 0.1)
    assert site.cluster.writes() == []
    site.live(0, SETTLING_SECONDS, 1, 1, 10)
    assert site.cluster.writes() == ["PATCH /api/v1/nodes/n1"]
    assert site.said() == "azure-1"


def test_a_pod_that_comes_and_goes_starts_the_time_anew(site: Site) -> None:
    site.node(notice())
    turns = iter([site.pod, lambda: site.cluster.remove(PODS, "p", "vision")])
    site.live(0, 4, 4, between=lambda: next(turns, lambda: None)())
    assert site.said() is None


def test_once_the_notice_is_gone_so_is_the_mark_and_nothing_is_under_way(site: Site) -> None:
    site.node(said="azure-1")
    site.live(0, 1, 1)
    assert (site.cluster.writes(), site.said()) == (["PATCH /api/v1/nodes/n1"], None)
    assert site.under_way == [False] * 3


def test_a_pod_that_the_caches_do_not_show_keeps_a_node(site: Site) -> None:
    site.node(notice())
    site.pod("stranger", kueue=False)

    def nobody_asks_about_strangers(method: str, path: str, body: object) -> None:
        if len([1 for _, other, _ in site.cluster.requests if other == path]) <= 2 and path.endswith("/pods"):
            raise Denied(503)

    site.cluster.rule = nobody_asks_about_strangers
    site.live(0, 2, 2, 2)
    assert site.said() is None


def test_pods_that_nobody_lets_us_list_are_not_taken_for_gone(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.node(notice())
    site.pod()

    def blind(method: str, path: str, body: object) -> None:
        if path.endswith("/pods"):
            raise Denied(403, "cannot list pods")

    site.cluster.rule = blind
    site.live(0, 5, 5)
    assert site.cluster.writes() == []
    assert [r.levelno for r in caplog.records if r.name == clearing.__name__] == [logging.WARNING] * 2


def test_a_pod_that_cannot_be_read_counts_as_there(site: Site) -> None:
    site.node(notice())
    site.pod("odd", kueue=False, gpus="1Ki")
    site.live(0, 5, 5)
    assert site.cluster.writes() == []


def test_a_dry_run_and_a_replica_that_does_not_lead_write_nothing(site: Site) -> None:
    site.node(notice())
    site.node(name="n2", said="azure-1")
    site.leading = False
    site.live(0, 5, 5)
    site.leading, site.config = True, a_config(dry_run=True)
    site.live(0, 5, 5)
    assert site.cluster.writes() == []


def test_a_lease_that_is_lost_while_pods_are_listed_stops_the_write(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.node(notice())

    def lose_the_lease(method: str, path: str, body: object) -> None:
        if site.now > NOON and path.endswith("/pods"):
            site.leading = False

    site.cluster.rule = lose_the_lease
    site.live(0, 5)
    assert not site.leading
    assert site.cluster.writes() == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("code", [403, 404, 409, 422, 503])
def test_a_write_that_fails_is_a_warning_and_tried_again_later(
    site: Site, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    site.node(said="azure-1")

    def refuse(method: str, path: str, body: object) -> None:
        if method == "PATCH":
            raise Denied(code)

    site.cluster.rule = refuse
    site.live(0, 1, 1, 1, 2)
    assert len(site.cluster.writes()) == 2, "not in each tick"
    assert all(record.levelno <= logging.WARNING for record in caplog.records)
    assert site.under_way == [False] * 5
    site.cluster.rule = lambda *_: None
    site.live(0)
    assert site.said() is None


def test_many_nodes_are_written_a_few_at_a_time(site: Site) -> None:
    count = clearing.MOST_WRITES * 2 + 1
    for number in range(count):
        site.node(name=f"n{number:03}", said="azure-1")
    site.live(0)
    assert len(site.cluster.writes()) == clearing.MOST_WRITES
    site.live(0, 0, 0)
    assert len(site.cluster.writes()) == count


def test_other_annotations_of_the_node_stay(site: Site) -> None:
    site.node(notice())
    site.live(0, 5)
    annotations = site.cluster.get(NODES, "n1")["metadata"]["annotations"]
    assert set(annotations) == {NOTICES_ANNOTATION, CLEARED_ANNOTATION}
    assert [body for method, _, body in site.cluster.requests if method == "PATCH"] == [
        {"metadata": {"annotations": {CLEARED_ANNOTATION: "azure-1"}}}
    ]
