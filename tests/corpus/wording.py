"""What every line about a wrong file has in common: its shape, and words that it never holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

from stacks.fleet import Fleet
from stacks.model import Model

LONGEST_LINE: Final = 1_200  # characters; a path, a reason and a value, each cut to a length of its own

_LINE: Final = re.compile(r"[^:\s][^:]*(?::[1-9][0-9]*:[1-9][0-9]*)?: \S.*")
_WORDS_OF_THE_MACHINE: Final = re.compile(
    r"Traceback|pydantic|Input should|Value error|Assertion failed|Extra inputs|Field required|input_value|"
    r"function-(?:after|before|wrap|plain)|tagged-union|(?:constrained-)?(?:tuple|dict|list|set|model|literal)\[|"
    r"<class|object at 0x|NoneType"
)
_SECRETS: Final = re.compile("MustNotShow|must-not-show")


def assert_is_for_people(line: str) -> None:
    """Fail unless a line has the shape of a problem, and neither a word of Python's nor a secret of the corpus."""
    assert _LINE.fullmatch(line), line
    assert line.isprintable(), line
    assert len(line) <= LONGEST_LINE, line
    assert not _WORDS_OF_THE_MACHINE.search(line), line
    assert not _SECRETS.search(line), line
    assert not _class_names() & set(re.findall(r"\w+", line)), line


@cache
def _class_names() -> frozenset[str]:
    """The names of the models that are no English words."""
    names = {Fleet.__name__} | {model.__name__ for model in _subclasses(Model)}
    return frozenset(name for name in names if re.search(r"[a-z][A-Z]", name))


def _subclasses(model: type[Model]) -> Iterator[type[Model]]:
    for one in model.__subclasses__():
        yield one
        yield from _subclasses(one)
