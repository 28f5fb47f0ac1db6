"""`python -m runtime.node`: start the node agent; SIGTERM and SIGINT end it at once.

Nothing is put in order at the end, because nothing needs to be: what it said of the node stays true without it, and a
fresh one goes on from there. Exit codes: 0 when told to end, 2 for settings it cannot use.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence

from runtime import logs
from runtime.eviction.notice import Notice
from runtime.node import health
from runtime.node.board import Board
from runtime.node.desk import Acknowledge, Desk
from runtime.node.kube import ApiError, NodeClient
from runtime.node.patch import noted
from runtime.node.provider import probe, provider_of, sources_for
from runtime.node.settings import Settings, SettingsError, load
from runtime.node.watcher import Watcher

FIRST_LOOK_SECONDS = 2.0
"""How long the first notice may have to wait for an API server that is away."""

PROBE_AGAIN_SECONDS = 2.0

log = logging.getLogger("runtime.node")


def main() -> int:
    """Run the node agent until it is told to end."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))
    try:
        settings = load(sys.argv[1:], os.environ)
        logs.configure(settings.log_level)
        _run(settings)
    except (SettingsError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    return 0


def _run(settings: Settings) -> None:
    if settings.gpus == "only":
        from runtime.node import gpus

        port = _serve(settings, gpus.start(settings, {}))
        log.info("started", extra={"node": settings.node, "gpus": settings.gpus, "port": port})
        while True:
            signal.pause()
    client = NodeClient(settings.server, settings.node, settings.account)
    provider, known = _surroundings(client, settings)
    sources = sources_for(provider, settings, known)
    if not sources:
        log.warning("nobody to ask: no metadata service is known here, and no --notices-url is given")
    board = Board({source.name for source in sources})
    watchers = [Watcher(source, board) for source in sources]
    desk = Desk(board, client, _acknowledging(watchers))
    for watcher in watchers:
        watcher.start()
    pages = health.pages(desk, watchers)
    if settings.gpus == "on":
        from runtime.node import gpus

        pages = gpus.start(settings, pages)
    port = _serve(settings, pages)
    gc.freeze()
    names = [watcher.name for watcher in watchers]
    log.info("started", extra={"node": settings.node, "provider": provider, "sources": names, "port": port})
    desk.run()


def _surroundings(client: NodeClient, settings: Settings) -> tuple[str, Sequence[Notice]]:
    """The provider, and what the Node says already; a provider that was given waits for nothing long."""
    while True:
        try:
            raw = client.get(FIRST_LOOK_SECONDS)
            return (provider_of(raw) if settings.provider == "auto" else settings.provider), noted(raw)
        except ApiError as error:
            log.warning("the Node cannot be read yet", extra={"error": str(error)})
        if settings.provider != "auto":
            return settings.provider, ()
        if provider := probe(settings.metadata_url):
            return provider, ()
        time.sleep(PROBE_AGAIN_SECONDS)


def _acknowledging(watchers: Sequence[Watcher]) -> dict[str, Acknowledge]:
    return {
        watcher.name: tell for watcher in watchers if (tell := getattr(watcher.source, "acknowledge", None)) is not None
    }


def _serve(settings: Settings, pages: dict[str, Callable[[], tuple[int, str]]]) -> int | None:
    if settings.port is None:
        return None
    try:
        return health.serve(settings.bind, settings.port, pages)
    except OSError as error:
        log.warning("going on without /metrics", extra={"port": settings.port, "error": str(error)})
        return None


if __name__ == "__main__":
    sys.exit(main())
