"""Carries what is on the board to the Node, and goes on trying until it stands there.

One attempt reads the Node and patches it, at the version read. While a notice stands, the Node is looked at every few
seconds, otherwise rarely: somebody may have removed our taint, and the agent may say that a notice has been served.

Invariant: a notice is never dropped because the API server is away; it is written as soon as that is back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from runtime.eviction.notice import Notice, worst
from runtime.eviction.sources import SourceDown
from runtime.eviction.sources.pace import Pace
from runtime.node.board import Board
from runtime.node.kube import ApiError
from runtime.node.patch import Raw, annotations_of, change_for, noted
from stacks.labels import CLEARED_ANNOTATION

log = logging.getLogger("runtime.node")

RESYNC_SECONDS: Final = 300.0
WATCHED_SECONDS: Final = 5.0  # while a notice stands
MOST_CONFLICTS: Final = 5
_RETRY_SECONDS: Final = 0.1

Acknowledge = Callable[[Notice], None]


class Client(Protocol):
    """What the desk needs of the API server."""

    def get(self) -> Raw:
        """Read the Node."""

    def patch(self, change: Raw) -> Raw:
        """Change the Node."""


class Desk:
    """Works for one Node, in one thread. The counters are for whoever looks on."""

    def __init__(
        self,
        board: Board,
        client: Client,
        acknowledge: dict[str, Acknowledge] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.standing: tuple[Notice, ...] = ()
        self.writes = 0
        self.failures = 0
        self.last_delay_seconds: float | None = None
        self.worked_at = monotonic()
        self._board = board
        self._client = client
        self._acknowledge = acknowledge or {}
        self._acknowledged: set[str] = set()
        self._monotonic = monotonic
        self._pace = Pace(_RETRY_SECONDS)
        self._failing = False

    def run(self) -> None:
        """Work for as long as the process lives."""
        rest = 0.0
        while True:
            self._board.wait(rest)
            rest = self.step()

    def step(self) -> float:
        """Bring the Node up to date once; returns the seconds until the next time, unless something changes before."""
        self.worked_at = self._monotonic()
        changed_at = self._board.take()
        try:
            raw = self._publish()
        except ApiError as error:
            return self._failed(error)
        if self._failing:
            log.info("the API server took it", extra={"after_failures": self.failures})
        self._failing = False
        self._pace.succeeded()
        if changed_at is not None:
            self.last_delay_seconds = self._monotonic() - changed_at
        self._board.done(changed_at)
        self._tell_providers(raw)
        return WATCHED_SECONDS if self.standing else RESYNC_SECONDS

    def _publish(self) -> Raw:
        for _ in range(MOST_CONFLICTS):
            raw = self._client.get()
            wanted = self._board.wanted(noted(raw))
            if (change := change_for(raw, wanted)) is None:
                self.standing = wanted
                return raw
            try:
                raw = self._client.patch(change)
            except ApiError as error:
                if error.conflict:
                    continue
                raise
            self.writes += 1
            self._note(wanted, change)
            return raw
        raise ApiError(f"somebody else wrote the Node each of {MOST_CONFLICTS} times in between")

    def _note(self, wanted: Sequence[Notice], change: dict[str, Any]) -> None:
        if wanted:
            notice = worst(wanted)
            fields = {"notice": notice.id, "kind": notice.kind.value, "deadline": notice.deadline}
            log.warning("the node will go", extra=fields | {"notices": len(wanted), "change": change.get("spec", {})})
        elif self.standing or change:
            log.info("no notice is left; took back what was set", extra={"change": change.get("spec", {})})
        self.standing = tuple(wanted)

    def _failed(self, error: ApiError) -> float:
        self.failures += 1
        if not self._failing:
            log.warning("could not write the Node; trying on", extra={"error": str(error)})
        self._failing = True
        self._pace.failed()
        return self._pace.rest()

    def _tell_providers(self, raw: Raw) -> None:
        cleared = str(annotations_of(raw).get(CLEARED_ANNOTATION, "")).split(",")
        for notice in self.standing:
            tell = self._acknowledge.get(notice.source)
            if tell is None or notice.id not in cleared or notice.id in self._acknowledged:
                continue
            try:
                tell(notice)
                log.info("told the provider that the node may go", extra={"notice": notice.id})
            except SourceDown as error:
                # It goes at its deadline all the same.
                log.warning("the provider did not take the acknowledgement", extra={"error": str(error)})
            self._acknowledged.add(notice.id)
