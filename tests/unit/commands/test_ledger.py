from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.clock import Clock
from runtime.store import Owner, Store
from tests.builders import HOUR, NOON
from tests.unit.commands.conftest import Ended
from tests.unit.commands.ledgers import a_ledger, damage
from tests.unit.runtime.losses import a_loss

Run = Callable[..., Ended]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def test_verify_of_a_sound_ledger_counts_it(gpufleet: Run, directory: Path) -> None:
    ended = gpufleet("ledger", "verify", "--ledger", a_ledger(directory, packed=True))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == (
        "3 attempts (1 open), 1 top-ups, 0 losses, 1 packed days, 3 single entries; owner: cluster-1; all is right\n"
    )


def test_verify_names_each_thing_that_is_wrong_and_how_to_mend_it(gpufleet: Run, directory: Path) -> None:
    url = a_ledger(directory)
    damage(directory, "done", usd="0.5")
    ended = gpufleet("ledger", "verify", "--ledger", url)
    assert ended.code == 1
    assert ended.err == (
        "v1/2026-11/done.1.close.json: done.1 cost 0.5 USD, and 2.000000 USD follow from its times and its price; "
        "put the closing back from a copy\n"
    )
    assert ended.out.endswith("1 found wrong\n")
    told = json.loads(gpufleet("ledger", "verify", "--ledger", url, "--json").out)
    assert (told["ok"], told["open_attempts"], len(told["findings"])) == (False, 1, 1)


def test_compact_packs_all_that_is_old_and_loses_nothing(gpufleet: Run, directory: Path) -> None:
    url = a_ledger(directory)
    before = gpufleet("ledger", "export", "--ledger", url).out
    assert "packed 1 day: 2026-11-14" in gpufleet("ledger", "compact", "--ledger", url).out
    assert (directory / "v1/days/2026-11-14.jsonl").is_file()
    assert gpufleet("ledger", "export", "--ledger", url).out == before
    assert json.loads(gpufleet("ledger", "compact", "--ledger", url, "--json").out) == {"packed": []}


def test_compact_of_a_replays_ledger_wants_its_clock(gpufleet: Run, directory: Path) -> None:
    url = a_ledger(directory)
    (directory / "v1/owner.json").write_text('{"cluster": "c", "replay_speed": 60.0}')
    ended = gpufleet("ledger", "compact", "--ledger", url)
    assert ended.code == 1
    assert "leave --ledger out" in ended.err


def test_export_has_a_line_for_each_attempt_and_top_up(gpufleet: Run, directory: Path) -> None:
    ended = gpufleet("ledger", "export", "--ledger", a_ledger(directory, packed=True))
    rows = [json.loads(line) for line in ended.out.splitlines()]
    assert [(row["kind"], row.get("workload_uid")) for row in rows] == [
        ("attempt", "old"),
        ("attempt", "done"),
        ("attempt", "runs"),
        ("top-up", None),
    ]
    assert (rows[0]["usd"], rows[2]["usd"], rows[2]["committed_usd"]) == ("2.000000", None, "2.000000")


def test_losses_are_counted_packed_and_exported(gpufleet: Run, directory: Path) -> None:
    url = a_ledger(directory)

    async def written() -> None:
        store = Store(url, Clock(real_now=lambda: NOON), Owner("cluster-1", 1.0))
        await store.refresh()
        for days in (0, 7):
            await store.lose(a_loss("old", number=days + 1, stopped_at=NOON - days * 24 * HOUR))

    asyncio.run(written())
    assert "1 top-ups, 2 losses, 0 packed days, 7 single entries" in gpufleet("ledger", "verify", "--ledger", url).out
    before = gpufleet("ledger", "export", "--ledger", url).out
    rows = [json.loads(line) for line in before.splitlines()]
    assert [(row["kind"], row["number"], row["notice_kind"]) for row in rows[-2:]] == [
        ("loss", 8, "spot-interruption"),
        ("loss", 1, "spot-interruption"),
    ]
    assert gpufleet("ledger", "compact", "--ledger", url).out == "packed 1 day: 2026-11-14\n"
    assert gpufleet("ledger", "export", "--ledger", url).out == before
    assert "2 losses, 2 packed days, 4 single entries" in gpufleet("ledger", "verify", "--ledger", url).out


def test_export_as_csv_is_read_back_by_any_reader(gpufleet: Run, directory: Path) -> None:
    ended = gpufleet("ledger", "export", "--format", "csv", "--ledger", a_ledger(directory))
    rows = list(csv.DictReader(io.StringIO(ended.out)))
    assert [(row["job"], row["project"], row["usd"]) for row in rows] == [
        ("old", "llm", "2.000000"),
        ("done", "llm", "2.000000"),
        ("runs", "llm", ""),
    ]


def test_export_names_what_it_had_to_leave_out(gpufleet: Run, directory: Path) -> None:
    url = a_ledger(directory)
    [path] = directory.glob("v1/*/done.1.open.json")
    path.write_text("[]")
    ended = gpufleet("ledger", "export", "--ledger", url)
    assert ended.code == 1
    assert "left out: v1/2026-11/done.1.open.json: opening: must be a JSON object, got list" in ended.err
    assert len(ended.out.splitlines()) == 3


def test_a_ledger_that_cannot_be_reached_is_one_message(gpufleet: Run, directory: Path) -> None:
    directory.write_text("a file in the way")
    ended = gpufleet("ledger", "verify", "--ledger", directory.as_uri())
    assert (ended.code, "there is no ledger at" in ended.err) == (1, True)
