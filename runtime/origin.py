"""Where a fleet's time begins, and which cluster it is: read from the cluster, so that all starts of an agent agree."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from runtime.clock import Clock, parse_time
from runtime.errors import KubeError, Unreachable
from runtime.kube import NAMESPACES, Kube
from runtime.settings import Settings
from runtime.store import Owner
from runtime.wire import Raw

FIRST_NAMESPACE: Final = "kube-system"
"""Every cluster has it from its beginning to its end, so its UID names the cluster."""

FIRST_RETRY_SECONDS: Final = 0.3
LONGEST_PAUSE_SECONDS: Final = 5.0
"""As in runtime.cache: the agent should be back soon after the API server is."""

log = logging.getLogger(__name__)


async def read_cluster(kube: Kube, settings: Settings) -> tuple[Clock, Owner]:
    """The clock of this fleet, whose origin is when the agent's namespace was created, and who owns its ledger.

    Waits for the cluster.
    """
    speed = settings.config.replay_speed
    pause = FIRST_RETRY_SECONDS
    while True:
        try:
            own = _metadata(await kube.get(NAMESPACES, settings.namespace))
            first = _metadata(await kube.get(NAMESPACES, FIRST_NAMESPACE))
            return Clock(parse_time(own["creationTimestamp"]), speed), Owner(first["uid"], speed)
        except KubeError as error:
            log.warning("waiting for the cluster", extra={"error": str(error)})
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


def _metadata(raw: Raw) -> dict[str, str]:
    metadata = raw.get("metadata")
    if not isinstance(metadata, dict) or not all(isinstance(metadata.get(key), str) for key in _NEEDED):
        raise Unreachable("the answer is not a namespace; is this an API server?")
    return metadata


_NEEDED: Final = ("creationTimestamp", "uid")
