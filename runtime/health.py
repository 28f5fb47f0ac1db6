"""Answers /healthz, /readyz and /metrics over plain HTTP, from the agent's own event loop.

It runs on the loop on purpose: a loop that hangs does not answer, and is restarted. It serves nothing else and reads no
more of a request than its first line and headers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

Check = Callable[[], str | None]
"""None when all is well, else what is not, in one line."""

_REQUEST_LIMIT: Final = 8_192
_REQUEST_SECONDS: Final = 5.0
_TEXT: Final = "text/plain; charset=utf-8"


async def serve(bind: str, port: int, *, healthy: Check, ready: Check) -> asyncio.Server:
    """Start answering; port 0 picks a free one.

    Raises:
        OSError: when the port is taken.
    """
    checks = {"/healthz": healthy, "/readyz": ready}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                request = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(request, checks))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, ConnectionError):
            pass  # A client that does not speak, or leaves, gets no answer.
        finally:
            writer.close()

    return await asyncio.start_server(answer, bind, port, limit=_REQUEST_LIMIT)


def _response(request: bytes, checks: dict[str, Check]) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    if method not in (b"GET", b"HEAD"):
        status, kind, body = HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET\n"
    elif path == "/metrics":
        status, kind, body = HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest()
    elif path in checks:
        problem = checks[path]()
        status = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        kind, body = _TEXT, f"{problem or 'ok'}\n".encode()
    else:
        status, kind, body = HTTPStatus.NOT_FOUND, _TEXT, b"/healthz, /readyz or /metrics\n"
    head = f"HTTP/1.1 {status} {status.phrase}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + (b"" if method == b"HEAD" else body)
