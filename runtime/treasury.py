"""The agent's dealings with money beside single jobs: the ledger kept fresh, top-ups recorded, budgets told of.

Only the leader calls any of it. In a dry run the ledger is read, and claimed for this cluster if nobody has claimed it,
and nothing else is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Final, NamedTuple

from runtime import events, metrics
from runtime.cache import Cache, Source
from runtime.clock import Clock
from runtime.cost.ledger import TopUp
from runtime.cost.scopes import budgets, team_of
from runtime.cost.standing import Reached, Summary, reached, summary
from runtime.cost.topups import parse, shown
from runtime.errors import CorruptEntry, StoreDown
from runtime.events import Event, Subject
from runtime.kube import CONFIG_MAPS, Kube
from runtime.store import Store
from runtime.wire import Raw
from stacks.agent_config import AgentConfig
from stacks.labels import TOP_UPS_NAME
from stacks.quantities import format_usd

LEDGER_RETRY_SECONDS: Final = 2.0
LEDGER_REFRESH_SECONDS: Final = 600.0
"""Only this agent writes the ledger; reading it again finds what people moved."""

MOST_TOP_UPS_AT_ONCE: Final = 20
"""Written in one tick; a ConfigMap has room for thousands, and jobs must not wait for them."""

MONEY_SECONDS: Final = 5.0
"""Between looks at all budgets, in real time: adding up a year of attempts is not done ten times a second."""

MOST_PROBLEMS_LOGGED: Final = 20
log = logging.getLogger(__name__)
Tell = Callable[[Event], None]


class _Requests(NamedTuple):
    """The ConfigMap of top-ups, as text."""

    entries: tuple[tuple[str, str], ...] = ()


_NO_REQUESTS: Final = _Requests()


class Treasury:
    """Remembers when it looked last, and what it told."""

    def __init__(self, kube: Kube, store: Store, clock: Clock, namespace: str, changed: asyncio.Event) -> None:
        self._store = store
        self._clock = clock
        self._namespace = namespace
        source = Source(CONFIG_MAPS, namespace, fields=f"metadata.name={TOP_UPS_NAME}")
        self.requests: Cache[_Requests] = Cache(kube, source, _requests, changed)
        self._term = 0
        self._read_at = self._summed_at = float("-inf")
        self._compact_next = False
        self._parsed: tuple[_Requests | None, tuple[TopUp, ...]] = (None, ())
        self._record_at = float("-inf")
        self._problems: frozenset[str] = frozenset()
        self._told: set[tuple[object, ...]] = set()
        self.summary: Summary | None = None
        """How every budget stood at the last look; None while the ledger cannot be read."""

    async def keep_ledger(self, term: int) -> None:
        """Read the ledger when it is due: when a term begins, soon after a failure, and now and then."""
        now = asyncio.get_running_loop().time()
        patience = LEDGER_RETRY_SECONDS if self._store.books is None else LEDGER_REFRESH_SECONDS
        if self._term == term and now - self._read_at < patience:
            return
        self._term, self._read_at = term, now
        try:
            await self._store.refresh()
            self._compact_next = True
        except StoreDown as error:
            metrics.errors.labels(kind="StoreDown").inc()
            log.error("the ledger is down; the gate holds", extra={"error": str(error)})

    async def tidy(self) -> None:
        """Pack what is closed, a little after each time the ledger was read; never fails."""
        if not self._compact_next:
            return
        self._compact_next = False
        try:
            packed = await self._store.compact(self._clock.now())
        except (StoreDown, CorruptEntry) as error:
            metrics.errors.labels(kind=type(error).__name__).inc()
            log.warning("the ledger was not packed; it is tried again later", extra={"error": str(error)})
            return
        if packed:
            log.info("the ledger was packed", extra={"days": packed})

    async def record_top_ups(self, config: AgentConfig, tell: Tell) -> None:
        """Write some of the requests into the ledger that are not there yet; what cannot be read is logged once."""
        books, at = self._store.books, asyncio.get_running_loop().time()
        if books is None or at < self._record_at:
            return
        now = self._clock.now()
        new = (one for one in self._wanted(config) if one.id not in books.top_ups and now < one.expires_at)
        for top_up in islice(new, MOST_TOP_UPS_AT_ONCE):
            try:
                stands = await self._store.add_top_up(top_up)
            except (StoreDown, CorruptEntry) as error:
                metrics.errors.labels(kind=type(error).__name__).inc()
                log.error("a top-up was not recorded", extra={"id": top_up.id, "error": str(error)})
                self._record_at = at + LEDGER_RETRY_SECONDS
                if isinstance(error, StoreDown):
                    return
                continue
            metrics.top_ups.inc()
            self._summed_at = float("-inf")
            added = f"{format_usd(stands.usd)} added to the budget of the {stands.scope}"
            text = f"{added} by {stands.author}: {stands.reason}"
            log.info("top-up recorded", extra={"id": stands.id, "scope": stands.scope, "usd": str(stands.usd)})
            tell(events.top_up_recorded(self._subject(stands.scope, config), stands.id, text))

    def _wanted(self, config: AgentConfig) -> tuple[TopUp, ...]:
        found = next(iter(self.requests.values()), _NO_REQUESTS)
        if found == self._parsed[0]:
            return self._parsed[1]
        top_ups, problems = parse(dict(found.entries))
        known = budgets(config)
        problems += tuple(
            f"top-up {shown(one.id)}: {one.scope} has no budget" for one in top_ups if one.scope not in known
        )
        for problem in sorted(set(problems) - self._problems)[:MOST_PROBLEMS_LOGGED]:
            log.warning("a top-up is refused", extra={"error": problem})
        self._problems = frozenset(problems)
        metrics.bad_top_ups.set(len(problems))
        self._parsed = (found, tuple(one for one in top_ups if one.scope in known))
        return self._parsed[1]

    def reconfigure(self) -> None:
        """Another configuration applies: look at everything again."""
        self._parsed = (None, ())
        self._summed_at = float("-inf")

    def look(self, config: AgentConfig, now: float, tell: Tell) -> None:
        """Add up every budget if it is due; show it, and tell of thresholds that are newly reached."""
        books, at = self._store.books, asyncio.get_running_loop().time()
        if books is None:
            self.summary = None
            return
        if self.summary is not None and at - self._summed_at < MONEY_SECONDS:
            return
        self._summed_at = at
        self.summary = summary(books, config, now)
        found = reached(self.summary, config)
        metrics.publish_money(self.summary, found, config)
        keys = {(one.scope, one.period, one.period_start, one.threshold): one for one in found}
        for key in keys.keys() - self._told:
            tell(_threshold_event(self._subject(keys[key].scope, config), keys[key]))
        self._told = set(keys)

    def _subject(self, scope: str, config: AgentConfig) -> Subject:
        team = team_of(scope)
        if team is not None and team in config.teams:
            return events.on_namespace(config.teams[team].namespace)
        return events.on_config_map(self._namespace)


def _threshold_event(subject: Subject, one: Reached) -> Event:
    used, limit = format_usd(one.spent_and_committed), format_usd(one.limit)
    what = f"{one.threshold:.0%} of the {one.period}'s budget of the {one.scope}"
    text = f"{what} is reached: {used} of {limit} is spent or committed"
    return events.budget_threshold(subject, f"{one.scope} {one.period} {one.period_start:.0f} {one.threshold}", text)


def _requests(raw: Raw) -> _Requests | None:
    if raw["metadata"].get("name") != TOP_UPS_NAME:
        return None
    data = raw.get("data") or {}
    return _Requests(tuple(sorted((str(name), str(text)) for name, text in data.items())))
