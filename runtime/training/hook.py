"""A tiny HTTP server in the pod: `POST` a request, and the answer comes when the save is done; `GET /metrics`.

It has no authentication, because it can do nothing but ask for a save: a NetworkPolicy decides who may reach it. It
takes few requests at a time, small ones, and none that come slowly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from .errors import BadRequest
from .inbox import Inbox
from .messages import MAX_REQUEST_BYTES, parse_request

MAX_AT_ONCE: Final = 8
"""The agent needs one connection; the rest is for a scrape and a retry."""

SOCKET_SECONDS: Final = 5.0
_CLOSE_SECONDS: Final = 0.05
"""How often the server looks whether it should end: what it may cost a process that was told to stop."""

FAREWELL_SECONDS: Final = 1.0
"""What a client that reads slowly may take of the time that is left to a process that was told to stop."""

MAX_WAIT_SECONDS: Final = 600.0
"""As long as the agent waits. Its deadline is not looked at here: the clocks of two machines may differ."""


class Hook:
    """The server, in threads of its own. `port` 0 takes a free one; `address` says which."""

    def __init__(self, inbox: Inbox, metrics: Callable[[], str], port: int) -> None:
        self._server = _Server(inbox, metrics, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_CLOSE_SECONDS,), name="checkpoint-hook", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop listening, and let answers that are on their way arrive."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server.farewell()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 4 * MAX_AT_ONCE
    block_on_close = False

    def __init__(self, inbox: Inbox, metrics: Callable[[], str], port: int) -> None:
        super().__init__(("", port), _Handler)
        self.inbox = inbox
        self.metrics = metrics
        self._room = threading.BoundedSemaphore(MAX_AT_ONCE)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Take a connection, or close it where there are too many."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def farewell(self) -> None:
        """Wait until nobody is being answered any more, but not for long."""
        until = time.monotonic() + FAREWELL_SECONDS
        for _ in range(MAX_AT_ONCE):
            self._room.acquire(timeout=max(0.0, until - time.monotonic()))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that went away is no news."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = SOCKET_SECONDS

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self._reply(200, self.server.metrics(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            self._reply(404, "GET /metrics, or POST a request to save\n")

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 9 or int(length) > MAX_REQUEST_BYTES:
            self.close_connection = True
            self._reply(413, f"a request needs a Content-Length of at most {MAX_REQUEST_BYTES}\n")
            return
        try:
            request = parse_request(self.rfile.read(int(length)))
        except BadRequest as error:
            self._reply(400, f"{error}\n")
            return
        answer = self.server.inbox.wait(request, MAX_WAIT_SECONDS)
        if answer is None:
            self._reply(503, "not saved: the save failed, or no step has ended in time\n")
        else:
            self._reply(200, answer.to_json(), "application/json")

    def _reply(self, code: int, text: str, kind: str = "text/plain; charset=utf-8") -> None:
        body = text.encode()
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: a scrape every few seconds is no news."""
