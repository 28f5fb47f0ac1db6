"""Sources of notices: what each provider says of a node, brought into one form.

A source reads and decides nothing. Those of the node agent (aws, gcp, azure, file) implement `Source`, one for each
thing that is asked, so that none waits for another; `nodes` is a function of the agent's over Node objects.

Invariant: a source either says everything that is in force, or raises SourceDown; half an answer is none, and what was
in force before stays so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from runtime.eviction.notice import Certainty, Notice, NoticeKind, capped

SPOT_WINDOW_SECONDS: Final = 120.0
"""The longest notice that any provider gives before it takes a spot machine back: two minutes, AWS' own."""


class SourceDown(Exception):
    """The source gave no answer that can be used; the text says which, and what would help."""


class Source(Protocol):
    """One thing to ask on a node, by one thread."""

    @property
    def name(self) -> str:
        """Names it in notices, metrics and logs; unique on a node."""

    def read(self) -> Sequence[Notice]:
        """Everything that is in force now. It may block for its long poll, and remembers when it first saw what.

        Raises:
            SourceDown: when there is no answer that can be used.
        """

    def rest(self) -> float:
        """Seconds until it is worth reading again: longer after failures, with jitter, and as ever after a success."""


ACKNOWLEDGED: Final = frozenset({"azure"})
"""Names of the sources that are `Acknowledging`: the agent says for no others that a node is left."""


class Acknowledging(Source, Protocol):
    """A source whose provider may be told that a node is ready to go."""

    def acknowledge(self, notice: Notice) -> None:
        """Tell the provider that it need not wait for the deadline.

        Raises:
            SourceDown: when it was not told, or refused.
        """


class Found(NamedTuple):
    """What one reading says: a notice, but for when it was first seen.

    `window_seconds` is the longest that its deadline can lie after that; None where the deadline may be any.
    """

    id: str
    kind: NoticeKind
    certainty: Certainty
    deadline: float | None = None
    window_seconds: float | None = None
    detail: str = ""
    machines: int = 1


class FirstSeen:
    """Makes notices of what was found, with the time of the first reading that found it; for one source."""

    def __init__(self, source: str, known: Iterable[Notice] = ()) -> None:
        """`known` is what the node still says from before a restart."""
        self._source = source
        self._times = {notice.id: notice.noticed_at for notice in known if notice.source == source}

    def notices(self, found: Iterable[Found], now: float) -> tuple[Notice, ...]:
        """The notices in force; everything that was not found is forgotten. None is noticed in the future.

        Raises:
            ValueError: when one is not fit to be a notice; then nothing is forgotten.
        """
        notices = tuple(self._notice(entry, min(self._times.get(entry.id, now), now)) for entry in found)
        self._times = {notice.id: notice.noticed_at for notice in notices}
        return notices

    def _notice(self, found: Found, noticed_at: float) -> Notice:
        window = found.window_seconds
        deadline = found.deadline if window is None else capped(found.deadline, noticed_at, window)
        return Notice(
            found.id, found.kind, self._source, found.certainty, noticed_at, deadline, found.detail, found.machines
        )
