from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from runtime.clock import Clock
from runtime.cost.ledger import Attempt, Closing, TopUp, close
from runtime.errors import CorruptEntry, StoreDown
from runtime.store import Bucket, Compactor, Owner, Report, Store, history, verify
from runtime.store.days import Day, from_bytes, to_bytes
from tests.builders import HOUR, NOON, an_opening

DAY = 24 * HOUR
OWNER = Owner("cluster-1", 1.0)
TODAY = "2026-11-21"
PACKED = f"v1/days/{TODAY}.jsonl"


class Ledger:
    """A ledger in a directory, with an agent that lives when the test says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = NOON
        self.store = self.restarted()

    def restarted(self, owner: Owner | None = OWNER) -> Store:
        self.store = Store(self.directory.as_uri(), Clock(real_now=lambda: self.now), owner)
        asyncio.run(self.store.refresh())
        return self.store

    def add(self, uid: str, *, closed: bool = True, opened_at: float = NOON, **changes: Any) -> None:
        opening = an_opening(attempt=Attempt(uid, 1), opened_at=opened_at, **changes)
        asyncio.run(self.store.open(opening))
        if closed:
            asyncio.run(self.store.close(close(opening, opened_at, opened_at + 900, "finished")))

    def compact(self, now: float = NOON + 4 * DAY, most_days: int = 1) -> tuple[str, ...]:
        return asyncio.run(self.store.compact(now, most_days))

    def files(self) -> list[str]:
        paths = (path.relative_to(self.directory) for path in (self.directory / "v1").rglob("*") if path.is_file())
        return sorted(str(path) for path in paths if path.name != "owner.json")

    def verified(self) -> Report:
        return asyncio.run(verify(Bucket(self.directory.as_uri())))

    def findings(self) -> list[tuple[str, str]]:
        return [(finding.path, finding.what) for finding in self.verified().findings]

    def path(self, uid: str, kind: str) -> Path:
        return self.directory / f"v1/2026-11/{uid}.1.{kind}.json"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def test_a_day_that_is_over_and_closed_becomes_one_file_and_nothing_is_lost(ledger: Ledger) -> None:
    ledger.add("a")
    ledger.add("b", project="llm", fixed_usd=Decimal(1), committed_usd=Decimal(3))
    before = ledger.store.books
    assert ledger.compact() == (TODAY,)
    assert ledger.files() == [PACKED]
    assert ledger.store.books == before
    assert ledger.restarted().books == before
    asyncio.run(ledger.store.refresh())
    assert ledger.store.books == before
    assert ledger.findings() == []


def test_a_day_waits_for_two_days_and_for_its_last_attempt(ledger: Ledger) -> None:
    ledger.add("a")
    ledger.add("b", closed=False)
    assert ledger.compact() == ()
    asyncio.run(ledger.store.close(Closing(Attempt("b", 1), NOON, NOON + 60, Decimal("0.033334"), "finished")))
    assert ledger.compact(NOON + 2 * DAY) == ()
    assert ledger.compact() == (TODAY,)


def test_days_are_packed_oldest_first_and_as_many_as_asked_for(ledger: Ledger) -> None:
    for days in range(3):
        ledger.add(f"job-{days}", opened_at=NOON - days * DAY)
    assert ledger.compact(most_days=2) == ("2026-11-19", "2026-11-20")
    assert ledger.compact() == (TODAY,)
    assert ledger.compact() == ()


def test_nothing_is_packed_while_in_doubt_or_by_a_reader(ledger: Ledger) -> None:
    ledger.add("a")
    assert asyncio.run(Store(ledger.directory.as_uri(), Clock(), OWNER).compact(NOON + 4 * DAY)) == ()
    reader = ledger.restarted(None)
    with pytest.raises(StoreDown, match="only to be read"):
        asyncio.run(reader.compact(NOON + 4 * DAY))
    with pytest.raises(StoreDown, match="only to be read"):
        asyncio.run(reader.open(an_opening()))
    assert len(ledger.files()) == 2


class Crash(Exception):
    """The agent dies here."""


def crashing(monkeypatch: pytest.MonkeyPatch, method: str, calls: int) -> None:
    """Let the agent die instead of its so-many-th write or deletion."""
    real: Callable[..., Any] = getattr(Bucket, method)
    left = [calls]

    async def crash(self: Bucket, *arguments: Any) -> Any:
        if not left[0]:
            raise Crash
        left[0] -= 1
        return await real(self, *arguments)

    monkeypatch.setattr(Bucket, method, crash)


@pytest.mark.parametrize(("method", "calls"), [("create", 0), ("delete", 0), ("delete", 1)])
def test_a_crash_at_any_step_leaves_the_same_books(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, method: str, calls: int
) -> None:
    for uid in ("a", "b"):
        ledger.add(uid)
    before = ledger.store.books
    with monkeypatch.context() as patched:
        crashing(patched, method, calls)
        with pytest.raises(Crash):
            ledger.compact()
    assert ledger.restarted().books == before
    assert ledger.findings() == []
    assert ledger.compact() == (TODAY,)
    assert ledger.files() == [PACKED]
    assert ledger.restarted().books == before


def test_a_closing_that_was_left_behind_does_not_open_its_attempt_again_after_years(ledger: Ledger) -> None:
    ledger.add("a")
    left = ledger.path("a", "close")
    content = left.read_bytes()
    ledger.compact()
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(content)
    ledger.now = NOON + 900 * DAY
    books = ledger.restarted().books
    assert books is not None
    assert not books.openings
    assert ledger.compact(ledger.now) == (TODAY,)
    assert ledger.files() == [PACKED]


def test_two_agents_that_pack_at_once_lose_nothing(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.add("a")
    before = ledger.store.books
    real = Bucket.create

    async def second_comes_first(self: Bucket, path: str, content: bytes) -> bool:
        await real(self, path, content)
        return await real(self, path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "create", second_comes_first)
        assert ledger.compact() == ()
    assert ledger.compact() == (TODAY,)
    assert ledger.restarted().books == before


def test_a_single_entry_that_differs_from_its_day_is_kept_reported_and_not_believed(ledger: Ledger) -> None:
    ledger.add("a")
    before = ledger.store.books
    saved = {kind: ledger.path("a", kind).read_bytes() for kind in ("open", "close")}
    ledger.compact()
    ledger.path("a", "open").parent.mkdir(exist_ok=True)
    ledger.path("a", "open").write_bytes(saved["open"])
    forged = json.loads(saved["close"]) | {"usd": "0"}
    ledger.path("a", "close").write_text(json.dumps(forged))
    assert ledger.restarted().books == before
    assert ledger.compact() == (TODAY,), "the identical opening goes"
    assert ledger.compact() == ()
    assert ledger.findings() == [("v1/2026-11/a.1.close.json", f"differs from {PACKED}, which is believed")]


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:-1],
        lambda lines: [*lines[:1], *lines[2:]],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [line.replace(b'"0.500000"', b'"0.400000"') for line in lines],
        lambda lines: [],
        lambda lines: [b"\n"],
        lambda lines: [b"[" * 100_000],
    ],
)
def test_a_damaged_day_stops_new_money_while_it_can_count_and_never_for_ever(
    ledger: Ledger, damage: Callable[[Sequence[bytes]], Sequence[bytes]]
) -> None:
    ledger.add("a")
    ledger.compact()
    file = ledger.directory / PACKED
    good = file.read_bytes()
    file.write_bytes(b"".join(damage(good.splitlines(keepends=True))))
    assert ledger.restarted().books is None
    assert [path for path, _ in ledger.findings()] == [PACKED]
    ledger.now = NOON + 100 * DAY
    assert ledger.restarted().books is not None
    ledger.now = NOON
    file.write_bytes(good)
    assert ledger.restarted().books is not None


def test_a_day_that_does_not_read_back_is_taken_away_and_the_entries_stay(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.add("a")
    with monkeypatch.context() as patched:
        patched.setattr("runtime.store.compaction.days.to_bytes", lambda _: b"rubbish")
        with pytest.raises(CorruptEntry, match="did not read back"):
            ledger.compact()
    assert len(ledger.files()) == 2
    assert ledger.compact() == (TODAY,)


def test_a_damaged_single_entry_keeps_its_day_from_being_packed(ledger: Ledger) -> None:
    ledger.add("a")
    ledger.add("b")
    ledger.path("b", "close").write_bytes(b"half")
    assert ledger.compact() == ()
    assert len(ledger.files()) == 4


def test_a_month_of_years_ago_is_packed_by_hand_however_large(ledger: Ledger) -> None:
    for number in range(5):
        ledger.add(f"job-{number}")
    bucket = Bucket(ledger.directory.as_uri())
    assert asyncio.run(Compactor(bucket, most_reads=4).run(NOON + 900 * DAY, 9)) == ()
    assert asyncio.run(Compactor(bucket, most_reads=None).run(NOON + 900 * DAY, 9)) == (TODAY,)


def test_equal_days_give_equal_bytes_and_read_back() -> None:
    openings = {one.attempt: one for one in (an_opening(attempt=Attempt(uid, 1)) for uid in ("a", "b"))}
    closings = {key: close(one, NOON, NOON + 7.25, "finished") for key, one in openings.items()}
    day = Day(TODAY, openings, closings)
    assert from_bytes(TODAY, to_bytes(day)) == day
    backwards = Day(TODAY, dict(reversed(openings.items())), dict(reversed(closings.items())))
    assert to_bytes(backwards) == to_bytes(day)
    with pytest.raises(CorruptEntry):
        from_bytes("2026-11-22", to_bytes(day))


TOP_UP = TopUp("t-1", "fleet", Decimal(5), "deadline", "ada", NOON, NOON + DAY)


def test_a_top_up_is_recorded_once_and_read_by_the_next_leader(ledger: Ledger) -> None:
    assert asyncio.run(ledger.store.add_top_up(TOP_UP)) == TOP_UP
    other = Ledger(ledger.directory)
    assert asyncio.run(other.store.add_top_up(replace(TOP_UP, usd=Decimal(500)))) == TOP_UP
    assert other.store.books is not None
    assert other.store.books.top_ups == {"t-1": TOP_UP}


def test_a_top_up_that_cannot_be_read_does_not_count_and_stops_nothing(ledger: Ledger) -> None:
    asyncio.run(ledger.store.add_top_up(TOP_UP))
    (ledger.directory / "v1/top-ups/t-1.json").write_text("{}")
    (ledger.directory / "v1/top-ups/t-2.json").write_text(json.dumps({"v": 2}))
    books = ledger.restarted().books
    assert books is not None
    assert not books.top_ups
    assert [path for path, _ in ledger.findings()][-2:] == ["v1/top-ups/t-1.json", "v1/top-ups/t-2.json"]


def test_old_top_ups_are_forgotten_and_not_read_again(ledger: Ledger) -> None:
    asyncio.run(ledger.store.add_top_up(TOP_UP))
    ledger.now = NOON + 100 * DAY
    asyncio.run(ledger.store.refresh())
    assert ledger.store.books is not None
    assert not ledger.store.books.top_ups


def test_an_old_release_entry_still_reads_as_one_of_no_project(ledger: Ledger) -> None:
    ledger.add("a")
    entry = json.loads(ledger.path("a", "open").read_text())
    ledger.path("a", "open").write_text(
        json.dumps({k: v for k, v in entry.items() if k not in {"project", "fixed_usd"}} | {"v": 1})
    )
    books = ledger.restarted().books
    assert books is not None
    assert books.openings[Attempt("a", 1)].project == ""


def test_a_sound_ledger_is_counted(ledger: Ledger) -> None:
    ledger.add("a")
    ledger.compact()
    ledger.add("b", closed=False, opened_at=NOON + DAY)
    report = ledger.verified()
    assert (report.openings, report.closings, report.open_attempts) == (2, 1, 1)
    assert (report.day_files, report.single_entries, report.owner) == (1, 1, OWNER)
    assert report.findings == []
    read = asyncio.run(history(Bucket(ledger.directory.as_uri())))
    assert {attempt.workload_uid for attempt in read.attempts} == {"a", "b"}


def test_what_does_not_follow_is_found_with_its_place(ledger: Ledger) -> None:
    for uid in ("early", "cheap", "lost", "moved", "half"):
        ledger.add(uid)

    def change(uid: str, **fields: Any) -> None:
        path = ledger.path(uid, "close")
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    change("early", started_at=NOON - 60)
    change("cheap", usd="0.1")
    ledger.path("lost", "open").unlink()
    moved = ledger.directory / "v1/2026-10/moved.1.open.json"
    moved.parent.mkdir()
    moved.write_bytes(ledger.path("moved", "open").read_bytes())
    ledger.path("half", "open").write_bytes(b"{")
    (ledger.directory / "v1/owner.json").unlink()
    assert ledger.findings() == [
        ("v1/2026-10/moved.1.open.json", "was opened in 2026-11"),
        ("v1/2026-11/cheap.1.close.json", "cheap.1 cost 0.1 USD, and 0.500000 USD follow from its times and its price"),
        ("v1/2026-11/early.1.close.json", "early.1 started before it was opened"),
        (
            "v1/2026-11/half.1.open.json",
            "cannot be read: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ("v1/2026-11/lost.1.close.json", "has no opening, so it counts nowhere"),
        ("v1/2026-11/moved.1.open.json", "stands in 2026-10 too, so it may count twice"),
        ("v1/owner.json", "is missing, so that another cluster could claim the ledger"),
    ]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"\xff", b'{"cluster": "a"}', b'{"cluster":"a","replay_speed":"x"}', b"[" * 100_000]
)
def test_an_owner_that_cannot_be_read_is_found_and_moves_no_money(ledger: Ledger, content: bytes) -> None:
    (ledger.directory / "v1/owner.json").write_bytes(content)
    assert [path for path, _ in ledger.findings()] == ["v1/owner.json"]
    with pytest.raises(StoreDown, match="owner"):
        ledger.restarted()


def test_an_empty_ledger_is_right(tmp_path: Path) -> None:
    report = asyncio.run(verify(Bucket(tmp_path.as_uri())))
    assert (report.openings, report.owner, report.findings) == (0, None, [])
