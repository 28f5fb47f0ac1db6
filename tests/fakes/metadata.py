"""A metadata service on loopback that plays AWS, GCP, Azure and a broker, as truthfully as their documents say.

It speaks IMDSv2 with tokens that expire, may keep the answer to PUT as a hop limit would, holds GCP's requests until a
value changes, and refuses acknowledgements as told. What is not there is a 404, as in the originals.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "/latest/api/token"
LONGEST_TOKEN_SECONDS = 21_600
AWS = "/latest/meta-data/"
SPOT = f"{AWS}spot/instance-action"
REBALANCE = f"{AWS}events/recommendations/rebalance"
SCHEDULED = f"{AWS}events/maintenance/scheduled"
LIFECYCLE = f"{AWS}autoscaling/target-lifecycle-state"
GCP = "/computeMetadata/v1/instance/"
EVENTS = "/metadata/scheduledevents"
VM_NAME = "/metadata/instance/compute/name"
BROKER = "/broker"


@dataclass
class FakeMetadata:
    """Use as a context manager; change the fields at any time, GCP's through `set_gcp`."""

    aws: dict[str, str] = field(default_factory=dict)
    aws_status: int = 200
    token_status: int = 200
    token_seconds: int = LONGEST_TOKEN_SECONDS
    tokens_work: bool = True
    hop_limited: bool = False
    gcp: dict[str, str] = field(default_factory=lambda: {"preempted": "FALSE", "maintenance-event": "NONE"})
    gcp_flavor: str = "Google"
    events: list[dict[str, Any]] = field(default_factory=list)
    events_text: str | None = None
    vm: str = "gpu-vm-1"
    acknowledge_status: int = 200
    acknowledged: list[str] = field(default_factory=list)
    broker: bytes | None = None
    broker_status: int = 200
    requests: list[str] = field(default_factory=list)
    connections: int = 0
    tokens: set[str] = field(default_factory=set)
    changed: threading.Condition = field(default_factory=threading.Condition)
    stopping: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> FakeMetadata:
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        with self.changed:
            self.changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def expire_tokens(self) -> None:
        """As after six hours, or when the service starts anew."""
        self.tokens.clear()

    def set_gcp(self, key: str, value: str) -> None:
        with self.changed:
            self.gcp[key] = value
            self.changed.notify_all()

    def count(self, request: str) -> int:
        return sum(seen.partition("?")[0] == request for seen in self.requests)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: object) -> None:
        """A client that left."""


def _handler(fake: FakeMetadata) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            fake.connections += 1

        def log_message(self, *_: object) -> None:
            """Nothing."""

        def do_PUT(self) -> None:
            fake.requests.append(f"PUT {self.path}")
            if fake.hop_limited:
                fake.stopping.wait(10)
                return
            seconds = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "")
            if self.path != TOKEN or not (seconds.isdecimal() and 0 < int(seconds) <= LONGEST_TOKEN_SECONDS):
                self._send(400, "")
            elif fake.token_status != 200:
                self._send(fake.token_status, "<html>not here</html>")
            else:
                token = uuid.uuid4().hex
                fake.tokens.add(token)
                self._send(200, token, {"X-Aws-Ec2-Metadata-Token-Ttl-Seconds": str(fake.token_seconds)})

        def do_GET(self) -> None:
            fake.requests.append(f"GET {self.path}")
            parts = urlsplit(self.path)
            if parts.path.startswith("/latest/"):
                self._aws(parts.path)
            elif parts.path.startswith(GCP):
                self._gcp(parts.path.removeprefix(GCP), parse_qs(parts.query))
            elif parts.path.startswith("/metadata/"):
                self._azure(parts.path)
            elif parts.path == BROKER and fake.broker is not None:
                self._send_bytes(fake.broker_status, fake.broker, {})
            else:
                self._send(404, "<html>404 - Not Found</html>")

        def do_POST(self) -> None:
            fake.requests.append(f"POST {self.path}")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if fake.acknowledge_status == 200:
                fake.acknowledged += [request["EventId"] for request in body["StartRequests"]]
            self._send(fake.acknowledge_status, "")

        def _aws(self, path: str) -> None:
            token = self.headers.get("X-aws-ec2-metadata-token")
            if token not in fake.tokens or not fake.tokens_work:
                self._send(401, "")
            elif fake.aws_status != 200:
                self._send(fake.aws_status, "")
            elif path in fake.aws:
                self._send(200, fake.aws[path])
            else:
                self._send(404, "<html>404 - Not Found</html>")

        def _gcp(self, key: str, query: dict[str, list[str]]) -> None:
            if self.headers.get("Metadata-Flavor") != "Google":
                self._send(403, "Missing Metadata-Flavor")
                return
            if query.get("wait_for_change") == ["true"]:
                ends_at = time.monotonic() + float(query["timeout_sec"][0])
                with fake.changed:
                    while [_etag(fake.gcp.get(key))] == query["last_etag"] and not fake.stopping.is_set():
                        if not fake.changed.wait(max(0.0, ends_at - time.monotonic())):
                            break
            value = fake.gcp.get(key)
            headers = {"Metadata-Flavor": fake.gcp_flavor, "ETag": _etag(value)} if fake.gcp_flavor else {}
            self._send(404 if value is None else 200, value or "", headers)

        def _azure(self, path: str) -> None:
            if self.headers.get("Metadata") != "true":
                self._send(400, "Required metadata header not specified")
            elif path == VM_NAME:
                self._send(200, fake.vm)
            elif path == EVENTS:
                self._send(200, fake.events_text or json.dumps({"DocumentIncarnation": 1, "Events": fake.events}))
            else:
                self._send(404, "")

        def _send(self, status: int, text: str, headers: dict[str, str] | None = None) -> None:
            self._send_bytes(status, text.encode(), headers or {})

        def _send_bytes(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self._headers_buffer.append(b"\r\n" + body)  # type: ignore[attr-defined]  # one write, so one packet
            self.flush_headers()

    return Handler


def _etag(value: str | None) -> str:
    return f"{hash(value) & 0xFFFFFFFF:08x}"
