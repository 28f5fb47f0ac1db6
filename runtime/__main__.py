"""`python -m runtime`: start the agent, and stop it in good order on SIGTERM or SIGINT.

Exit codes: 0 after an orderly stop, 1 when the agent could not go on, 2 for settings it cannot use.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys

from runtime import health, logs
from runtime.errors import SettingsError
from runtime.kube import connect
from runtime.loop import Agent
from runtime.origin import read_cluster
from runtime.settings import Settings, load

STOP_SECONDS = 4.0
"""Time for the tick under way and the lease; Kubernetes allows 30 s, people and tests less."""

GARBAGE_THRESHOLDS = (10_000, 20, 20)
"""What lives here are tens of thousands of jobs and parsed JSON, hardly a cycle: with Python's own (700, 10, 10) a full
collection stops the loop for 0.2 s, again and again while 15,000 Workloads are listed."""

log = logging.getLogger("runtime")


def main() -> int:
    """Run the agent until it is told to stop."""
    try:
        settings = load(sys.argv[1:])
        logs.configure(settings.log_level)
        gc.freeze()
        gc.set_threshold(*GARBAGE_THRESHOLDS)
        asyncio.run(_run(settings))
    except SettingsError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


async def _run(settings: Settings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with connect() as kube:
        starting = asyncio.create_task(read_cluster(kube, settings))
        await _first_of(starting, stopping)
        if not starting.done():
            starting.cancel()
            return
        agent = Agent(settings, kube, *starting.result())
        server = await health.serve(settings.bind, settings.health_port, healthy=agent.healthy, ready=agent.ready)
        port = server.sockets[0].getsockname()[1]
        log.info("started", extra={"identity": settings.identity, "health_port": port, "ledger": settings.ledger})
        running = asyncio.create_task(agent.run())
        await _first_of(running, stopping)
        agent.stop()
        _, late = await asyncio.wait([running], timeout=STOP_SECONDS)
        for task in late:
            log.warning("the tick under way did not finish in time")
            task.cancel()
        server.close()
        if not late:
            running.result()
        log.info("stopped")


async def _first_of(task: asyncio.Task[object], event: asyncio.Event) -> None:
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


if __name__ == "__main__":
    sys.exit(main())
