"""Carries the verdict on the GPUs to the Node of this machine: condition, taint and faults.

It writes when something changed, and looks every few minutes whether it still stands there. What cannot be written now
is written at the next turn; nothing waits for it.

Invariants: the faults that the Node had before a restart are taken over before anything is written; faults that an
administrator removed from the Node are dropped.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from runtime.gpus.condition import Raw, change_for, faults_on, status_change
from runtime.gpus.health import Fault, Verdict
from runtime.node.kube import ApiError

log = logging.getLogger("runtime.gpus")

RESYNC_SECONDS: Final = 300.0
_MOST_CONFLICTS: Final = 5


class Client(Protocol):
    """What it needs of the API server."""

    def get(self) -> Raw:
        """Read the Node."""

    def patch(self, change: Raw) -> Raw:
        """Change the Node, with the status excepted."""

    def patch_status(self, change: Raw) -> Raw:
        """Change the status of the Node."""


class Report:
    """For one Node, in one thread."""

    def __init__(
        self,
        client: Client,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.writes = 0
        self.failures = 0
        self._client = client
        self._now, self._monotonic = now, monotonic
        self._standing: tuple[Fault, ...] | None = None
        """What the Node says; None before it was read for the first time."""
        self._done: Any = None
        self._looked_at = -RESYNC_SECONDS
        self._failing = False

    def known(self, faults: Sequence[Fault]) -> tuple[Fault, ...]:
        """The faults, with those that the Node knows from before, and without those that were removed there."""
        if self._standing is not None and self._monotonic() - self._looked_at < RESYNC_SECONDS:
            return tuple(faults)
        try:
            noted = faults_on(self._client.get())
        except ApiError as error:
            self._failed(error)
            return tuple(faults)
        self._looked_at, self._done = self._monotonic(), None
        removed = set(self._standing or ()) - set(noted)
        kept = [fault for fault in faults if fault not in removed]
        self._standing = noted
        return tuple(dict.fromkeys((*noted, *kept)))

    def publish(self, verdict: Verdict | None, faults: Sequence[Fault]) -> None:
        """Bring the Node up to date; `verdict` is None while the GPUs cannot be read."""
        if self._standing is None or self._done == (verdict, tuple(faults)):
            return
        try:
            self._write(verdict, faults)
        except ApiError as error:
            self._failed(error)
            return
        if self._failing:
            log.info("the API server took it", extra={"after_failures": self.failures})
        self._failing, self._done = False, (verdict, tuple(faults))
        self._standing = tuple(faults) if verdict else self._standing

    def _write(self, verdict: Verdict | None, faults: Sequence[Fault]) -> None:
        for _ in range(_MOST_CONFLICTS):
            raw = self._client.get()
            change = change_for(raw, verdict, faults) if verdict else None
            if change is not None:
                try:
                    self._client.patch(change)
                except ApiError as error:
                    if error.conflict:
                        continue
                    raise
                self.writes += 1
            if (status := status_change(raw, verdict, self._now())) is not None:
                self._client.patch_status(status)
                self.writes += 1
                said = status["status"]["conditions"][0]
                log.warning("the GPUs' condition changed", extra={"status": said["status"], "why": said["message"]})
            return
        raise ApiError(f"somebody else wrote the Node each of {_MOST_CONFLICTS} times in between")

    def _failed(self, error: ApiError) -> None:
        self.failures += 1
        if not self._failing:
            log.warning("could not reach the Node; trying on", extra={"error": str(error)})
        self._failing = True
