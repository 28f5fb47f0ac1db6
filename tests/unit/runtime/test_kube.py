from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from lightkube.config.client_adapter import BearerTokenFileAuth

from runtime import api
from runtime.cache import RESYNC_SECONDS, Cache
from runtime.errors import Conflict, Expired, Forbidden, KubeError, NotFound, Rejected, SettingsError, Unreachable
from runtime.kube import (
    ADMISSION_CHECKS,
    CONFIG_MAPS,
    LOCAL_QUEUES,
    PODS,
    WORKLOADS,
    Kube,
    Resource,
    connect,
    job_resource,
)
from stacks.kinds import JOB_KINDS, JobKind
from stacks.labels import GATE_NAME, QUEUE_LABEL, RECALL_ANNOTATION, VERDICT_ANNOTATION, VERDICT_CONDITION
from tests.fakes.cluster import Denied, FakeCluster
from tests.fakes.faketime import run
from tests.fakes.workloads import a_batch_job, a_workload, check, reserve

Raw = dict[str, Any]


async def following(
    cluster: FakeCluster,
    story: Callable[[Cache[str]], Awaitable[None]],
    reduce: Callable[[Raw], str | None] | None = None,
) -> None:
    """Run a cache of Workload names while the story is told."""
    changed = asyncio.Event()
    cache: Cache[str] = Cache(cluster.kube(), WORKLOADS, reduce or (lambda raw: str(raw["metadata"]["name"])), changed)
    running = asyncio.create_task(cache.run())
    try:
        await story(cache)
    finally:
        running.cancel()
        assert not running.done(), running.exception()


def test_a_cache_lists_every_page_and_then_follows_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PAGE_SIZE", 2)
    cluster = FakeCluster()
    for number in range(5):
        cluster.put(WORKLOADS, a_workload(f"w{number}"))

    async def story(cache: Cache[str]) -> None:
        await cache.synced.wait()
        assert sorted(cache.values()) == [f"job-w{number}" for number in range(5)]
        cluster.put(WORKLOADS, a_workload("new"))
        cluster.remove(WORKLOADS, "job-w0", "vision")
        await asyncio.sleep(1)
        assert "job-new" in cache.values()
        assert "job-w0" not in cache.values()

    run(following(cluster, story))


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(lambda cluster: cluster.end_watches(), id="the stream ends"),
        pytest.param(lambda cluster: cluster.end_watches(httpx2.ReadError("reset")), id="the connection breaks"),
        pytest.param(lambda cluster: cluster.end_watches(httpx2.ReadTimeout("silence")), id="the line is dead"),
        pytest.param(lambda cluster: cluster.send_on_watches(b"not json\n"), id="the line is garbage"),
        pytest.param(lambda cluster: cluster.send_on_watches(b'{"type": 1}\n'), id="the event is no event"),
        pytest.param(
            lambda cluster: cluster.send_on_watches(b'{"type":"ERROR","object":{"code":410,"message":"old"}}\n'),
            id="the version is gone",
        ),
        pytest.param(
            lambda cluster: cluster.send_on_watches(b'{"type":"ERROR","object":{}}\n'), id="the error says nothing"
        ),
        pytest.param(
            lambda cluster: cluster.send_on_watches(b'{"type":"ERROR","object":{"code":"late"}}\n'),
            id="the error has no number",
        ),
    ],
)
def test_whatever_ends_a_watch_what_was_missed_is_listed_again(trouble: Callable[[FakeCluster], None]) -> None:
    cluster = FakeCluster()
    cluster.put(WORKLOADS, a_workload("first"))

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        trouble(cluster)
        cluster.end_watches()
        cluster.put(WORKLOADS, a_workload("missed"))
        cluster.remove(WORKLOADS, "job-first", "vision")
        await asyncio.sleep(10)
        assert list(cache.values()) == ["job-missed"]

    run(following(cluster, story))


def test_a_server_that_refuses_for_ten_minutes_is_found_again_and_not_hammered() -> None:
    cluster = FakeCluster()
    cluster.put(WORKLOADS, a_workload("first"))

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        with cluster.refusing():
            cluster.end_watches()
            before = len(cluster.requests)
            await asyncio.sleep(600)
            assert list(cache.values()) == ["job-first"], "former values stand while the server is gone"
            assert 115 < len(cluster.requests) - before < 250
        cluster.put(WORKLOADS, a_workload("later"))
        await asyncio.sleep(10)
        assert sorted(cache.values()) == ["job-first", "job-later"]

    run(following(cluster, story))


