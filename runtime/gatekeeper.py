"""Keeps our AdmissionCheck answered: tells Kueue that it is, whenever it exists and does not say so.

Somebody may delete and create it anew, or edit its status by hand: the next tick mends it. It is told only while the
ledger can be read, because a queue that counts on the check must not wait for an agent that cannot answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from runtime import metrics
from runtime.errors import KubeError
from runtime.kube import Kube
from runtime.routing.alarms import CheckState
from runtime.wire import Raw
from stacks.labels import GATE_CONTROLLER

RETRY_SECONDS: Final = 2.0
"""Between tries that are refused; ticks may be ten a second."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Check:
    """Our AdmissionCheck, and whether Kueue knows that it is answered."""

    name: str
    generation: int
    active: bool


def our_check(gate: str) -> Callable[[Raw], Check | None]:
    """How to recognise it."""

    def reduce(raw: Raw) -> Check | None:
        metadata, spec, status = raw.get("metadata") or {}, raw.get("spec") or {}, raw.get("status") or {}
        if spec.get("controllerName") != GATE_CONTROLLER or metadata.get("name") != gate:
            return None
        generation = metadata.get("generation") or 0
        active = any(
            condition.get("type") == "Active"
            and condition.get("status") == "True"
            and condition.get("observedGeneration") == generation
            for condition in status.get("conditions") or ()
        )
        return Check(metadata["name"], generation, active)

    return reduce


class Gatekeeper:
    """Remembers since when the check has not been active."""

    def __init__(self, kube: Kube, real_now: Callable[[], float]) -> None:
        self._kube = kube
        self._real_now = real_now
        self._inactive_since: float | None = None
        self._refused = ""
        self._retry_at = float("-inf")

    def state(self, checks: Collection[Check]) -> CheckState:
        """How the check stands now."""
        now = asyncio.get_running_loop().time()
        if all(check.active for check in checks):
            self._inactive_since = None
            return CheckState(exists=bool(checks))
        if self._inactive_since is None:
            self._inactive_since = now
        return CheckState(exists=True, inactive_seconds=now - self._inactive_since)

    async def activate(self, checks: Collection[Check]) -> None:
        """Say that it is answered, where it does not say so yet; never fails, and says once why it could not."""
        now = asyncio.get_running_loop().time()
        for check in checks:
            if check.active or now < self._retry_at:
                continue
            try:
                await self._kube.activate_check(check.name, check.generation, self._real_now())
            except KubeError as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                level = logging.DEBUG if str(error) == self._refused else logging.ERROR
                log.log(level, "the admission check was not activated", extra={"error": str(error)})
                self._refused, self._retry_at = str(error), now + RETRY_SECONDS
            else:
                log.info("the admission check is active", extra={"check": check.name})
                self._refused = ""
