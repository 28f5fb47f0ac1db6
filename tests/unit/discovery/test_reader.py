from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from infra.discovery.objects import ClusterObjects
from infra.discovery.reader import ClusterError, connect, read
from runtime.errors import Unreachable
from runtime.kube import Kube

Answer = Callable[[httpx2.Request], httpx2.Response]


def read_from(answer: Answer) -> ClusterObjects:
    async def read_all() -> ClusterObjects:
        client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer), base_url="http://cluster")
        async with Kube(client) as kube:
            return await read(kube)

    return asyncio.run(read_all())


def answering(items: dict[str, object], *, refused: str = "") -> Answer:
    """An API server with these collections; anything else is not installed."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if refused and path.endswith(refused):
            return httpx2.Response(403, json={"message": f"cannot list {refused}"})
        if path in items:
            return httpx2.Response(200, json=items[path])
        return httpx2.Response(404, json={"message": "the server could not find the requested resource"})

    return answer


def test_a_cluster_without_kueue_and_karpenter_is_only_nodes() -> None:
    found = read_from(answering({"/api/v1/nodes": {"items": [{"metadata": {"name": "a"}}]}}))
    assert len(found.nodes) == 1
    assert (found.cluster_queues, found.node_pools, found.agent_config, found.notes) == ((), (), None, ())


def test_every_page_is_read() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.path != "/api/v1/nodes":
            return httpx2.Response(404, json={})
        page = int(request.url.params.get("continue", "0"))
        more = {"continue": str(page + 1)} if page < 2 else {}
        return httpx2.Response(200, json={"metadata": more, "items": [{"metadata": {"name": f"n{page}"}}]})

    assert [node["metadata"]["name"] for node in read_from(answer).nodes] == ["n0", "n1", "n2"]


def test_an_older_kueue_is_read_by_its_own_version() -> None:
    old = {"/apis/kueue.x-k8s.io/v1beta1/clusterqueues": {"items": [{"metadata": {"name": "q"}}]}}
    assert len(read_from(answering({"/api/v1/nodes": {"items": []}, **old})).cluster_queues) == 1


def test_what_may_not_be_read_is_said_and_left_out() -> None:
    found = read_from(answering({"/api/v1/nodes": {"items": []}}, refused="clusterqueues"))
    assert found.notes == ("Not read, for want of rights: clusterqueues (kueue.x-k8s.io/v1beta2).",)


def test_without_nodes_there_is_nothing_to_find() -> None:
    with pytest.raises(ClusterError, match="ask for the right to list nodes"):
        read_from(answering({}, refused="nodes"))


def test_a_cluster_that_does_not_answer_is_an_error() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("refused", request=request)

    with pytest.raises(Unreachable):
        read_from(answer)


def test_the_agent_that_is_there_is_read() -> None:
    path = "namespaces/gpufleet-system"
    found = read_from(
        answering(
            {
                "/api/v1/nodes": {"items": []},
                f"/api/v1/{path}/configmaps/gpufleet-router": {"data": {"config.yaml": "x"}},
                f"/apis/apps/v1/{path}/deployments/gpufleet-router": {"spec": {"replicas": 2}},
            }
        )
    )
    assert (found.agent_config, found.agent_deployment) == ("x", {"spec": {"replicas": 2}})


def kubeconfig(path: Path, *contexts: str) -> Path:
    clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    users = [{"name": "u", "user": {"token": "not-shown"}}]
    named = [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in contexts]
    path.write_text(
        json.dumps({"clusters": clusters, "users": users, "contexts": named, "current-context": contexts[0]})
    )
    return path


def test_a_context_is_found_in_any_file_of_kubeconfig(tmp_path: Path) -> None:
    files = [kubeconfig(tmp_path / "a", "one"), kubeconfig(tmp_path / "b", "two", "three")]
    environment = {"KUBECONFIG": ":".join(map(str, files))}
    for asked, got in ((None, "one"), ("two", "two"), ("three", "three")):
        connection, name = connect(asked, environment)
        asyncio.run(connection.aclose())
        assert name == got


@pytest.mark.parametrize(
    "content", [None, "", "a: [", "[]", "contexts: 3", '{"clusters": [], "contexts": [], "users": []}']
)
def test_what_is_no_kubeconfig_is_said_without_its_content(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ClusterError, match=str(file)):
        connect("one", {"KUBECONFIG": str(file)})


def test_a_context_that_is_not_there_is_named_and_no_secret_is(tmp_path: Path) -> None:
    with pytest.raises(ClusterError) as error:
        connect("prod", {"KUBECONFIG": str(kubeconfig(tmp_path / "a", "one"))})
    assert "prod" in str(error.value)
    assert "not-shown" not in str(error.value)


def test_no_kubeconfig_at_all_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(
        ClusterError, match=r"no kubeconfig: KUBECONFIG is not set and ~/\.kube/config does not exist; set"
    ):
        connect(None, {})
