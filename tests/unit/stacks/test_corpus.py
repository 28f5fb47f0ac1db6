"""Every wrong file of the corpus is refused with exactly the lines that stand beside it.

`tests/corpus/<topic>/<name>.yaml` is wrong and `<name>.expected` beside it is what is said about it; files that cannot
be plain text are made by `tests/corpus/built.py`. With `--update-golden` the expected lines are written instead; they
are what people read when something is wrong, so each is read by a person before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.load import ConfigError, Problem, read_file, read_text
from tests.corpus.built import BUILT, GOOD
from tests.corpus.wording import assert_is_for_people

CORPUS = Path(__file__).parents[2] / "corpus"
DISPLAY = "stack.yaml"
WRITTEN = sorted(CORPUS.glob("*/*.yaml"))
FEWEST_CASES = 140
FASTEST = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
NEEDS_ANOTHER_USER = {"unreadable"}
OF_THE_WHOLE_FILE = {"unreadable", "yaml-syntax", "too-large", "not-a-stack-file"}


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def problems_of(path: Path) -> list[Problem]:
    with pytest.raises(ConfigError) as caught:
        read_file(path, display=DISPLAY)
    return caught.value.problems


def compare(problems: list[Problem], expected: Path, *, update: bool) -> None:
    text = "".join(f"{problem}\n" for problem in problems)
    if update:
        expected.parent.mkdir(exist_ok=True)
        expected.write_text(text)
    assert expected.exists(), f"{expected} is missing; run pytest with --update-golden and review what it writes"
    assert text == expected.read_text()


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.mark.parametrize("path", WRITTEN, ids=name_of)
def test_a_written_file_is_refused_with_its_lines_at_places_that_are_there(path: Path, update: bool) -> None:
    problems = problems_of(path)
    compare(problems, path.with_suffix(".expected"), update=update)
    for problem in problems if path.parent.name != "syntax" else ():
        file = path if problem.file == DISPLAY else path.parent / problem.file
        text = file.read_text() if file.is_file() else ""
        assert problem.line <= len(text.splitlines()), problem
        if problem.path and problem.code not in OF_THE_WHOLE_FILE:
            absent = problem.code == "missing-setting"
            assert any(_leads(value, problem.path, absent) for value in _objects(text)), problem


@pytest.mark.parametrize("name", BUILT)
def test_a_built_file_is_refused_with_its_lines(name: str, tmp_path: Path, update: bool) -> None:
    path = tmp_path / "Pulumi.test.yaml"
    BUILT[name](path)
    if name in NEEDS_ANOTHER_USER and _can_read(path):
        pytest.skip("this user may read every file")
    problems = problems_of(path)
    assert all(str(tmp_path) not in str(problem) for problem in problems), "only the name that was given is shown"
    compare(problems, CORPUS / "built" / f"{name}.expected", update=update)


def test_the_file_that_wrong_ones_are_built_from_is_right() -> None:
    assert read_text(GOOD, DISPLAY).warnings == ()


def test_the_corpus_is_large_and_complete() -> None:
    assert len(WRITTEN) + len(BUILT) >= FEWEST_CASES
    wanted = {path.with_suffix(".expected") for path in WRITTEN}
    wanted |= {CORPUS / "built" / f"{name}.expected" for name in BUILT}
    assert set(CORPUS.glob("*/*.expected")) == wanted, (
        "each case has its lines, and no lines are left of a case that is gone"
    )


def test_what_is_said_is_for_people_and_said_once() -> None:
    for path in sorted(CORPUS.glob("*/*.expected")):
        lines = path.read_text().splitlines()
        assert lines, f"{path}: a wrong file without a problem"
        assert len(set(lines)) == len(lines), f"{path}: said twice"
        for line in lines:
            assert_is_for_people(line)


def _objects(text: str) -> Iterator[Any]:
    """What a path may start from: the file, its config, or the object in there."""
    content: Any = yaml.load(text, Loader=FASTEST)
    for key in ("config", "gpufleet:fleet"):
        yield content
        content = content.get(key) if isinstance(content, dict) else None
    yield content


def _leads(value: Any, path: str, absent: bool) -> bool:
    """Whether a path leads to a place, where its last part may be `absent`; keys may hold dots themselves."""
    entries = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    below = {str(key): inner for key, inner in entries}
    inside = (_leads(one, path[len(key) + 1 :], absent) for key, one in below.items() if path.startswith(f"{key}."))
    return path in below or (absent and "." not in path) or any(inside)


def _can_read(path: Path) -> bool:
    try:
        path.read_bytes()
    except PermissionError:
        return False
    return True
