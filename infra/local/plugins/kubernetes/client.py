"""HTTP with one API server: kept-alive connections, bounded retries, errors that name the server.

It knows paths and status codes, not Kubernetes kinds. The standard library is used because this is measured to be
enough (a process starts 60–110 ms sooner than with an HTTP package, and `up` sends a thousand small requests to one
host). Invariants: only requests that may be sent twice are sent (reads, server-side applies, deletes), so every
retry is safe; no wait survives `cancel`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode, urlsplit

from infra.local.plugins.kubernetes.errors import Cancelled, ServerRefused, ServerUnreachable
from infra.local.plugins.kubernetes.kubeconfig import Cluster

JSON = "application/json"

# The API server gives an admission webhook at most 30 s (timeoutSeconds); a mutating and a validating one may follow.
ANSWER_SECONDS = 65.0

# A control plane that is being started answers within 3 s (measured); longer is a mistake the user should hear about.
UNREACHABLE_SECONDS = 4.0
BUSY_SECONDS = 30.0
FIRST_DELAY_SECONDS = 0.1
LONGEST_DELAY_SECONDS = 2.0
STALE_WRITE_ATTEMPTS = 8

_BUSY = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT})
# The API server closes connections that were idle for 90 s; over TLS that shows as an unexpected end.
_DROPPED = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, ssl.SSLEOFError)


@dataclass(frozen=True)
class Answer:
    """A successful answer; `status` tells created (201) from changed (200)."""

    status: int
    body: dict[str, Any]


@dataclass(frozen=True)
class _Request:
    method: str
    target: str
    body: bytes | None
    headers: Mapping[str, str]


class KubeClient:
    """Requests to one cluster, from any number of threads."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.cancelled = threading.Event()
        self._idle: list[http.client.HTTPConnection] = []
        self._watches: set[socket.socket] = set()
        self._gave_up = False

    def find(self, path: str) -> Mapping[str, Any] | None:
        """The object at a path, or None."""
        try:
            return self.request("GET", path).body
        except ServerRefused as refusal:
            if refusal.is_missing:
                return None
            raise

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> Answer:
        """Send one request and return its answer.

        Raises:
            ServerUnreachable: nobody answers.
            ServerRefused: the server answers with an error.
            Cancelled: `cancel` was called.
        """
        request = self._request(method, path, body, query, content_type)
        stale_writes = 0
        patience = _Patience(self.cancelled, BUSY_SECONDS)
        while True:
            status, headers, data = self._send_until_answered(request)
            if status < HTTPStatus.BAD_REQUEST:
                return Answer(status, json.loads(data) if data else {})
            refusal = ServerRefused(status, _status_body(data))
            stale_writes += refusal.is_stale_write
            if status not in _BUSY and not (refusal.is_stale_write and stale_writes < STALE_WRITE_ATTEMPTS):
                raise refusal
            if not patience.wait(float(headers.get("Retry-After") or 0)):
                raise refusal

    def watch(self, path: str, query: Mapping[str, str], *, seconds: int) -> Iterator[dict[str, Any]]:
        """The events of one watch, until the server ends it after `seconds` or the iterator is closed."""
        request = self._request("GET", path, None, {**query, "watch": "1", "timeoutSeconds": str(seconds)}, JSON)
        connection = self._connection(timeout=seconds + ANSWER_SECONDS)
        try:
            connection.connect()
            watched = connection.sock
            self._watches.add(watched)
            try:
                connection.request(request.method, request.target, headers=dict(request.headers))
                response = connection.getresponse()
                if response.status >= HTTPStatus.BAD_REQUEST:
                    raise ServerRefused(response.status, _status_body(response.read()))
                while line := response.readline():
                    yield json.loads(line)
            finally:
                self._watches.discard(watched)
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            self._check_cancelled()
            raise ServerUnreachable(self._unreachable(error)) from None
        finally:
            connection.close()

    def cancel(self) -> None:
        """End every wait and every watch now; requests under way still get their answer."""
        self.cancelled.set()
        for watched in tuple(self._watches):
            with contextlib.suppress(OSError):
                socket.socket.shutdown(watched, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connections that are kept for later requests."""
        while self._idle:
            self._idle.pop().close()

    def _request(
        self, method: str, path: str, body: Mapping[str, Any] | None, query: Mapping[str, str] | None, content_type: str
    ) -> _Request:
        headers = {"Accept": JSON, "User-Agent": "gpufleet-pulumi"}
        if token := self.cluster.token():
            headers["Authorization"] = f"Bearer {token}"
        data = None
        if body is not None:
            data = json.dumps(body, separators=(",", ":")).encode()
            headers["Content-Type"] = content_type
        target = urlsplit(self.cluster.server).path + path + (f"?{urlencode(query)}" if query else "")
        return _Request(method, target, data, headers)

    def _send_until_answered(self, request: _Request) -> tuple[int, Mapping[str, str], bytes]:
        patience = _Patience(self.cancelled, 0 if self._gave_up else UNREACHABLE_SECONDS)
        while True:
            self._check_cancelled()
            try:
                answer = self._send(request)
            except (TimeoutError, ssl.SSLError) as error:
                raise ServerUnreachable(self._unreachable(error)) from None
            except (OSError, http.client.HTTPException) as error:
                if not patience.wait():
                    self._gave_up = True
                    raise ServerUnreachable(self._unreachable(error)) from None
            else:
                self._gave_up = False
                return answer

    def _send(self, request: _Request) -> tuple[int, Mapping[str, str], bytes]:
        """One exchange; a kept-alive connection that the server has closed meanwhile is replaced once."""
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._exchange(self._connection(ANSWER_SECONDS), request)
        try:
            return self._exchange(connection, request)
        except _DROPPED:
            return self._exchange(self._connection(ANSWER_SECONDS), request)

    def _exchange(
        self, connection: http.client.HTTPConnection, request: _Request
    ) -> tuple[int, Mapping[str, str], bytes]:
        try:
            connection.request(request.method, request.target, request.body, dict(request.headers))
            response = connection.getresponse()
            data = response.read()
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return response.status, dict(response.headers), data

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        server = urlsplit(self.cluster.server)
        host = server.hostname or ""
        if self.cluster.tls is None:
            return http.client.HTTPConnection(host, server.port, timeout=timeout)
        return http.client.HTTPSConnection(host, server.port, timeout=timeout, context=self.cluster.tls)

    def _check_cancelled(self) -> None:
        if self.cancelled.is_set():
            raise Cancelled("cancelled")

    def _unreachable(self, error: Exception) -> str:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return (
            f"no answer from the Kubernetes API server at {self.cluster.server}: {reason}. "
            "Is the control plane running, and is this the right kubeconfig?"
        )


class _Patience:
    """Waits that grow from one to the next and end for good after a while."""

    def __init__(self, cancelled: threading.Event, seconds: float) -> None:
        self._cancelled = cancelled
        self._deadline = time.monotonic() + seconds
        self._delay = FIRST_DELAY_SECONDS

    def wait(self, at_least_seconds: float = 0.0) -> bool:
        """Wait a little; False when there is no time left for another attempt."""
        delay = max(self._delay, at_least_seconds)
        if time.monotonic() + delay > self._deadline:
            return False
        self._delay = min(self._delay * 2, LONGEST_DELAY_SECONDS)
        if self._cancelled.wait(delay):
            raise Cancelled("cancelled")
        return True


def _status_body(data: bytes) -> Mapping[str, Any]:
    """The server's `Status` object; a proxy in front of it may answer with anything else."""
    try:
        body = json.loads(data)
    except ValueError:
        return {"message": data[:500].decode("utf-8", "replace").strip()}
    return body if isinstance(body, dict) else {"message": str(body)[:500]}
