"""Text that is hostile, or simply not what YAML is."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.load import ConfigError, Problem, load_file, load_text
from stacks.reading import document
from stacks.reading.document import DEEPEST, compose
from stacks.reading.positions import Positions
from stacks.reading.source import LARGEST_BYTES, decode
from stacks.reading.stackfile import find

HEAD = "config:\n  gpufleet:fleet:\n"


def only_problem(do: Callable[[], object]) -> Problem:
    with pytest.raises(ConfigError) as caught:
        do()
    [problem] = caught.value.problems
    return problem


def problems(text: str) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        load_text(text, "f.yaml")
    return caught.value.problems


def laughs(levels: int) -> str:
    lines = [f"    a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]" for level in range(1, levels)]
    return HEAD + "\n".join(["    a0: &a0 [x, x, x, x, x, x, x, x, x, x]", *lines, ""])


def test_aliases_that_expand_to_billions_are_counted_not_expanded() -> None:
    problem = only_problem(lambda: load_text(laughs(12), "f.yaml"))
    assert problem.code == "too-large"
    assert "aliases make it 1.23e+12 values; at most 500,000 are read" in problem.message


@pytest.mark.parametrize("text", ["&a [*a]", "&a {x: {y: *a}}", "&a {<<: *a}", "{x: &a [[*a]]}"])
def test_an_anchor_that_holds_itself_is_refused(text: str) -> None:
    problem = only_problem(lambda: compose(text, "f.yaml"))
    assert problem.message == "an anchor may not hold its own alias"


@pytest.mark.parametrize("part", ["[", "{", "- ", "? ", "{a: ", "[\n"])
def test_nesting_that_would_overflow_a_stack_is_refused_at_once(part: str) -> None:
    problem = only_problem(lambda: compose(part * 1_000_000, "f.yaml"))
    assert (problem.code, problem.message) == ("too-large", f"is nested more than {DEEPEST} levels deep")


def test_nesting_through_aliases_counts_too() -> None:
    text = "- &a0 [x]\n" + "".join(f"- &a{level} [*a{level - 1}]\n" for level in range(1, 150))
    assert "nest it more than 100 levels" in only_problem(lambda: compose(text, "f.yaml")).message


def test_more_values_than_any_fleet_has_are_refused_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MOST_VALUES", 50)
    assert "holds more than 50 values" in only_problem(lambda: compose("[" + "a," * 60 + "]", "f.yaml")).message


def test_without_libyaml_the_same_tree_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a: [1, '1', x, {<<: {b: c}}]\nd: !!int 5\n"
    fast = compose(text, "f.yaml").root
    loader: Any = type("_Slow", (document._Bounded, yaml.SafeLoader), {})
    monkeypatch.setattr(document, "_Loader", loader)
    slow = compose(text, "f.yaml").root
    assert yaml.serialize(fast) == yaml.serialize(slow)
    assert "levels deep" in only_problem(lambda: compose("[" * 1_000, "f.yaml")).message


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("a:\n\tb: 1\n", 2, "a tab stands in the indentation"),
        ("a: b: c\n", 1, "quote a text that holds ': '"),
        ("a: [1\nb: 2\n", 2, "that begins in line 1"),
        ("a: *none\n", 1, "quote a text that begins with *"),
        ("a: @x\n", 1, "quote a text that begins with @"),
        ("a: 1\n---\nb: 2\n", 2, "a second document begins here"),
        ("b: 1\na: 'x\n", 2, "close the quote that is opened here"),
        ("a: 'x\nb: 1\nc: 2\n", 1, "close the quote that is opened here"),
        ("a:\n  - [1,\n", 2, "not YAML"),
        ("a: [", 1, "not YAML"),
        ("a: 1\nb:2\nc: 3\n", 2, "is a space missing after the colon?"),
        ("a: 1\n<<<<<<< HEAD\nb: 2\n=======\nb: 3\n>>>>>>> x\n", 2, "the mark of a merge conflict"),
        ("a: &x 1\nb: &x 2\n", 2, "the anchor &x is defined twice (first in line 1); rename one"),
        ("a:\n  c: 2\n \u00a0b: 1\n", 3, "the space U+00A0 stands in the indentation"),
        ("%TAG x\n", 1, "not YAML"),
        ("a: 1\n b: 2\n", 2, "mend the indentation"),
    ],
)
def test_a_slip_in_the_syntax_has_its_line_and_a_way_out(text: str, line: int, reason: str) -> None:
    problem = only_problem(lambda: compose(text, "f.yaml"))
    assert problem.code == "yaml-syntax"
    assert problem.line == line
    assert reason in problem.message


@pytest.mark.parametrize(
    ("line", "path", "reason"),
    [
        ("5: x", "5", "is a key that is not text; quote it: '5'"),
        ("~: x", "~", "is a key that is not text"),
        ("true: x", "true", "is a key that is not text"),
        ("2026-01-01: x", "2026-01-01", "is a key that is not text"),
        ("? [a, b]\n    : x", "", "a key is a list or a mapping"),
        ("on_destroy: 2026-01-01", "on_destroy", "is read as a point in time; quote it"),
        ("on_destroy: .nan", "on_destroy", "must be a finite number (got .nan)"),
        ("on_destroy: !!binary aGk=", "on_destroy", "has the tag !!binary"),
        ("on_destroy: !secret x", "on_destroy", "has the tag !secret"),
        ("on_destroy: !!int x", "on_destroy", "has the tag !!int"),
        ("pools: !!set {a}", "pools", "has the tag !!set"),
        ("<<: 5", "", "<< merges mappings only"),
    ],
)
def test_what_pulumi_would_read_as_something_else_is_refused(line: str, path: str, reason: str) -> None:
    found = [problem for problem in problems(f"{HEAD}    {line}\n") if reason in problem.message]
    assert [(problem.line, problem.path) for problem in found] == [(3, path)]


def test_a_merge_sign_that_is_no_key_is_text() -> None:
    assert find(f"{HEAD}    organization: <<\n", "f.yaml").value == {"organization": "<<"}


def test_a_template_that_was_never_filled_in_says_so() -> None:
    found = problems(f"{HEAD}    organization: {{{{ name }}}}\n")
    assert any("quote a text that begins with {" in problem.message for problem in found)


@pytest.mark.parametrize("text", ["---\n", "---", "--- # nothing\n"])
def test_a_text_of_nothing_but_a_marker_is_empty(text: str) -> None:
    assert compose(text, "f.yaml").root is None


def test_merges_are_written_once() -> None:
    found = problems(HEAD + "    pools: {x: &x {}, y: {<<: *x, <<: *x}}\n")
    assert any(problem.message == "is written twice; merge several with <<: [*a, *b]" for problem in found)


@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_a_byte_order_mark_move_no_position(start: str, end: str) -> None:
    content = (start + end.join(["é: 1", "b:", "  - x", ""])).encode()
    places = Positions("f", compose(decode(content, "f"), "f").root)
    assert places.of(("é",)) == ("f", 1, 1)
    assert places.of(("b", 0)) == ("f", 3, 5)


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("a: 1\n".encode("utf-16"), 0, "is UTF-16 text, not UTF-8"),
        ("a: 1\n".encode("utf-32"), 0, "is UTF-32 text, not UTF-8"),
        ("a: 1\n".encode("utf-16-le"), 0, "is UTF-16 or UTF-32 text, not UTF-8"),
        ("a: 1\n".encode("utf-32-be"), 0, "is UTF-16 or UTF-32 text, not UTF-8"),
        (b"a: 1\0\n", 1, "holds the character U+0000"),
        ("a: 1\nb: é\n".encode("latin-1"), 2, "is not UTF-8 text: byte 8 is 0xe9"),
        (b"\xef\xbb\xbfa\n\xff", 2, "is not UTF-8 text: byte 5 is 0xff"),
        (b"a: \x1b[31m\n", 1, "holds the character U+001B, which may not stand in YAML text"),
        (b"\x7fELF\x02\x01", 1, "holds the character U+007F"),
        (b"#" * (LARGEST_BYTES + 1), 0, "is larger than 4,194,304 bytes"),
    ],
)
def test_content_that_is_no_text_is_named_for_what_it_is(
    tmp_path: Path, content: bytes, line: int, reason: str
) -> None:
    file = tmp_path / "f.yaml"
    file.write_bytes(content)
    problem = only_problem(lambda: load_file(file))
    assert problem.line == line
    assert reason in problem.message
    assert str(problem).isprintable()


@pytest.mark.parametrize("character", ["\ud800", "\ufeff", "\ufffe", "\x0c", "\x85", "\u2028", "\u2029"])
def test_characters_that_nobody_sees_are_named(character: str) -> None:
    problem = only_problem(lambda: load_text(f"a: 1\nb: x{character}\n", "f.yaml"))
    assert (problem.line, problem.column) == (2, 5)
    assert f"U+{ord(character):04X}" in problem.message


def test_only_regular_files_are_read_and_nothing_blocks(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        assert "cannot be read" in only_problem(lambda: load_file(tmp_path / "socket")).message
    assert only_problem(lambda: load_file(tmp_path / "pipe")).message == "is a pipe; name a file"
    assert only_problem(lambda: load_file(tmp_path)).message == "is a directory; name a file"
    assert only_problem(lambda: load_file(Path("/dev/zero"))).message == "is a device; name a file"
    assert "NUL" in only_problem(lambda: load_file(Path("a\0b"))).message
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert "cannot be read" in only_problem(lambda: load_file(tmp_path / "loop")).message
    assert "cannot be read" in only_problem(lambda: load_file(tmp_path / ("x" * 300))).message


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.touch(mode=0)
    assert only_problem(lambda: load_file(file)).message == "cannot be read: Permission denied"
