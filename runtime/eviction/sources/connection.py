"""One kept-alive HTTP connection to one server, for one thread: small requests, small answers.

It follows no redirect and uses no proxy, because neither a metadata service nor the API server has one.

Invariants: an answer is read whole or refused, so no more than a bound is held; every failure is a SourceDown that
names the URL.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from runtime.eviction.sources import SourceDown

LONGEST_BODY: Final = 65_536
"""Scheduled events of a large scale set take a few KiB; more than this is not an answer to what was asked."""

TIMEOUT_SECONDS: Final = 2.0
"""A metadata service answers from the host itself, within milliseconds."""


class Response(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def text(self) -> str:
        """The body as text; what is not UTF-8 is marked, and then fits no form that is looked for."""
        return self.body.decode("utf-8", "replace")


class Connection:
    """Opened at the first request, and again after every failure."""

    _open: http.client.HTTPConnection | None = None

    def __init__(
        self, base_url: str, longest_body: int = LONGEST_BODY, trust: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        """Take `http://host[:port][/prefix]` or https; `trust` is asked for each new connection of https.

        Raises:
            ValueError: when it is no such URL, or carries a user and password.
        """
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"URL {base_url!r}: must start with http:// or https:// and name a host")
        if parts.username is not None or parts.password is not None:
            raise ValueError(f"URL with a user or password before {parts.hostname}: must carry neither; it is logged")
        self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        self._longest_body, self._trust = longest_body, trust
        self._prefix = parts.path.rstrip("/")
        self._root = f"{parts.scheme}://{parts.netloc}"

    def request(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Response:
        """Ask; once more on a new connection where the server had closed the old one in between.

        Raises:
            SourceDown: when there is no answer, or one that is too long.
        """
        reused = self._open is not None
        try:
            return self._ask(method, path, headers or {}, body, timeout)
        except (ConnectionError, http.client.BadStatusLine) as error:
            self.close()
            if not reused:
                raise self._down(method, path, error) from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise self._down(method, path, error) from error
        try:
            return self._ask(method, path, headers or {}, body, timeout)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise self._down(method, path, error) from error

    def close(self) -> None:
        """Close it; the next request opens a new one."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def __del__(self) -> None:
        """Leave no descriptor behind."""
        self.close()

    def _ask(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None, timeout: float) -> Response:
        connection = self._open = self._open or self._connect(timeout)
        connection.timeout = timeout
        if connection.sock is not None:
            connection.sock.settimeout(timeout)
        connection.request(method, self._prefix + path, body=body, headers=dict(headers))
        with connection.getresponse() as response:
            content = response.read(self._longest_body + 1)
            if len(content) > self._longest_body:
                raise ValueError(f"the answer is longer than {self._longest_body} bytes")
            found = {name.lower(): value for name, value in response.getheaders()}
            if response.will_close:
                self.close()
            return Response(response.status, found, content)

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout)
        context = self._trust() if self._trust else None
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=context)

    def _down(self, method: str, path: str, error: Exception) -> SourceDown:
        reason = str(error) or type(error).__name__
        return SourceDown(f"{method} {self._root}{self._prefix}{path}: {reason}")
