from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from runtime import metrics
from runtime.clock import Clock
from runtime.cost.ledger import TopUp
from runtime.cost.topups import to_text
from runtime.errors import CorruptEntry, StoreDown
from runtime.events import Event
from runtime.kube import CONFIG_MAPS
from runtime.store import Owner, Store
from runtime.treasury import (
    LEDGER_REFRESH_SECONDS,
    LEDGER_RETRY_SECONDS,
    MONEY_SECONDS,
    MOST_TOP_UPS_AT_ONCE,
    Treasury,
)
from stacks.labels import TOP_UPS_NAME
from tests.builders import HOUR, NOON, a_config, a_team, an_opening
from tests.fakes.cluster import FakeCluster

BUDGETED = a_config(budget={"daily": "3 USD", "thresholds": ["50%", "100%"]})
A_TOP_UP = TopUp("t-1", "fleet", Decimal(5), "a paper", "ann", NOON, NOON + HOUR)


class Bench:
    """A treasury on a real ledger in a directory, at noon unless moved."""

    def __init__(self, directory: Path) -> None:
        self.now = NOON
        self.cluster = FakeCluster()
        self.events: list[Event] = []
        clock = Clock(real_now=lambda: self.now)
        self.store = Store(directory.as_uri(), clock, Owner("u-0", 1.0))
        self.treasury = Treasury(self.cluster.kube(), self.store, clock, "system", asyncio.Event())

    def tell(self, event: Event) -> None:
        self.events.append(event)

    async def ask_for(self, **entries: str) -> None:
        metadata = {"name": TOP_UPS_NAME, "namespace": "system", "uid": "top-ups"}
        self.cluster.put(CONFIG_MAPS, {"metadata": metadata, "data": entries})
        await self.treasury.requests._list()

    async def record(self) -> list[str]:
        await self.treasury.record_top_ups(BUDGETED, self.tell)
        return sorted(self.store.books.top_ups) if self.store.books else []


@pytest.fixture
def at(tmp_path: Path) -> Callable[[Callable[[Bench], Awaitable[None]]], None]:
    def tell(story: Callable[[Bench], Awaitable[None]]) -> None:
        async def whole() -> None:
            bench = Bench(tmp_path)
            await bench.treasury.keep_ledger(1)
            await story(bench)

        asyncio.run(whole())

    return tell


At = Callable[[Callable[[Bench], Awaitable[None]]], None]


def test_what_was_asked_for_counts_only_once_it_is_in_the_ledger(at: At) -> None:
    async def story(bench: Bench) -> None:
        await bench.ask_for(**{"t-1": to_text(A_TOP_UP)})
        assert await bench.record() == ["t-1"]
        assert await bench.record() == ["t-1"]
        assert [event.reason for event in bench.events] == ["BudgetToppedUp"]
        await bench.ask_for(**{"t-1": to_text(replace(A_TOP_UP, usd=Decimal(5_000)))})
        await bench.record()
        assert bench.store.books is not None
        assert bench.store.books.top_ups["t-1"].usd == 5, "a request that is changed afterwards changes nothing"
        await bench.ask_for()
        assert await bench.record() == ["t-1"]

    at(story)


def test_one_that_expired_unseen_or_is_for_nobody_is_not_recorded(at: At) -> None:
    async def story(bench: Bench) -> None:
        old = replace(A_TOP_UP, granted_at=NOON - 2 * HOUR, expires_at=NOON - HOUR)
        stranger = replace(A_TOP_UP, scope="team vision")
        await bench.ask_for(**{"old": to_text(old), "t-2": to_text(stranger), "x": "{", "t-3": to_text(A_TOP_UP)})
        assert await bench.record() == ["t-3"], "team vision has no budget, and one bad entry hides no good one"

    at(story)


def test_a_budget_that_appears_with_a_new_configuration_makes_a_refused_top_up_good(at: At) -> None:
    async def story(bench: Bench) -> None:
        await bench.ask_for(**{"t-1": to_text(replace(A_TOP_UP, scope="team vision"))})
        assert await bench.record() == []
        config = a_config(teams={"vision": a_team("vision", budget={"daily": "1 USD"})})
        bench.treasury.reconfigure()
        await bench.treasury.record_top_ups(config, bench.tell)
        assert bench.store.books is not None
        assert list(bench.store.books.top_ups) == ["t-1"]
        assert bench.events[0].regarding.namespace == "vision"

    at(story)


