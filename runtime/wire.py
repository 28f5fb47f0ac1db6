"""What goes over the wire between us and the API server: answers, watch lines, and refusals as errors of our own tree.

It makes no request; runtime.kube does. Every error that leaves this module is a runtime.errors.KubeError.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2

from runtime.errors import Conflict, Expired, Forbidden, KubeError, NotFound, Rejected, Unreachable

Raw = dict[str, Any]
"""One object as the API server sent it."""


@asynccontextmanager
async def wrapped(doing: str, *also: type[Exception]) -> AsyncIterator[None]:
    """Turn whatever the connection raises, and `also` these, into Unreachable."""
    caught: tuple[type[Exception], ...] = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, *also)
    try:
        yield
    except caught as error:
        raise Unreachable(f"{doing}: {type(error).__name__}: {error}") from error


_BY_STATUS: Final[Mapping[int, type[KubeError]]] = {
    400: Rejected,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Rejected,
}


LONGEST_RETRY_AFTER_SECONDS: Final = 60.0
"""A server under load asks for one second; whatever asks for much more is a proxy with a page of its own."""


def raise_refusal(response: httpx2.Response, doing: str) -> None:
    """Raise the error of our tree that stands for an answer of 400 and above, with the server's reason."""
    try:
        message = str(to_object(response.content).get("message"))
    except Unreachable:
        message = response.reason_phrase
    text = f"{doing}: {response.status_code} {message}"
    kind = _BY_STATUS.get(response.status_code)
    if kind is None:
        raise Unreachable(text, _retry_after(response))
    raise kind(text)


def _retry_after(response: httpx2.Response) -> float | None:
    """The seconds of the header Retry-After; None for none, and for a date, which API servers do not send."""
    text = response.headers.get("retry-after", "").strip()
    return min(float(text[:9]), LONGEST_RETRY_AFTER_SECONDS) if text.isascii() and text.isdigit() else None


def to_object(content: bytes) -> Raw:
    """Read a JSON object; anything else is no answer of an API server."""
    try:
        value = json.loads(content)
    except ValueError as error:
        raise Unreachable(f"the answer is not JSON: {content[:80]!r}") from error
    if not isinstance(value, dict):
        raise Unreachable(f"the answer is not an object: {content[:80]!r}")
    return value


async def lines(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Split at newlines alone: text inside an object may hold other characters that count as line ends."""
    rest = bytearray()
    async for chunk in response.aiter_bytes():
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield bytes(rest) + chunk[start:end]
            rest.clear()
            start = end + 1
        rest += chunk[start:]


def to_event(line: bytes, doing: str) -> tuple[str, Raw]:
    """Read one line of a watch; an ERROR event is raised."""
    event = to_object(line)
    kind, value = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(value, dict):
        raise Unreachable(f"{doing}: not an event: {line[:80]!r}")
    if kind == "ERROR":
        code = value.get("code")
        error = _BY_STATUS.get(code, Unreachable) if isinstance(code, int) else Unreachable
        raise error(f"{doing}: {code} {value.get('message')}")
    return kind, value