def test_a_kind_that_is_not_installed_yet_is_waited_for() -> None:
    cluster = FakeCluster()

    def not_installed(method: str, path: str, body: object) -> None:
        raise Denied(404, "the server could not find the requested resource")

    cluster.rule = not_installed

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(60)
        assert not cache.synced.is_set()
        cluster.rule = lambda method, path, body: None
        await asyncio.wait_for(cache.synced.wait(), 31)

    run(following(cluster, story))


def test_a_list_whose_next_page_expired_starts_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "PAGE_SIZE", 1)
    cluster = FakeCluster()
    for name in ("a", "b", "c"):
        cluster.put(WORKLOADS, a_workload(name))
    lists = 0

    def forget(method: str, path: str, body: object) -> None:
        nonlocal lists
        lists += 1
        if lists == 2:
            cluster.version += 1
            cluster.forget_history()

    cluster.rule = forget

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(10)
        assert len(cache.values()) == 3

    run(following(cluster, story))


def test_everything_is_listed_anew_every_ten_minutes_even_if_the_watch_is_silently_wrong() -> None:
    cluster = FakeCluster()

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        raw = a_workload("unannounced")
        raw["metadata"]["resourceVersion"] = "1"
        cluster.objects["kueue.x-k8s.io/v1beta2/workloads", "vision", "job-unannounced"] = raw
        await asyncio.sleep(RESYNC_SECONDS + 10)
        assert list(cache.values()) == ["job-unannounced"]

    run(following(cluster, story))


def test_odd_line_separators_inside_an_object_do_not_break_the_watch() -> None:
    cluster = FakeCluster()

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        raw = a_workload("odd")
        raw["metadata"]["annotations"] = {"note": "a\u0085b\u2028c\u000bd"}
        cluster.put(WORKLOADS, raw)
        await asyncio.sleep(0.01)
        assert list(cache.values()) == ["job-odd"]
        assert cluster.watching == 1

    run(following(cluster, story))


def test_an_object_that_becomes_unreadable_keeps_its_former_value() -> None:
    cluster = FakeCluster()
    cluster.put(WORKLOADS, a_workload("a"))

    def reduce(raw: Raw) -> str:
        if "count" in raw["spec"]:
            raise ValueError("unreadable")
        return str(raw["metadata"]["name"])

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        cluster.change(WORKLOADS, "job-a", "vision", lambda raw: raw["spec"].update(count=-1))
        await asyncio.sleep(1)
        assert list(cache.values()) == ["job-a"]
        cluster.end_watches()
        await asyncio.sleep(10)
        assert list(cache.values()) == ["job-a"], "a list keeps it as well"

    run(following(cluster, story, reduce))


def test_a_change_that_reduces_to_the_same_value_wakes_nobody() -> None:
    cluster = FakeCluster()
    cluster.put(WORKLOADS, a_workload("a"))

    async def story(cache: Cache[str]) -> None:
        await asyncio.sleep(1)
        cache._changed.clear()
        cluster.change(WORKLOADS, "job-a", "vision", lambda raw: raw["metadata"].update(labels={"new": "label"}))
        await asyncio.sleep(1)
        assert not cache._changed.is_set()
        cluster.remove(WORKLOADS, "job-a", "vision")
        await asyncio.sleep(1)
        assert cache._changed.is_set()

    run(following(cluster, story))


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, Rejected),
        (401, Forbidden),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (410, Expired),
        (422, Rejected),
        (429, Unreachable),
        (500, Unreachable),
        (503, Unreachable),
    ],
)
def test_every_refusal_becomes_an_error_of_our_own_tree_with_the_servers_reason(
    code: int, error: type[KubeError]
) -> None:
    cluster = FakeCluster()

    def deny(method: str, path: str, body: object) -> None:
        raise Denied(code, "because of the test")

    cluster.rule = deny
    with pytest.raises(error, match="because of the test"):
        run(cluster.kube().get(WORKLOADS, "w", "vision"))


@pytest.mark.parametrize("content", [b"", b"<html>proxy</html>", b"[]", b"null", b"\xff\xfe"])
def test_an_answer_that_is_no_object_counts_as_no_answer(content: bytes) -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, content=content))
    kube = Kube(httpx2.AsyncClient(transport=transport, base_url="https://cluster"))
    with pytest.raises(Unreachable):
        run(kube.get(WORKLOADS, "w", "vision"))


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert WORKLOADS.path("team/../x", "a?b") == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team%2F..%2Fx/workloads/a%3Fb"


@pytest.mark.parametrize("kind", JOB_KINDS, ids=lambda kind: kind.kind)
def test_moving_a_job_of_any_kind_changes_its_queue_label_and_nothing_else(kind: JobKind) -> None:
    cluster = FakeCluster()
    resource = job_resource(kind.api_version, kind.kind)
    assert resource is not None
    before = cluster.put(resource, a_batch_job(kind=kind))
    run(cluster.kube().set_queue(resource, "vision", "job-1", "vision-burst-x"))
    after = cluster.get(resource, "job-1", "vision")
    assert after["metadata"]["labels"] == {QUEUE_LABEL: "vision-burst-x", "own": "x"}
    assert after["spec"] == before["spec"]


