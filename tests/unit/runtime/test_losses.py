from __future__ import annotations

import asyncio
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import REGISTRY

from runtime.clock import Clock
from runtime.cost.entries import EntryError, loss_from_dict, loss_to_dict
from runtime.cost.ledger import Attempt, close
from runtime.cost.losses import Loss, LossKey, check, recordable
from runtime.errors import CorruptEntry, StoreDown
from runtime.store import Bucket, Owner, Report, Store, history, verify
from runtime.store.days import LossDay, losses_from_bytes, losses_to_bytes
from runtime.store.walk import losses_of
from tests.builders import HOUR, NOON, an_opening
from tests.unit.runtime.losses import a_loss

DAY = 24 * HOUR
OWNER = Owner("cluster-1", 1.0)
TODAY = "2026-11-21"
SINGLE = "v1/losses/2026-11/21/job-1.1.json"
PACKED = f"v1/losses/days/{TODAY}.jsonl"
ENTRY = loss_to_dict(a_loss())


class Ledger:
    """A ledger in a directory, with an agent that lives when the test says."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.now = NOON
        self.store = self.restarted()

    def restarted(self) -> Store:
        self.store = Store(self.directory.as_uri(), Clock(real_now=lambda: self.now), OWNER)
        asyncio.run(self.store.refresh())
        return self.store

    def lose(self, loss: Loss) -> Loss:
        return asyncio.run(self.store.lose(loss))

    def compact(self, now: float = NOON + 4 * DAY, most_days: int = 1) -> tuple[str, ...]:
        return asyncio.run(self.store.compact(now, most_days))

    def losses(self) -> dict[LossKey, Loss]:
        assert self.store.books is not None
        return dict(self.store.books.losses)

    def files(self) -> list[str]:
        paths = (path.relative_to(self.directory) for path in (self.directory / "v1").rglob("*") if path.is_file())
        return sorted(str(path) for path in paths if path.name != "owner.json")

    def write(self, path: str, content: bytes) -> None:
        (self.directory / path).parent.mkdir(parents=True, exist_ok=True)
        (self.directory / path).write_bytes(content)

    def verified(self) -> Report:
        return asyncio.run(verify(Bucket(self.directory.as_uri())))

    def findings(self) -> list[tuple[str, str]]:
        return [(finding.path, finding.what) for finding in self.verified().findings]


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger")


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_a_loss_reads_back_as_it_was_written() -> None:
    for loss in (a_loss(), a_loss(step=None, checkpoint_at=None, url="", request="", nodes=(), answered=False)):
        assert loss_from_dict(json.loads(json.dumps(loss_to_dict(loss)))) == loss


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"v": 3}, "version 3 is not 1 or 2"),
        ({"colour": "red"}, "missing or unknown fields colour"),
        ({"workload_uid": "../../etc"}, "workload_uid must be the UID of a Workload"),
        ({"workload_uid": ""}, "workload_uid must be"),
        ({"kind": "Spot!"}, "kind must be that of a notice"),
        ({"team": ""}, "team must have 1 to 1,024 characters"),
        ({"url": "x" * 1_025}, "url must have 0 to 1,024 characters"),
        ({"nodes": "n1"}, "nodes must be a list of texts"),
        ({"nodes": [""]}, "nodes must be at most 5,000 names"),
        ({"nodes": ["n"] * 5_001}, "nodes must be at most 5,000 names"),
        ({"number": 0}, "number counts from 1"),
        ({"step": -1}, "step must be a whole number"),
        ({"step": 2**63}, "step must be at most"),
        ({"step": 1.5}, "step must be a whole number"),
        ({"answered": 1}, "answered must be true or false"),
        ({"noticed_at": NOON + 1}, "must follow each other"),
        ({"gone_at": NOON - 1}, "must follow each other"),
        ({"checkpoint_at": NOON + 1}, "is after stopped_at"),
        ({"lost_gpu_seconds": -1}, "lost_gpu_seconds must be a finite number of GPU-seconds"),
        ({"lost_gpu_seconds": math.inf}, "lost_gpu_seconds must be a finite number of GPU-seconds"),
        ({"lost_gpu_seconds": math.nan}, "lost_gpu_seconds must be a finite number of GPU-seconds"),
        ({"lost_gpu_seconds": "9"}, "lost_gpu_seconds must be a number of GPU-seconds"),
        ({"stopped_at": 1e12}, "stopped_at must be a finite number of seconds"),
    ],
)
def test_an_impossible_loss_is_refused_by_the_name_of_its_field(change: dict[str, Any], said: str) -> None:
    with pytest.raises(EntryError, match=said):
        loss_from_dict(ENTRY | change)


def test_a_thousand_gpus_may_lose_a_month() -> None:
    lost = 20_000 * 31 * DAY
    assert loss_from_dict(ENTRY | {"lost_gpu_seconds": lost}).lost_gpu_seconds == lost


@given(
    st.builds(
        lambda **changes: replace(a_loss(), **changes),
        noticed_at=st.floats(0, 2 * NOON),
        gone_at=st.floats(0, 2 * NOON),
        step=st.none() | st.integers(),
        url=st.text(max_size=5) | st.just("x" * 9_999),
        nodes=st.lists(st.text(min_size=1, max_size=3)).map(tuple),
        checkpoint_at=st.none() | st.floats(),
        lost_gpu_seconds=st.floats(max_value=1e15),
    )
)
@settings(max_examples=60)
def test_no_clock_and_no_pod_can_keep_a_loss_out_of_the_ledger(loss: Loss) -> None:
    made = recordable(loss)
    assert recordable(made) == made
    assert loss_from_dict(json.loads(json.dumps(loss_to_dict(check(made))))) == made


def test_a_loss_is_written_once_where_people_find_it_and_read_by_the_next_leader(ledger: Ledger) -> None:
    assert ledger.lose(a_loss()) == a_loss()
    assert ledger.files() == [SINGLE]
    assert ledger.lose(a_loss(lost_gpu_seconds=9.0)) == a_loss()
    other = Ledger(ledger.directory)
    assert other.losses() == {LossKey("job-1", 1): a_loss()}
    assert other.lose(a_loss(gone_at=NOON + HOUR)) == a_loss()
    assert ledger.files() == [SINGLE]


def test_of_two_leaders_at_once_the_first_loss_stands(ledger: Ledger) -> None:
    other = Ledger(ledger.directory)
    ledger.lose(a_loss())
    assert other.lose(a_loss(lost_gpu_seconds=9.0)) == a_loss()
    assert other.losses() == ledger.losses()


def test_losses_of_one_job_are_told_apart_by_their_number(ledger: Ledger) -> None:
    ledger.lose(a_loss())
    ledger.lose(a_loss(number=2, stopped_at=NOON + HOUR, request=""))
    ledger.lose(a_loss(number=3, stopped_at=NOON + 2 * HOUR, request=""))
    assert sum(loss.lost_gpu_seconds for loss in ledger.losses().values()) == 540


@pytest.mark.parametrize("change", [{"workload_uid": "../x"}, {"stopped_at": 1e12}, {"stopped_at": math.nan}])
def test_what_cannot_be_a_loss_is_not_written_and_stops_nobody(ledger: Ledger, change: dict[str, Any]) -> None:
    with pytest.raises(CorruptEntry):
        ledger.lose(replace(a_loss(), **change))
    assert ledger.files() == []
    assert ledger.store.books is not None


def test_a_reader_and_an_agent_in_doubt_write_no_loss(ledger: Ledger) -> None:
    with pytest.raises(StoreDown, match="only to be read"):
        asyncio.run(Store(ledger.directory.as_uri(), Clock(), None).lose(a_loss()))
    with pytest.raises(StoreDown, match="in doubt"):
        asyncio.run(Store(ledger.directory.as_uri(), Clock(), OWNER).lose(a_loss()))


def test_a_day_of_losses_is_packed_apart_from_attempts_that_are_still_open(ledger: Ledger) -> None:
    opening = an_opening(attempt=Attempt("job-1", 1), opened_at=NOON)
    asyncio.run(ledger.store.open(opening))
    for number in (1, 2):
        ledger.lose(a_loss(number=number))
    before = ledger.store.books
    assert ledger.compact(NOON + DAY) == ()
    assert ledger.compact() == (TODAY,)
    assert ledger.files() == ["v1/2026-11/job-1.1.open.json", PACKED]
    assert ledger.store.books == before
    assert ledger.restarted().books == before
    assert ledger.findings() == []
    asyncio.run(ledger.store.close(close(opening, NOON, NOON + 60, "finished")))
    assert ledger.compact() == (TODAY,)
    assert ledger.compact() == ()
    assert ledger.losses() == {key: a_loss(number=key.number) for key in (LossKey("job-1", 1), LossKey("job-1", 2))}


def test_days_of_losses_are_packed_oldest_first_and_as_many_as_asked_for(ledger: Ledger) -> None:
    for days in range(3):
        ledger.lose(a_loss(number=days + 1, stopped_at=NOON - days * DAY))
    assert ledger.compact(most_days=2) == ("2026-11-19", "2026-11-20")
    assert ledger.compact() == (TODAY,)


def test_a_loss_that_comes_after_its_day_was_packed_counts_and_is_counted_once(ledger: Ledger) -> None:
    ledger.lose(a_loss())
    ledger.compact()
    ledger.lose(a_loss(number=2))
    assert ledger.compact() == ()
    assert len(ledger.restarted().books.losses) == 2  # type: ignore[union-attr]
    assert ledger.findings() == []
    assert ledger.verified().losses == 2


def test_a_day_that_another_agent_packs_at_the_same_moment_loses_none_that_it_had_not_seen(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2):
        ledger.lose(a_loss(number=number))
    real = Bucket.create

    async def another_comes_first(self: Bucket, path: str, content: bytes) -> bool:
        theirs = losses_to_bytes(LossDay(TODAY, {a_loss().key: a_loss()}))
        assert await real(self, path, theirs)
        return await real(self, path, content)

    with monkeypatch.context() as patched:
        patched.setattr(Bucket, "create", another_comes_first)
        assert ledger.compact() == ()
    assert ledger.compact() == (TODAY,)
    assert len(ledger.restarted().books.losses) == 2  # type: ignore[union-attr]
    assert ledger.findings() == []


def test_a_single_loss_that_differs_from_its_day_is_kept_reported_and_not_believed(ledger: Ledger) -> None:
    ledger.lose(a_loss())
    before = ledger.losses()
    ledger.compact()
    ledger.write(SINGLE, json.dumps(ENTRY | {"lost_gpu_seconds": 9}).encode())
    assert ledger.restarted().books.losses == before  # type: ignore[union-attr]
    assert ledger.compact() == ()
    assert ledger.findings() == [(SINGLE, f"differs from {PACKED}, which is believed")]


def test_losses_in_the_wrong_place_are_found(ledger: Ledger) -> None:
    ledger.lose(a_loss())
    wrong = "v1/losses/2026-10/07/job-1.1.json"
    ledger.write(wrong, (ledger.directory / SINGLE).read_bytes())
    ledger.write("v1/losses/2026-11/21/job-2.1.json", (ledger.directory / SINGLE).read_bytes())
    assert ledger.findings() == [
        (wrong, "was stopped on 2026-11-21"),
        (SINGLE, f"loss 1 of job-1 stands in {wrong} too"),
        (
            "v1/losses/2026-11/21/job-2.1.json",
            "cannot be read: holds another loss, LossKey(workload_uid='job-1', number=1)",
        ),
    ]
    assert len(ledger.restarted().books.losses) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("content", [b"", b"{", b'{"v":2}', b"null", b"\xff", b"[" * 100_000])
def test_a_loss_that_cannot_be_read_does_not_count_and_stops_nothing(ledger: Ledger, content: bytes) -> None:
    ledger.lose(a_loss())
    ledger.write("v1/losses/2026-11/21/job-2.1.json", content)
    ledger.write(f"v1/losses/days/{TODAY}.jsonl", content)
    assert ledger.restarted().books is not None
    assert list(ledger.losses()) == [LossKey("job-1", 1)]
    assert [path for path, _ in ledger.findings()] == ["v1/losses/2026-11/21/job-2.1.json", PACKED]
    assert value("gpufleet_ledger_corrupt_entries") == 2
    with pytest.raises(CorruptEntry):
        ledger.lose(a_loss("job-2"))
    assert ledger.store.books is not None
    assert ledger.compact() == (), "a day with a damaged entry is not packed"


def test_a_ledger_of_before_there_were_losses_reads_as_ever(ledger: Ledger) -> None:
    asyncio.run(ledger.store.open(an_opening()))
    report = ledger.verified()
    assert (report.losses, report.findings) == (0, [])
    assert not ledger.losses()


def test_what_is_not_ours_is_passed_over(ledger: Ledger) -> None:
    for name in (
        "readme.txt",
        "2026-11/21/a.json",
        "2026-11/99/a.1.json",
        "days/yesterday.jsonl",
        "days/2026-99-01.jsonl",
    ):
        ledger.write(f"v1/losses/{name}", b"hello")
    assert ledger.restarted().books is not None
    assert ledger.findings() == []


def test_old_losses_are_forgotten_and_never_recorded_anew(ledger: Ledger) -> None:
    ledger.lose(a_loss())
    ledger.compact()
    ledger.now = NOON + 100 * DAY
    asyncio.run(ledger.store.refresh())
    assert not ledger.losses()
    assert not ledger.restarted().books.losses  # type: ignore[union-attr]
    ledger.lose(a_loss())
    assert ledger.compact(ledger.now) == (TODAY,)
    assert ledger.files() == [PACKED]
    assert ledger.verified().losses == 1


def test_the_whole_ledger_and_one_job_are_read_with_their_losses(ledger: Ledger) -> None:
    ledger.lose(a_loss(stopped_at=NOON - 40 * DAY))
    ledger.compact()
    ledger.lose(a_loss(number=2))
    ledger.lose(a_loss("job-2"))
    bucket = Bucket(ledger.directory.as_uri())
    assert len(asyncio.run(history(bucket)).losses) == 3
    assert [loss.number for loss in asyncio.run(losses_of(bucket, "job-1", NOON - 50 * DAY))] == [1, 2]
    assert [loss.number for loss in asyncio.run(losses_of(bucket, "job-1", NOON - DAY))] == [2]
    assert asyncio.run(losses_of(bucket, "job-3", 0.0)) == []


def test_equal_days_give_equal_bytes_and_a_damaged_day_is_refused_whole() -> None:
    losses = {one.key: one for one in (a_loss(), a_loss("a"), a_loss(number=10), a_loss(number=9))}
    content = losses_to_bytes(LossDay(TODAY, losses))
    assert content == losses_to_bytes(LossDay(TODAY, dict(reversed(losses.items()))))
    assert losses_from_bytes(TODAY, content) == LossDay(TODAY, losses)
    damaged: list[tuple[str, bytes]] = [
        ("2026-11-22", content),
        (TODAY, content.replace(b"180.0", b"181.0")),
        (TODAY, content[:-9]),
        (TODAY, b""),
    ]
    for day, wrong in damaged:
        with pytest.raises(CorruptEntry):
            losses_from_bytes(day, wrong)


def test_each_loss_is_counted_once_in_the_metrics(ledger: Ledger) -> None:
    def counted() -> tuple[float, float]:
        labels = {"team": "vision", "job_class": "p1", "kind": "spot-interruption"}
        evictions = value("gpufleet_evictions_total", **labels, answered="true")
        return evictions, value("gpufleet_lost_gpu_seconds_total", **labels)

    evictions, lost = counted()
    for _ in range(3):
        ledger.lose(a_loss())
        ledger.restarted()
    assert counted() == (evictions + 1, lost + 180)


class Fault(Enum):
    """What befalls one write or deletion."""

    NONE = "it is done"
    LOST = "the store is away, and nothing was done"
    UNANSWERED = "it is done, and the answer was lost"
    DIES_BEFORE = "the agent dies before it"
    DIES_AFTER = "the agent dies after it"


class Died(Exception):
    """The agent is no more."""


FAULTS = st.sampled_from([Fault.NONE, Fault.NONE, *Fault])
DEEDS = st.tuples(st.sampled_from(["lose", "lose", "lose", "pack", "look"]), st.integers(1, 4), st.integers(0, 3))


def faulty(real: Callable[..., Any], faults: Iterator[Fault]) -> Callable[..., Any]:
    async def call(self: Bucket, *arguments: Any) -> Any:
        fault = next(faults, Fault.NONE)
        if fault is Fault.DIES_BEFORE:
            raise Died
        if fault is Fault.LOST:
            raise StoreDown("away")
        done = await real(self, *arguments)
        if fault is Fault.DIES_AFTER:
            raise Died
        if fault is Fault.UNANSWERED:
            raise StoreDown("no answer")
        return done

    return call


@given(st.lists(DEEDS, max_size=12), st.lists(FAULTS, max_size=25))
@settings(max_examples=25, deadline=None)
def test_no_outage_and_no_crash_between_two_writes_counts_a_loss_twice_or_loses_one(
    deeds: list[tuple[str, int, int]], faults: list[Fault]
) -> None:
    """The agent tries a loss until it is recorded, each time with what it then knows; the first that stands counts."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patched:
        ledger = Ledger(Path(directory))
        befall = iter(faults)
        for method in ("create", "delete"):
            patched.setattr(Bucket, method, faulty(getattr(Bucket, method), befall))
        told: dict[LossKey, Loss] = {}
        tried: Counter[LossKey] = Counter()

        def do(deed: str, number: int, days: int) -> None:
            if deed == "pack":
                ledger.compact(NOON + 4 * DAY, most_days=9)
            elif deed == "look":
                asyncio.run(ledger.store.refresh())
            else:
                key = LossKey("job-1", number)
                tried[key] += 1
                loss = a_loss(number=number, stopped_at=NOON - number % 2 * DAY, lost_gpu_seconds=tried[key] * 100.0)
                stands = ledger.lose(replace(loss, gone_at=loss.gone_at + days))
                assert told.setdefault(key, stands) == stands

        for deed in deeds:
            try:
                do(*deed)
            except StoreDown:
                continue
            except Died:
                revive(ledger)
        patched.undo()
        ledger.restarted()
        for key in sorted(tried, key=lambda key: key.number):
            do("lose", key.number, 0)
        do("pack", 0, 0)
        assert ledger.losses() == told
        assert ledger.restarted().books.losses == told  # type: ignore[union-attr]
        assert asyncio.run(history(Bucket(ledger.directory.as_uri()))).losses == told
        assert ledger.findings() == []
        packed = {path for path in ledger.files() if path.endswith(".jsonl")}
        assert len(packed) == len({loss.stopped_at for loss in told.values()})


def revive(ledger: Ledger) -> None:
    """Start the agent again, until the store lets it."""
    for _ in range(40):
        try:
            ledger.restarted()
        except (StoreDown, Died):
            continue
        return
    raise AssertionError("the store never came back")
