from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runtime.clock import Clock
from runtime.cost.entries import opening_to_dict
from runtime.cost.ledger import Attempt, Closing
from runtime.errors import CorruptEntry, SettingsError, StoreDown
from runtime.store import Owner, Store
from tests.builders import HOUR, NOON, an_opening

DAY = 24 * HOUR
ATTEMPT = an_opening().attempt

OWNER = Owner("cluster-1", 1.0)


class Agent:
    """One agent's life: a store on a directory, at a time that the test moves."""

    def __init__(self, directory: Path, now: float = NOON) -> None:
        self.now = now
        self.directory = directory
        self.store = Store(directory.as_uri(), Clock(real_now=lambda: self.now), OWNER)

    def refresh(self) -> Store:
        asyncio.run(self.store.refresh())
        return self.store

    def open(self, **changes: Any) -> Any:
        return asyncio.run(self.store.open(an_opening(**changes)))

    def close(self, attempt: Attempt = ATTEMPT, ended_at: float = NOON) -> Closing:
        closing = Closing(attempt, ended_at - 60, ended_at, Decimal("0.5"), "finished")
        return asyncio.run(self.store.close(closing))

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.directory)) for path in self.directory.rglob("*.*.json"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "does not" / "exist yet"


def test_an_attempt_is_written_once_where_people_find_it(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    agent.open()
    agent.close()
    second = ATTEMPT.reserved_at
    assert agent.files() == [f"v1/2026-11/job-1.{second}.close.json", f"v1/2026-11/job-1.{second}.open.json"]
    assert json.loads((directory / agent.files()[1]).read_text()) == opening_to_dict(an_opening())


def test_a_restarted_agent_reads_the_same_books(directory: Path) -> None:
    first = Agent(directory)
    first.refresh()
    first.open()
    first.open(uid="job-2")
    first.close()
    assert Agent(directory).refresh().books == first.store.books
    assert first.store.books is not None
    assert len(first.store.books.openings) == 2


def test_the_opening_that_stands_wins_over_a_later_one(directory: Path) -> None:
    first, second = Agent(directory), Agent(directory)
    first.refresh()
    second.refresh()
    first.open(decision_id="first")
    assert second.open(decision_id="second", committed_usd=Decimal(99)).decision_id == "first"
    assert second.store.books is not None
    assert second.store.books.openings[ATTEMPT].decision_id == "first"


def test_the_closing_that_stands_wins_over_a_later_one(directory: Path) -> None:
    first = Agent(directory)
    first.refresh()
    first.open()
    second = Agent(directory)
    second.refresh()
    first.close(ended_at=NOON)
    assert second.close(ended_at=NOON + 60).ended_at == NOON


def test_books_are_none_before_the_first_read(directory: Path) -> None:
    assert Agent(directory).store.books is None


def test_an_unclosed_attempt_of_any_age_is_known_and_a_long_closed_one_forgotten(directory: Path) -> None:
    old = Agent(directory, now=NOON - 200 * DAY)
    old.refresh()
    for uid in ("still-open", "closed"):
        old.open(uid=uid, attempt=Attempt(uid, 1), opened_at=old.now)
    old.close(Attempt("closed", 1), old.now + 60)
    # The window of what counts is measured against when the closing was written, which for this test is now.
    agent = Agent(directory, now=NOON + 200 * DAY)
    books = agent.refresh().books
    assert books is not None
    assert [attempt.workload_uid for attempt in books.openings] == ["still-open"]
    assert not books.closings


def test_an_attempt_that_ran_for_months_and_ended_now_still_counts_after_a_restart(directory: Path) -> None:
    agent = Agent(directory, now=NOON - 120 * DAY)
    agent.refresh()
    agent.open(opened_at=agent.now)
    agent.now = NOON
    agent.close(ended_at=NOON)
    books = Agent(directory, now=NOON + DAY).refresh().books
    assert books is not None
    assert ATTEMPT in books.openings
    assert ATTEMPT in books.closings
    agent.refresh()
    assert agent.store.books == books


def test_what_another_leader_wrote_is_seen_by_the_next_read(directory: Path) -> None:
    first, second = Agent(directory), Agent(directory)
    first.refresh()
    second.refresh()
    first.open()
    first.close()
    assert second.refresh().books == first.store.books


@pytest.mark.parametrize("content", [b"", b"{", b'{"v":1}', b"null", b"\xff", b"[" * 100_000])
def test_an_opening_that_cannot_be_read_stops_new_money_until_it_is_mended(directory: Path, content: bytes) -> None:
    agent = Agent(directory)
    agent.refresh()
    agent.open()
    path = directory / agent.files()[0]
    good = path.read_bytes()
    path.write_bytes(content)
    restarted = Agent(directory)
    assert restarted.refresh().books is None
    path.write_bytes(good)
    assert restarted.refresh().books == agent.store.books


def test_an_opening_that_cannot_be_read_may_be_moved_away_and_never_stops_the_fleet_for_ever(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    agent.open()
    path = directory / agent.files()[0]
    path.write_bytes(b"")
    assert Agent(directory, now=NOON + 30 * DAY).refresh().books is None
    assert Agent(directory, now=NOON + 80 * DAY).refresh().books is not None
    path.rename(directory / "aside.json")
    assert Agent(directory).refresh().books is not None


def test_an_opening_under_another_attempts_name_is_not_believed(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    agent.open()
    path = directory / agent.files()[0]
    path.rename(path.with_name("job-9.5.open.json"))
    assert Agent(directory).refresh().books is None


def test_an_attempt_whose_closing_cannot_be_read_keeps_counting_as_open(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    agent.open()
    agent.close()
    (directory / agent.files()[0]).write_bytes(b"")
    restarted = Agent(directory)
    books = restarted.refresh().books
    assert books is not None
    assert ATTEMPT in books.openings
    assert ATTEMPT not in books.closings
    with pytest.raises(CorruptEntry):
        restarted.close()
    assert restarted.store.books is not None, "one bad closing stops nobody else"


def test_a_job_whose_own_opening_is_corrupt_is_not_cleared(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    path = directory / f"v1/2026-11/job-1.{ATTEMPT.reserved_at}.open.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    with pytest.raises(CorruptEntry):
        agent.open()


def test_files_that_are_not_ours_are_passed_over(directory: Path) -> None:
    for name in ("v1/readme.txt", "v1/2026-11/x.open.json", "v1/2026-11/a.b.open.json", "v2/2026-11/a.1.open.json"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text("hello")
    assert Agent(directory).refresh().books is not None


def break_directory(directory: Path) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("a file where the directory should be")


def test_a_store_that_cannot_be_reached_is_down_and_comes_back(directory: Path) -> None:
    break_directory(directory)
    agent = Agent(directory)
    with pytest.raises(StoreDown):
        agent.refresh()
    assert agent.store.books is None
    directory.unlink()
    assert agent.refresh().books is not None


def an_opening_month() -> str:
    return datetime.fromtimestamp(an_opening().opened_at, UTC).strftime("%Y-%m")


def test_a_ledger_of_another_cluster_or_speed_moves_no_money(directory: Path) -> None:
    Agent(directory).refresh()
    for stranger in (Owner("cluster-2", 1.0), Owner("cluster-1", 60.0)):
        store = Store(directory.as_uri(), Clock(real_now=lambda: NOON), stranger)
        with pytest.raises(StoreDown, match="a ledger of its own"):
            asyncio.run(store.refresh())
        assert store.books is None
    assert Agent(directory).refresh().books is not None


def test_a_write_without_a_clear_answer_puts_the_books_in_doubt(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    in_the_way = directory / "v1" / an_opening_month()
    in_the_way.write_text("in the way")
    with pytest.raises(StoreDown):
        agent.open()
    assert agent.store.books is None
    in_the_way.unlink()
    with pytest.raises(StoreDown, match="in doubt"):
        agent.open()
    books = agent.refresh().books
    assert books is not None
    assert not books.openings


def test_closing_what_was_never_opened_is_refused(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    with pytest.raises(StoreDown, match="its opening has not been read"):
        agent.close()


def test_the_books_handed_out_do_not_change_afterwards(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    before = agent.store.books
    agent.open()
    assert before is not None
    assert not before.openings


@pytest.mark.parametrize("url", ["", "/var/ledger", "ftp://host/x", "http://bucket", "s4://b"])
def test_a_ledger_url_of_no_known_kind_is_refused(url: str) -> None:
    with pytest.raises(SettingsError, match="must be a URL"):
        Store(url, Clock(), OWNER)


def test_a_store_in_memory_keeps_the_same_rules() -> None:
    store = Store("memory:///", Clock(real_now=lambda: NOON), OWNER)

    async def story() -> None:
        await store.refresh()
        await store.open(an_opening())
        await store.refresh()

    asyncio.run(story())
    assert store.books is not None
    assert ATTEMPT in store.books.openings


def test_a_workload_uid_cannot_leave_its_month(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    with pytest.raises(StoreDown):
        agent.open(attempt=Attempt("../../../etc/passwd", 1))
    assert agent.files() == []


def test_an_entry_that_would_not_read_back_is_not_written(directory: Path) -> None:
    agent = Agent(directory)
    agent.refresh()
    with pytest.raises(CorruptEntry, match="max_seconds must be a finite number"):
        agent.open(max_seconds=1e11)
    assert agent.files() == []
    assert Agent(directory).refresh().books is not None
