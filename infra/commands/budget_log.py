"""The ledger as a list of events: what was committed, what it cost in the end, and what was added. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from runtime.clock import format_time
from runtime.cost.scopes import FLEET, scopes_of
from runtime.store.walk import History


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to money, in fleet time; `paying` are the scopes whose budgets it concerns."""

    at: float
    what: str
    paying: tuple[str, ...]
    subject: str
    usd: Decimal
    note: str

    @property
    def scopes(self) -> str:
        """The paying scopes but the fleet, which pays everything, as one word for a column."""
        return ",".join(one.replace(" ", "/") for one in self.paying if one != FLEET) or FLEET

    def concerns(self, scope: str) -> bool:
        """Whether the scope pays for it."""
        return scope in self.paying

    def row(self) -> dict[str, Any]:
        """The event for a program."""
        return {
            "at": format_time(self.at),
            "what": self.what,
            "scopes": list(self.paying),
            "subject": self.subject,
            "usd": f"{self.usd:f}",
            "note": self.note,
        }


def events_of(history: History) -> list[Event]:
    """Everything in the ledger in the order of time; at one moment, what was opened goes before what was closed."""
    found: list[Event] = []
    for opening, closing in history.attempts.values():
        paying = scopes_of(opening.team, opening.project)
        subject = f"{opening.namespace}/{opening.job}"
        kind = "ceiling" if opening.hard else "expected"
        note = f"{opening.gpus} GPU on {opening.flavor}, {kind}"
        found.append(Event(opening.opened_at, "committed", paying, subject, opening.committed_usd, note))
        if closing is not None:
            found.append(Event(closing.ended_at, "spent", paying, subject, closing.usd, closing.reason))
    for one in history.top_ups.values():
        note = f"{one.reason} ({one.author}, until {format_time(one.expires_at)})"
        found.append(Event(one.granted_at, "topped up", (one.scope,), one.id, one.usd, note))
    return sorted(found, key=lambda event: (event.at, event.what, event.subject))