def test_a_job_is_found_in_the_version_its_owner_reference_names_and_an_unknown_kind_is_not() -> None:
    assert job_resource("jobset.x-k8s.io/v1beta1", "JobSet") == Resource("jobset.x-k8s.io/v1beta1", "jobsets")
    assert job_resource("v1", "Pod") is None
    assert job_resource("batch.evil.example/v1", "Job") is None


def test_a_queue_is_held_and_let_go() -> None:
    cluster = FakeCluster()
    cluster.put(LOCAL_QUEUES, {"metadata": {"name": "w", "namespace": "vision"}, "spec": {"clusterQueue": "vision"}})
    run(cluster.kube().hold_local_queue("vision", "w", True))
    assert cluster.get(LOCAL_QUEUES, "w", "vision")["spec"] == {"clusterQueue": "vision", "stopPolicy": "Hold"}
    run(cluster.kube().hold_local_queue("vision", "w", False))
    assert cluster.get(LOCAL_QUEUES, "w", "vision")["spec"]["stopPolicy"] == "None"


def test_entries_of_a_config_map_are_set_and_removed_and_the_others_stay() -> None:
    cluster = FakeCluster()
    cluster.put(CONFIG_MAPS, {"metadata": {"name": "c", "namespace": "vision", "labels": {"own": "x"}}})
    run(cluster.kube().patch_config_map("vision", "c", {"a": "1", "b": "2"}))
    run(cluster.kube().patch_config_map("vision", "c", {"a": None, "c": ""}))
    after = cluster.get(CONFIG_MAPS, "c", "vision")
    assert (after["data"], after["metadata"]["labels"]) == ({"b": "2", "c": ""}, {"own": "x"})


def test_lists_and_watches_select_by_namespace_label_and_field() -> None:
    cluster = FakeCluster()
    for namespace, name, team in (("a", "x", "red"), ("a", "y", "blue"), ("b", "x", "red")):
        cluster.put(PODS, {"metadata": {"namespace": namespace, "name": name, "labels": {"team": team}}})
    kube = cluster.kube()

    async def names(*args: Any) -> list[str]:
        return [item["metadata"]["name"] for item in await kube.list(PODS, *args)]

    async def story() -> None:
        assert await names("a") == ["x", "y"]
        assert await names(None, "team=red") == ["x", "x"]
        assert await names("a", "team", "metadata.name=y") == ["y"]
        seen = []

        async def follow() -> None:
            async for kind, raw in kube.watch(PODS, "0", 5, "a", "team=red"):
                seen.append((kind, raw["metadata"]["name"]))

        watching = asyncio.create_task(follow())
        await asyncio.sleep(1)
        cluster.change(PODS, "x", "b", lambda raw: raw["metadata"].update(annotations={"n": "1"}))
        cluster.change(PODS, "x", "a", lambda raw: raw["metadata"]["labels"].update(team="blue"))
        await watching
        assert seen == [("MODIFIED", "x"), ("DELETED", "x")]

    run(story())


def a_condition(status: str = "False") -> Raw:
    return {
        "type": VERDICT_CONDITION,
        "status": status,
        "reason": "Waiting",
        "message": "m",
        "lastTransitionTime": "2026-11-21T12:00:00Z",
    }


def test_the_condition_and_the_gates_answer_do_not_take_each_other_away() -> None:
    cluster = FakeCluster()
    cluster.put(WORKLOADS, check(reserve(a_workload()), "Pending", name="other"))
    kube = cluster.kube()

    async def story() -> None:
        await kube.write_condition("vision", "job-job-1", a_condition())
        version = cluster.get(WORKLOADS, "job-job-1", "vision")["metadata"]["resourceVersion"]
        await kube.answer_gate("vision", "job-job-1", check=GATE_NAME, message="m", resource_version=version, now=0)
        await kube.write_condition("vision", "job-job-1", a_condition("True"))

    run(story())
    status = cluster.get(WORKLOADS, "job-job-1", "vision")["status"]
    assert {entry["name"]: entry["state"] for entry in status["admissionChecks"]} == {
        GATE_NAME: "Ready",
        "other": "Pending",
    }
    conditions = {entry["type"]: entry["status"] for entry in status["conditions"]}
    assert conditions == {"QuotaReserved": "True", VERDICT_CONDITION: "True"}


