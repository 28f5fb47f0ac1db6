"""An API server on loopback with one Node: enough to read it, and to patch it by a merge patch.

It refuses stale versions with 409, keeps the taints of others by their keys, and may be away. It is a real server, where
tests.fakes.cluster is not, because the node agent has a client of its own.
"""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Raw = dict[str, Any]


def new_node(name: str = "gpu-1") -> Raw:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "resourceVersion": "1", "annotations": {}, "labels": {}},
        "spec": {"providerID": "aws:///eu-1a/i-1"},
        "status": {},
    }


@dataclass
class NodeServer:
    """Use as a context manager; `before_patch` plays others who write in between, `answers` and `page` what
    goes wrong."""

    node: Raw = field(default_factory=new_node)
    token: str = "secret"
    away: bool = False
    answers: list[int] = field(default_factory=list)
    page: str = ""
    before_patch: Callable[[], None] = lambda: None
    patches: list[Raw] = field(default_factory=list)
    gets: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __enter__(self) -> NodeServer:
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def annotations(self) -> Raw:
        return dict(self.node["metadata"].get("annotations") or {})

    @property
    def taints(self) -> list[Raw]:
        return list(self.node["spec"].get("taints") or [])

    @property
    def cordoned(self) -> bool:
        return bool(self.node["spec"].get("unschedulable"))

    def edit(self, change: Callable[[Raw], object]) -> None:
        """Write the Node as somebody else."""
        with self.lock:
            change(self.node)
            self._bump()

    def merge(self, patch: Raw) -> int:
        with self.lock:
            metadata = patch.get("metadata", {})
            if metadata.get("resourceVersion") not in (None, self.node["metadata"]["resourceVersion"]):
                return 409
            self.patches.append(copy.deepcopy(patch))
            annotations = self.annotations
            for key, value in metadata.get("annotations", {}).items():
                annotations.pop(key, None) if value is None else annotations.__setitem__(key, value)
            self.node["metadata"]["annotations"] = annotations
            for key, value in patch.get("spec", {}).items():
                self.node["spec"].pop(key, None) if value is None else self.node["spec"].__setitem__(key, value)
            self._bump()
            return 200

    def merge_status(self, patch: Raw) -> int:
        """Strategic: conditions are told apart by their types."""
        with self.lock:
            self.patches.append(copy.deepcopy(patch))
            conditions = {entry["type"]: entry for entry in self.node["status"].get("conditions", [])}
            for entry in patch["status"]["conditions"]:
                conditions[entry["type"]] = conditions.get(entry["type"], {}) | entry
            self.node["status"]["conditions"] = list(conditions.values())
            self._bump()
            return 200

    def condition(self, kind: str) -> Raw:
        return next((dict(entry) for entry in self.node["status"].get("conditions", []) if entry["type"] == kind), {})

    def _bump(self) -> None:
        metadata = self.node["metadata"]
        metadata["resourceVersion"] = str(int(metadata["resourceVersion"]) + 1)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """A client that left."""


def _handler(server: NodeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            server.gets += 1
            self._answer(lambda: 200)

        def do_PATCH(self) -> None:
            patch = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            of_status = self.path.endswith("/status")
            kind = "strategic-merge-patch" if of_status else "merge-patch"
            assert self.headers["Content-Type"] == f"application/{kind}+json"
            if not server.away:
                server.before_patch()
            self._answer(lambda: server.merge_status(patch) if of_status else server.merge(patch))

        def _answer(self, act: Callable[[], int]) -> None:
            if server.away:
                self.close_connection = True
                return
            name = server.node["metadata"]["name"]
            if self.headers["Authorization"] != f"Bearer {server.token}":
                status = 401
            elif self.path.removesuffix("/status") != f"/api/v1/nodes/{name}":
                status = 404
            else:
                status = server.answers.pop(0) if server.answers else act()
            with server.lock:
                body = server.page or json.dumps(
                    server.node if status == 200 else {"kind": "Status", "message": f"said {status}"}
                )
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self._headers_buffer.append(b"\r\n" + body.encode())  # type: ignore[attr-defined]  # one packet
            self.flush_headers()

    return Handler
