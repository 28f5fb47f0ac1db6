"""Notices that somebody else writes: a broker of rented machines, an operator of racks, or a drill.

A file on the node, or the URL of a broker that answers for many nodes. The form is that of the annotation, a JSON list
of notices; in addition a notice may name its `node`, and then counts there only. `source` and `noticed_at` need not be
there and are not used, since the node has a clock of its own; a notice without `certainty` is certain. A file that is
not there, and an answer of 404 or 204, say that there is nothing. A list of which a part cannot be read, and an empty
file, say nothing new: somebody may be writing it, and what was in force stays so.

No credentials are sent; a broker that needs some is asked through something that has them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from runtime.eviction.notice import LONGEST_JSON_BYTES, Certainty, Notice, NoticeKind, json_list, notice_from
from runtime.eviction.sources import SPOT_WINDOW_SECONDS, FirstSeen, Found, SourceDown
from runtime.eviction.sources.connection import Connection
from runtime.eviction.sources.pace import Pace
from runtime.eviction.sources.parsing import as_object

FILE_SECONDS: Final = 0.5
URL_SECONDS: Final = 2.0
"""As often as the node termination handler looks; a broker answers for a whole fleet."""

_TIMEOUT_SECONDS: Final = 5.0  # a broker is somewhere in the network
_NOTHING: Final = (204, 404)


class FileSource:
    """One list of notices."""

    name = "file"

    def __init__(
        self, place: str, node: str, *, known: Sequence[Notice] = (), now: Callable[[], float] = time.time
    ) -> None:
        """Take a path, or a URL of http or https.

        Raises:
            ValueError: when it is neither.
        """
        if "://" in place:
            self._fetch, interval = _broker(place), URL_SECONDS
        elif place.startswith("/"):
            self._fetch, interval = _file(Path(place)), FILE_SECONDS
        else:
            raise ValueError(f"notices at {place!r}: must be a path from the root, or start with http:// or https://")
        self._node = node
        self._now = now
        self._seen = FirstSeen(self.name, known)
        self._pace = Pace(interval)

    def read(self) -> Sequence[Notice]:
        """The notices that are of this node."""
        self._pace.failed()
        text, now = self._fetch(), self._now()
        try:
            notices = self._seen.notices([] if text is None else read_list(text, self._node, now), now)
        except ValueError as error:
            raise SourceDown(f"notices of others: {error}") from error
        self._pace.succeeded()
        return notices

    def rest(self) -> float:
        """Its interval, or longer while it fails."""
        return self._pace.rest()


def _file(path: Path) -> Callable[[], str | None]:
    def fetch() -> str | None:
        try:
            with path.open("rb") as file:
                return file.read(LONGEST_JSON_BYTES + 1).decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise SourceDown(f"{path}: {error}") from error

    return fetch


def _broker(url: str) -> Callable[[], str | None]:
    parts = urlsplit(url)
    connection = Connection(f"{parts.scheme}://{parts.netloc}")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def fetch() -> str | None:
        response = connection.request("GET", path, {"Accept": "application/json"}, timeout=_TIMEOUT_SECONDS)
        if response.status in _NOTHING:
            return None
        if response.status != 200:
            raise SourceDown(f"GET {path}: {response.status}")
        return response.text()

    return fetch


def read_list(text: str, node: str, now: float) -> Iterable[Found]:
    """The notices for a node.

    Raises:
        ValueError: when any of the list is not a notice, also one of another node.
    """
    for entry in map(as_object, json_list(text)):
        defaults = {"source": FileSource.name, "certainty": Certainty.CERTAIN.value, "noticed_at": now}
        notice = notice_from({**defaults, **entry})
        if entry.get("node", node) == node:
            window = SPOT_WINDOW_SECONDS if notice.kind is NoticeKind.SPOT and notice.deadline is not None else None
            yield Found(notice.id, notice.kind, notice.certainty, notice.deadline, window, notice.detail)
