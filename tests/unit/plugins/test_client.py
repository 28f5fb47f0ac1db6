from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from infra.local.plugins.kubernetes import client as client_module
from infra.local.plugins.kubernetes.client import KubeClient
from infra.local.plugins.kubernetes.discovery import Discovery
from infra.local.plugins.kubernetes.errors import Cancelled, ServerRefused, ServerUnreachable
from infra.local.plugins.kubernetes.kubeconfig import Cluster

Reply = tuple[int, Any]


class Server:
    """An HTTP server that gives prepared replies, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.reply: Callable[[str], Reply] = lambda path: (200, {})
        self.hang_up = False
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.asked.append(self.path)
                status, body = outer.reply(self.path)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                self.close_connection = outer.hang_up

            def log_message(self, format: str, *arguments: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.http.shutdown()
    server.http.server_close()
    thread.join()


@pytest.fixture
def client(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeClient]:
    monkeypatch.setattr(client_module, "FIRST_DELAY_SECONDS", 0.001)
    monkeypatch.setattr(client_module, "UNREACHABLE_SECONDS", 0.05)
    client = KubeClient(Cluster(f"http://127.0.0.1:{server.http.server_port}", "default", None, lambda: None))
    yield client
    client.close()


def refusal(status: int, **fields: Any) -> Reply:
    return status, {"kind": "Status", "status": "Failure", **fields}


class EndedConnection(http.client.HTTPConnection):
    """A kept TLS connection that the server has ended meanwhile."""

    def request(self, *_: Any, **__: Any) -> None:
        raise ssl.SSLEOFError(8, "EOF occurred in violation of protocol")


def test_a_kept_tls_connection_that_the_server_ended_is_replaced(server: Server, client: KubeClient) -> None:
    client._idle.append(EndedConnection("127.0.0.1"))
    assert client.request("GET", "/api").status == 200
    assert server.asked == ["/api"]


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(server: Server, client: KubeClient) -> None:
    server.hang_up = True
    for _ in range(3):
        assert client.request("GET", "/api").body == {}
    assert len(server.asked) == 3


def test_a_stale_write_is_sent_again(server: Server, client: KubeClient) -> None:
    replies = iter([refusal(409, reason="Conflict"), refusal(409, reason="Conflict"), (200, {"done": True})])
    server.reply = lambda path: next(replies)
    assert client.request("GET", "/x").body == {"done": True}


def test_an_ownership_conflict_is_not_sent_again(server: Server, client: KubeClient) -> None:
    causes = [{"reason": "FieldManagerConflict", "field": ".spec.x", "message": 'conflict with "kubectl"'}]
    server.reply = lambda path: refusal(409, reason="Conflict", details={"causes": causes})
    with pytest.raises(ServerRefused) as caught:
        client.request("GET", "/x")
    assert caught.value.ownership_conflicts == ['.spec.x: conflict with "kubectl"']
    assert len(server.asked) == 1


def test_a_busy_server_is_asked_again(server: Server, client: KubeClient) -> None:
    replies = iter([refusal(429), refusal(503), (200, {"done": True})])
    server.reply = lambda path: next(replies)
    assert client.request("GET", "/x").body == {"done": True}


@pytest.mark.parametrize("body", [b"", b"<html>proxy error</html>", b"[1]", b"null"])
def test_an_error_that_is_no_status_object_is_still_an_error(server: Server, client: KubeClient, body: bytes) -> None:
    server.reply = lambda path: (500, body)
    with pytest.raises(ServerRefused) as caught:
        client.request("GET", "/x")
    assert caught.value.status == 500
    assert str(caught.value)


def test_an_absent_server_is_given_up_once_and_not_waited_for_again(server: Server, client: KubeClient) -> None:
    server.http.socket.close()
    for _ in range(2):
        with pytest.raises(ServerUnreachable, match=r"no answer from the Kubernetes API server at http://127\.0\.0\.1"):
            client.request("GET", "/x")
    assert client._gave_up


def test_nothing_is_sent_after_a_cancel(server: Server, client: KubeClient) -> None:
    client.cancel()
    with pytest.raises(Cancelled):
        client.request("GET", "/x")
    assert server.asked == []


def test_a_kind_is_looked_up_once_and_an_absent_one_not_for_every_object(server: Server, client: KubeClient) -> None:
    resources = [
        {"name": "configmaps", "kind": "ConfigMap", "namespaced": True},
        {"name": "nodes", "kind": "Node", "namespaced": False},
        {"name": "nodes/status", "kind": "Node", "namespaced": False},
    ]
    server.reply = lambda path: (200, {"resources": resources}) if path == "/api/v1" else refusal(404)
    discovery = Discovery(client)
    for _ in range(50):
        config_maps, nodes = discovery.find("v1", "ConfigMap"), discovery.find("v1", "Node")
        assert discovery.find("tests.invalid/v1", "Rack") is None
    assert config_maps is not None
    assert config_maps.collection("team") == "/api/v1/namespaces/team/configmaps"
    assert nodes is not None
    assert nodes.collection(None) == "/api/v1/nodes"
    assert server.asked == ["/api/v1", "/apis/tests.invalid/v1"]
