from __future__ import annotations

import os

import pytest

from infra.commands.columns import columns, note


def test_numbers_stand_to_the_right_and_empty_cells_are_dashes() -> None:
    assert columns(["JOB", "GPUS", "PLACE"], [["a", 8, None], ["bbbb", 16, 2]]) == [
        "JOB   GPUS  PLACE",
        "a        8      -",
        "bbbb    16      2",
    ]


def test_a_table_without_rows_is_its_heading() -> None:
    assert columns(["A", "B"], []) == ["A  B"]


def test_a_long_cell_is_not_shortened() -> None:
    assert columns(["A"], [["x" * 300]])[1] == "x" * 300


def test_every_line_has_as_many_words_as_the_heading() -> None:
    assert {len(line.split()) for line in columns(["A", "B", "C"], [["", 0, None], [1, "x", ""]])} == {3}


def test_a_note_stays_on_one_line_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: False)

    assert note("word " * 50) == ["    " + "word " * 50]


def test_a_note_is_wrapped_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((80, 24)))

    lines = note("word " * 50)

    assert len(lines) > 1
    assert all(len(line) <= 80 and line.startswith("    word") for line in lines)