def test_under_one_manager_the_condition_would_take_the_gates_answer_away() -> None:
    cluster = FakeCluster()
    stored = cluster.put(WORKLOADS, reserve(a_workload()))
    kube, version = cluster.kube(), stored["metadata"]["resourceVersion"]

    async def story() -> None:
        await kube.answer_gate("vision", "job-job-1", check=GATE_NAME, message="m", resource_version=version, now=0)
        await kube.apply(WORKLOADS, "vision", "job-job-1", {"conditions": [a_condition()]}, None)

    run(story())
    assert cluster.get(WORKLOADS, "job-job-1", "vision")["status"]["admissionChecks"] == []


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("1", 1.0), (" 7 ", 7.0), ("99999999999999", 60.0), (None, None), ("soon", None), ("-1", None), ("٣", None),
     ("Sat, 21 Nov 2026 12:00:00 GMT", None)],
)  # fmt: skip
def test_a_server_that_names_a_time_to_come_back_is_heard_but_not_for_ever(
    header: str | None, seconds: float | None
) -> None:
    headers = [] if header is None else [(b"retry-after", header.encode())]
    transport = httpx2.MockTransport(lambda request: httpx2.Response(429, json={}, headers=headers))
    kube = Kube(httpx2.AsyncClient(transport=transport, base_url="https://cluster"))
    with pytest.raises(Unreachable) as caught:
        run(kube.get(WORKLOADS, "w", "vision"))
    assert caught.value.retry_after == seconds


def test_the_gates_answer_leaves_other_checks_alone_and_refuses_a_stale_read() -> None:
    cluster = FakeCluster()
    stored = cluster.put(WORKLOADS, check(reserve(a_workload()), "Pending", name="other"))
    version = stored["metadata"]["resourceVersion"]

    async def answer() -> None:
        await cluster.kube().answer_gate(
            "vision", "job-job-1", check=GATE_NAME, message="m" * 40_000, resource_version=version, now=0
        )

    run(answer())
    states = {
        entry["name"]: entry for entry in cluster.get(WORKLOADS, "job-job-1", "vision")["status"]["admissionChecks"]
    }
    assert states[GATE_NAME]["state"] == "Ready"
    assert len(states[GATE_NAME]["message"]) == 32_768
    assert states["other"]["state"] == "Pending"
    with pytest.raises(Conflict):
        run(answer())


def test_a_workload_is_patched_in_one_request() -> None:
    cluster = FakeCluster()
    cluster.put(WORKLOADS, a_workload())
    kube = cluster.kube()
    after = run(kube.patch_workload("vision", "job-job-1", verdict="{}", active=False, queue="vision-burst-x"))
    assert after == cluster.get(WORKLOADS, "job-job-1", "vision")
    assert (after["spec"]["active"], after["spec"]["queueName"]) == (False, "vision-burst-x")
    assert after["metadata"]["annotations"] == {VERDICT_ANNOTATION: "{}"}
    assert len(cluster.writes()) == 1


def test_clearing_marks_takes_the_verdict_and_the_wish_for_a_recall_away_and_nothing_else() -> None:
    cluster = FakeCluster()
    raw = a_workload()
    raw["metadata"]["annotations"] = {VERDICT_ANNOTATION: "{}", RECALL_ANNOTATION: "maintenance", "own": "x"}
    cluster.put(WORKLOADS, raw)
    after = run(cluster.kube().patch_workload("vision", "job-job-1", clear_marks=True, active=True))
    assert after["metadata"]["annotations"] == {"own": "x"}


def test_the_check_becomes_active() -> None:
    cluster = FakeCluster()
    cluster.put(ADMISSION_CHECKS, {"metadata": {"name": GATE_NAME}, "spec": {}})
    run(cluster.kube().activate_check(GATE_NAME, 3, now=0))
    (active,) = cluster.get(ADMISSION_CHECKS, GATE_NAME)["status"]["conditions"]
    assert (active["type"], active["status"], active["observedGeneration"]) == ("Active", "True", 3)


def test_without_a_service_account_or_kubeconfig_the_message_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="set KUBECONFIG"):
        connect({"KUBECONFIG": str(tmp_path / "missing")})
    (tmp_path / "broken").write_text("clusters: 7")
    with pytest.raises(SettingsError, match="set KUBECONFIG"):
        connect({"KUBECONFIG": str(tmp_path / "broken")})


def test_a_service_account_token_that_goes_missing_counts_as_no_answer(tmp_path: Path) -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json={}))
    client = httpx2.AsyncClient(
        transport=transport, base_url="https://cluster", auth=BearerTokenFileAuth(str(tmp_path / "token"))
    )
    with pytest.raises(Unreachable, match="Token file"):
        run(Kube(client).get(WORKLOADS, "w", "vision"))
