"""Whatever is done to a good file, the reader answers with a fleet or with problems, soon, and with nothing else."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stacks.load import KEY, ConfigError, Problem, Reading, read_object, read_text
from stacks.problems import DESCRIPTIONS
from tests.corpus.wording import assert_is_for_people

STACKS = Path(__file__).parents[3] / "stacks"
TEXTS = [path.read_text() for path in sorted(STACKS.glob("Pulumi.*.yaml"))]
OBJECTS = [yaml.safe_load(text)["config"][KEY] for text in TEXTS]
LONGEST_SECONDS = 5.0  # a file takes milliseconds; anything that grows faster than the file shows here
QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ODD_CHARACTERS = "\0\a\t\n\r\x1b\x7f\x85\xa0é\u200b\u2028\u202e\ufeff\ufffd🚀\ud800 :-#&*!|>'\"%@`,[]{}?<~=\\0e_."
ODD_LINES = ("---", "...", "config:", "  gpufleet:fleet: {}", "  gpufleet:flet: 1", "\t", "%YAML 1.1", "- x", "? y")
# A surrogate half is no character of any file, but an object may hold one.
ODD_VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, 10**400, -(10**30)),
    *(0.0, -0.0, 0.5, 1e308, 5e-324, math.inf, -math.inf, math.nan),
    *("", " ", "x", "null", "true", "1", "1h", "50%", "10 USD", "1e999999999", "0x10", "\0", "\x1b[2J", "\u202e", "\ud800"),
    *("9" * 5_000, "a" * 5_000, "1m" * 2_000, "10.0.0.0/8", "::/0", "*/5 * * * *", "h100", "7x1g.10gb", "🚀"),
    *([], {}, [[]], {"": None}, [None], {"secure": "AAAB"}, {"kind": "eks"}, {"location": "aws"}, ["spot", "spot"], {"0": 1}),
]  # fmt: skip


def check(read: Callable[[], Reading], lines: int) -> None:
    """Read, and look at whatever comes of it."""
    began = time.perf_counter()
    try:
        problems: list[Problem] = list(read().warnings)
    except ConfigError as error:
        problems = error.problems
        assert problems, "an error without a problem"
    assert time.perf_counter() - began < LONGEST_SECONDS
    assert problems == sorted(set(problems))
    for problem in problems:
        assert problem.code in DESCRIPTIONS
        assert problem.line <= lines or "teams" in problem.file, problem
        assert (problem.line > 0) == (problem.column > 0)
        assert_is_for_people(str(problem))


@st.composite
def mutated_texts(draw: st.DrawFn) -> str:
    text = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 3))):
        text = draw(st.sampled_from(TEXT_MUTATIONS))(draw, text)
    return text


def _with_lines(draw: st.DrawFn, text: str) -> str:
    """Delete, double, swap, indent or insert a line."""
    lines = text.split("\n")
    at, other = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
    kind = draw(st.sampled_from(("delete", "double", "swap", "indent", "insert")))
    if kind == "delete":
        del lines[at]
    elif kind == "double":
        lines.insert(other, lines[at])
    elif kind == "swap":
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == "indent":
        spaces = draw(st.sampled_from(("", " ", "  ", "   ", "\t", " " * 50)))
        lines[at] = spaces + (lines[at].lstrip() if draw(st.booleans()) else lines[at])
    else:
        lines.insert(at, draw(st.sampled_from(ODD_LINES)))
    return "\n".join(lines)


def _with_characters(draw: st.DrawFn, text: str) -> str:
    """Replace a few characters by others, or by none."""
    at = draw(st.integers(0, len(text)))
    gone = draw(st.integers(0, 5))
    new = draw(st.text(st.sampled_from(ODD_CHARACTERS) | st.characters(), max_size=4))
    return text[:at] + new + text[at + gone :]


def _cut(draw: st.DrawFn, text: str) -> str:
    """Keep the beginning or the end."""
    at = draw(st.integers(0, len(text)))
    return text[:at] if draw(st.booleans()) else text[at:]


def _with_a_word_replaced(draw: st.DrawFn, text: str) -> str:
    """Replace a word everywhere, as a careless editor does."""
    words = sorted(set(text.replace(",", " ").split()))
    word = draw(st.sampled_from(words)) if words else "x"
    return text.replace(word, draw(st.sampled_from([*words, "*x", "&x y", "<<", "!!x", "{", "|"])))


TEXT_MUTATIONS = (_with_lines, _with_characters, _cut, _with_a_word_replaced)


@st.composite
def mutated_objects(draw: st.DrawFn) -> Any:
    root = {"fleet": deepcopy(draw(st.sampled_from(OBJECTS)))}
    for _ in range(draw(st.integers(1, 3))):
        places = _places(root)
        container, key = draw(st.sampled_from(places))
        draw(st.sampled_from(OBJECT_MUTATIONS))(draw, container, key, places)
        root.setdefault("fleet", None)
    return root["fleet"]


def _places(root: Any) -> list[tuple[Any, Any]]:
    """Every entry of every mapping and list, by what it is in and its key; shared parts once."""
    found: list[tuple[Any, Any]] = []
    pending, seen = [root], set()
    while pending:
        value = pending.pop()
        if isinstance(value, dict | list) and id(value) not in seen:
            seen.add(id(value))
            entries = list(value.items() if isinstance(value, dict) else enumerate(value))
            found += [(value, key) for key, _ in entries]
            pending += [inner for _, inner in entries]
    return found


def _replace(draw: st.DrawFn, container: Any, key: Any, _: list[tuple[Any, Any]]) -> None:
    container[key] = deepcopy(draw(st.sampled_from(ODD_VALUES) | st.text(max_size=9) | st.integers() | st.floats()))


def _delete(_: st.DrawFn, container: Any, key: Any, __: list[tuple[Any, Any]]) -> None:
    del container[key]


def _rename(draw: st.DrawFn, container: Any, key: Any, _: list[tuple[Any, Any]]) -> None:
    """Give an entry another key, or of a list another place; sometimes one that is no text."""
    value = deepcopy(container[key])
    if isinstance(container, list):
        container.insert(draw(st.integers(0, len(container))), value)
        return
    if draw(st.booleans()):
        del container[key]
    longer = [f"{key}x", f"{key}"[1:], f"{key}".upper(), f"{key}.{key}"]
    other = draw(st.sampled_from([*longer, "", "secure", "<<", "kind", "\x1b", "k" * 999, 1, None, True, 0.5]))
    container[other] = value


def _swap(draw: st.DrawFn, container: Any, key: Any, places: list[tuple[Any, Any]]) -> None:
    """Exchange two entries; copies, so that nothing comes to hold itself."""
    other, other_key = draw(st.sampled_from(places))
    first, second = deepcopy(container[key]), deepcopy(other[other_key])
    container[key] = second
    if other_key in other if isinstance(other, dict) else other_key < len(other):
        other[other_key] = first


OBJECT_MUTATIONS = (_replace, _delete, _rename, _swap)


@QUICK
@given(mutated_texts())
def test_any_change_of_the_text_of_a_good_file_gives_a_fleet_or_problems(text: str) -> None:
    behind_the_end = len(text.splitlines()) + 1  # where something is missed that never comes
    check(lambda: read_text(text, "stack.yaml", folder=STACKS), behind_the_end)


@QUICK
@given(mutated_objects())
def test_any_change_of_a_good_object_gives_a_fleet_or_problems(value: Any) -> None:
    check(lambda: read_object(value, "object", folder=STACKS), 0)


def test_an_object_that_holds_itself_gives_a_fleet_or_problems() -> None:
    for key in ("burst", "pools", "teams", "scaling"):
        value: dict[str, Any] = deepcopy(OBJECTS[0])
        value[key] = {"again": value}
        check(lambda value=value: read_object(value, "object", folder=STACKS), 0)  # type: ignore[misc]