@pytest.mark.parametrize("error", [StoreDown("away"), CorruptEntry("torn")])
def test_a_store_that_fails_is_tried_again(at: At, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        await bench.ask_for(**{"t-1": to_text(A_TOP_UP)})

        async def fail(_: TopUp) -> TopUp:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(bench.store, "add_top_up", fail)
            assert await bench.record() == []
        assert bench.events == []
        assert await bench.record() == [], "not at once: ticks may be ten a second"
        monkeypatch.setattr(bench.treasury, "_record_at", 0.0)
        assert await bench.record() == ["t-1"]

    at(story)


def test_a_top_up_whose_place_in_the_ledger_is_damaged_hides_no_other(at: At) -> None:
    async def story(bench: Bench) -> None:
        add = bench.store.add_top_up

        async def torn(top_up: TopUp) -> TopUp:
            if top_up.id == "t-1":
                raise CorruptEntry("torn")
            return await add(top_up)

        bench.store.add_top_up = torn  # type: ignore[method-assign]
        await bench.ask_for(**{"t-1": to_text(A_TOP_UP), "t-2": to_text(A_TOP_UP)})
        assert await bench.record() == ["t-2"]

    at(story)


def test_what_was_asked_for_in_a_config_map_that_is_deleted_before_it_was_recorded_is_asked_for_no_more(at: At) -> None:
    async def story(bench: Bench) -> None:
        await bench.ask_for(**{"t-1": to_text(A_TOP_UP), "x": "{"})
        assert list(bench.treasury._wanted(BUDGETED)) == [A_TOP_UP]
        bench.cluster.remove(CONFIG_MAPS, TOP_UPS_NAME, "system")
        await bench.treasury.requests._list()
        assert await bench.record() == []
        assert metrics.bad_top_ups._value.get() == 0

    at(story)


def test_thousands_of_top_ups_are_recorded_bit_by_bit(at: At) -> None:
    async def story(bench: Bench) -> None:
        await bench.ask_for(**{f"t-{number}": to_text(A_TOP_UP) for number in range(3 * MOST_TOP_UPS_AT_ONCE)})
        assert [len(await bench.record()) for _ in range(4)] == [20, 40, 60, 60]

    at(story)


def test_thresholds_are_told_when_they_are_reached_and_not_at_every_look(at: At) -> None:
    async def story(bench: Bench) -> None:
        async def look() -> list[str]:
            bench.events.clear()
            bench.treasury._summed_at = float("-inf")
            bench.treasury.look(BUDGETED, bench.now, bench.tell)
            return [event.note for event in bench.events]

        assert await look() == []
        await bench.store.open(an_opening())
        assert await look() == ["50% of the day's budget of the fleet is reached: $2.00 of $3.00 is spent or committed"]
        assert await look() == []
        await bench.store.open(an_opening("job-2"))
        assert [note.split("%")[0] for note in await look()] == ["100"]
        bench.now += 24 * HOUR
        assert all("50%" in note or "100%" in note for note in await look())

    at(story)


def test_all_budgets_are_not_added_up_at_every_tick(at: At, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(bench: Bench) -> None:
        bench.treasury.look(BUDGETED, NOON, bench.tell)
        first = bench.treasury.summary
        bench.treasury.look(BUDGETED, NOON, bench.tell)
        assert bench.treasury.summary is first
        bench.treasury._summed_at -= MONEY_SECONDS
        bench.treasury.look(BUDGETED, NOON, bench.tell)
        assert bench.treasury.summary is not first

    at(story)


def test_while_the_ledger_is_down_nothing_is_said_of_money(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("in the way")

    async def story() -> None:
        bench = Bench(tmp_path / "ledger")
        await bench.treasury.keep_ledger(1)
        await bench.ask_for(**{"t-1": to_text(A_TOP_UP)})
        assert await bench.record() == []
        bench.treasury.look(BUDGETED, NOON, bench.tell)
        assert bench.treasury.summary is None
        (tmp_path / "ledger").unlink()
        await bench.treasury.keep_ledger(1)
        assert bench.store.books is None, "not hammered"
        bench.treasury._read_at -= LEDGER_RETRY_SECONDS
        await bench.treasury.keep_ledger(1)
        assert bench.store.books is not None

    asyncio.run(story())


def test_the_ledger_is_read_at_each_term_and_now_and_then_and_packed_once_after_it(
    at: At, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(bench: Bench) -> None:
        done: list[str] = []

        async def refresh() -> None:
            done.append("read")

        async def compact(now: float) -> tuple[str, ...]:
            done.append("pack")
            if len(done) > 3:
                raise StoreDown("away")
            return ("2026-11-20",)

        monkeypatch.setattr(bench.store, "refresh", refresh)
        monkeypatch.setattr(bench.store, "compact", compact)
        await bench.treasury.tidy()
        for term in (1, 2, 2):
            await bench.treasury.keep_ledger(term)
            await bench.treasury.tidy()
        bench.treasury._read_at -= LEDGER_REFRESH_SECONDS
        await bench.treasury.keep_ledger(2)
        await bench.treasury.tidy()
        assert done == ["pack", "read", "pack", "read", "pack"]

    at(story)
