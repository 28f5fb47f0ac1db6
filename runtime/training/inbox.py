"""Requests to save that came in, from the file that kubelet writes or over HTTP, and who waits for their answer.

The file is read again, by its path, as often as its owner asks: a downward-API volume is renewed by swapping a link, so
a file that was once opened never changes. What cannot be read is said once and changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path
from typing import Final

from .errors import BadRequest
from .messages import MAX_REQUEST_BYTES, Answer, Request, parse_request

KEPT_ANSWERS: Final = 64
"""For a caller that asks once more because the first answer was lost."""

log = logging.getLogger(__name__)


class Inbox:
    """Requests by id. One that was answered lately is not served again when it comes once more."""

    def __init__(self, file: Path | None) -> None:
        self.waiting = False
        """Whether somebody waits for a save; read at every step, so it is a plain attribute."""

        self._file = file
        self._seen = b""
        self._changed = threading.Condition()
        self._open: dict[str, Request] = {}
        self._last = ""
        self._answers: dict[str, Answer] = {}

    @property
    def last_request(self) -> str:
        """The id of the last request that came, answered or not."""
        return self._last

    def look(self) -> None:
        """Read the file again."""
        if self._file is None:
            return
        try:
            with self._file.open("rb") as file:
                content = file.read(MAX_REQUEST_BYTES + 1)
        except OSError:
            return  # not mounted, not written yet, or just being swapped
        if content == self._seen:
            return
        self._seen = content
        if content.strip():
            try:
                self.take(parse_request(content))
            except BadRequest as error:
                log.warning("%s: ignored: %s", self._file, error)

    def take(self, request: Request) -> None:
        """A request came."""
        with self._changed:
            if request.id in self._answers:
                return
            self._last = request.id
            self._open[request.id] = request
            self.waiting = True

    def open_requests(self) -> tuple[Request, ...]:
        """Those that nobody has answered."""
        with self._changed:
            return tuple(self._open.values())

    def settle(self, requests: tuple[Request, ...], step: int | None, url: str) -> None:
        """Answer requests that were open before a save began; `step` is None where the save failed."""
        with self._changed:
            for request in requests:
                self._open.pop(request.id, None)
                if step is not None:
                    self._answers[request.id] = Answer(request.id, step, url, time.time())
            for old in list(self._answers)[:-KEPT_ANSWERS]:
                del self._answers[old]
            self.waiting = bool(self._open)
            self._changed.notify_all()

    def wait(self, request: Request, seconds: float) -> Answer | None:
        """Take a request and wait for its answer; None where the save failed or takes too long."""
        self.take(request)
        with self._changed:
            self._changed.wait_for(lambda: request.id not in self._open, timeout=max(0.0, seconds))
            return self._answers.get(request.id)
