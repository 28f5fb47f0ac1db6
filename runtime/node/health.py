"""Answers /healthz and /metrics of a node agent over plain HTTP, in the text form of Prometheus.

Healthy means that every thread lives and the desk works. A metadata service or an API server that is away is no reason
to start anew, which would help nothing and forget when a notice was first seen; the metrics show it.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from runtime.node.desk import RESYNC_SECONDS, Desk
from runtime.node.watcher import Watcher

log = logging.getLogger("runtime.node")

_REQUEST_LIMIT: Final = 4_096
_REQUEST_SECONDS: Final = 2.0
_STUCK_SECONDS: Final = RESYNC_SECONDS + 60.0  # a request to the API server takes seconds
_PAGE_KIB: Final = 4


def serve(bind: str, port: int, pages: dict[str, Callable[[], tuple[int, str]]]) -> int:
    """Answer from a thread of its own, one request after the other; returns the port.

    An empty `bind` is every address of the host, of both families where it has them.

    Raises:
        OSError: when the port is taken.
    """
    listener = _listener(bind, port)
    threading.Thread(target=_answer_all, args=(listener, pages), name="health", daemon=True).start()
    return int(listener.getsockname()[1])


def pages(desk: Desk, watchers: Sequence[Watcher]) -> dict[str, Callable[[], tuple[int, str]]]:
    """What is served: status and text of each path."""

    def healthz() -> tuple[int, str]:
        problem = unhealthy(desk, watchers)
        return (503, f"{problem}\n") if problem else (200, "ok\n")

    return {"/healthz": healthz, "/metrics": lambda: (200, "".join(metrics(desk, watchers)))}


def unhealthy(desk: Desk, watchers: Sequence[Watcher], monotonic: Callable[[], float] = time.monotonic) -> str | None:
    """What is wrong, in one line."""
    dead = [watcher.name for watcher in watchers if not watcher.is_alive()]
    if dead:
        return f"nobody reads {', '.join(dead)}"
    idle = monotonic() - desk.worked_at
    return f"the desk has not worked for {idle:.0f} s" if idle > _STUCK_SECONDS else None


def metrics(desk: Desk, watchers: Sequence[Watcher]) -> Iterator[str]:
    """Every metric as text."""
    yield from _metric(
        "source_up",
        "gauge",
        "Whether a source answered at its last reading.",
        ((f'{{source="{watcher.name}"}}', float(bool(watcher.up))) for watcher in watchers),
    )
    yield from _metric(
        "source_reads_total",
        "counter",
        "Readings of a source.",
        ((f'{{source="{watcher.name}"}}', float(watcher.reads)) for watcher in watchers),
    )
    yield from _metric(
        "source_failures_total",
        "counter",
        "Readings without an answer that could be used.",
        ((f'{{source="{watcher.name}"}}', float(watcher.failures)) for watcher in watchers),
    )
    yield from _metric(
        "source_answered_timestamp_seconds",
        "gauge",
        "When a source answered last.",
        ((f'{{source="{watcher.name}"}}', watcher.answered_at) for watcher in watchers if watcher.answered_at),
    )
    kinds = [notice.kind.value for notice in desk.standing]
    yield from _metric(
        "notices",
        "gauge",
        "Notices that stand on the Node.",
        ((f'{{kind="{kind}"}}', float(kinds.count(kind))) for kind in sorted(set(kinds))),
    )
    yield from _metric("writes_total", "counter", "Changes of the Node.", [("", float(desk.writes))])
    yield from _metric("write_failures_total", "counter", "Attempts that failed.", [("", float(desk.failures))])
    if desk.last_delay_seconds is not None:
        text = "From the last change of what sources say until the Node said it."
        yield from _metric("write_delay_seconds", "gauge", text, [("", desk.last_delay_seconds)])
    yield from _metric("resident_memory_bytes", "gauge", "Memory of this process.", [("", float(resident_bytes()))])


def resident_bytes() -> int:
    """Memory of this process, as the kernel counts it; 0 where it does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_KIB * 1_024
    except (OSError, ValueError, IndexError):
        return 0


def _metric(
    name: str, kind: str, text: str, values: Iterator[tuple[str, float]] | list[tuple[str, float]]
) -> Iterator[str]:
    full = f"gpufleet_node_{name}"
    yield f"# HELP {full} {text}\n# TYPE {full} {kind}\n"
    for labels, value in values:
        yield f"{full}{labels} {value:.17g}\n"


def _listener(bind: str, port: int) -> socket.socket:
    if not bind and socket.has_dualstack_ipv6():
        return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    return socket.create_server((bind, port), family=family)


def _answer_all(listener: socket.socket, pages: dict[str, Callable[[], tuple[int, str]]]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
            with connection:
                connection.settimeout(_REQUEST_SECONDS)
                connection.sendall(_response(connection.recv(_REQUEST_LIMIT), pages))
        except OSError:
            time.sleep(0.01)  # a client that left or does not speak; or, rarely, no descriptor is free


def _response(request: bytes, pages: dict[str, Callable[[], tuple[int, str]]]) -> bytes:
    method, _, rest = request.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0].decode("latin-1")
    if method not in (b"GET", b"HEAD"):
        status, text = 405, "only GET\n"
    elif path in pages:
        status, text = pages[path]()
    else:
        status, text = 404, f"{' or '.join(pages)}\n"
    body = text.encode()
    kind = "text/plain; version=0.0.4; charset=utf-8"
    head = f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + (b"" if method == b"HEAD" else body)
