"""The ledger's files, read without the agent: what stands there is what was paid and promised.

Single entries are read before packed days, which replace them.

It never writes. It reads a ledger on a disk, as the embedded stack keeps it; a bucket is the agent's to read. Half a
file, which a writer killed in the middle may leave, is counted and left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

from infra.replay.errors import EvidenceError
from runtime.cost.entries import EntryError, closing_from_dict, opening_from_dict
from runtime.cost.ledger import Attempt, Books, Closing, Opening
from runtime.errors import CorruptEntry
from runtime.store.days import from_bytes


@dataclass(frozen=True, slots=True)
class LedgerFiles:
    """What a ledger directory holds; `unreadable` names the files that are no entries."""

    books: Books
    unreadable: tuple[str, ...] = ()


@dataclass(slots=True)
class LedgerReader:
    """Reads a ledger directory again and again, each file once: entries are never changed."""

    directory: Path
    _openings: dict[Attempt, Opening] = field(default_factory=dict)
    _closings: dict[Attempt, Closing] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)

    def read(self) -> LedgerFiles:
        """Everything in the ledger now. A directory that is not there yet is an empty ledger.

        Raises:
            EvidenceError: when the directory cannot be read.
        """
        unreadable = []
        try:
            for path in sorted(self.directory.glob("v1/*/*.json")):
                name = str(path.relative_to(self.directory))
                if name not in self._read and not self._take(path, name):
                    unreadable.append(name)
            for path in sorted(self.directory.glob("v1/days/*.jsonl")):
                name = str(path.relative_to(self.directory))
                if name not in self._read and not self._take_day(path, name):
                    unreadable.append(name)
        except OSError as error:
            raise EvidenceError(f"{self.directory}: the ledger cannot be read: {error.strerror or error}") from error
        return LedgerFiles(Books(dict(self._openings), dict(self._closings)), tuple(unreadable))

    def _take(self, path: Path, name: str) -> bool:
        try:
            entry: Any = json.loads(path.read_text("utf-8"))
            if name.endswith(".open.json"):
                opening = opening_from_dict(entry)
                self._openings[opening.attempt] = opening
            elif name.endswith(".close.json"):
                closing = closing_from_dict(entry)
                self._closings[closing.attempt] = closing
        except FileNotFoundError:
            return True  # moved away by hand between the listing and the reading
        except (EntryError, ValueError):
            return False
        self._read.add(name)
        return True

    def _take_day(self, path: Path, name: str) -> bool:
        try:
            day = from_bytes(path.stem, path.read_bytes())
        except FileNotFoundError:
            return True
        except CorruptEntry:
            return False
        self._openings |= day.openings
        self._closings |= day.closings
        self._read.add(name)
        return True


def highest_exposure(books: Books, team: str | None, second: float = 1.0) -> Decimal:
    """The most that was ever spent and committed together, of a team or (None) of the fleet.

    Openings count their commitment from their opening, and what they cost from their closing. An opening bears the time
    of its reservation, which Kueue gives in whole seconds, cut off: it is counted where that second ends, which is
    `second` of the fleet's seconds later. At equal times closings come last.
    """
    steps: list[tuple[float, int, Decimal]] = []
    for attempt, opening in books.openings.items():
        if team is None or opening.team == team:
            steps.append((opening.opened_at + second, 0, opening.committed_usd))
            if (closing := books.closings.get(attempt)) is not None:
                steps.append((closing.ended_at, 1, closing.usd - opening.committed_usd))
    exposed = highest = Decimal(0)
    for _, _, change in sorted(steps):
        exposed += change
        highest = max(highest, exposed)
    return highest
