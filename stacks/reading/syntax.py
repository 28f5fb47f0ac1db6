"""What a person reads about text that is not YAML, or holds characters that mislead.

It does not read YAML; it explains what PyYAML said, at the place where the mistake is and not where it was noticed.
"""

from __future__ import annotations

import re
from typing import Final

import yaml
from yaml import Mark

from stacks.problems import Place, Problem

# YAML 1.1 and 1.2 (section 5.1) allow these characters and four more: a byte order mark, which only misleads within a
# text; and three that end a line for YAML but not for editors, so that a setting could hide in a comment.
_LINE_ENDS: Final = "\x85\u2028\u2029"
_FORBIDDEN: Final = re.compile(
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_CONFLICT: Final = re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE)
_SPACES: Final = "\xa0\u1680\u2000-\u200a\u202f\u205f\u3000"  # what Unicode calls spaces and YAML does not
_STRANGE_INDENTATION: Final = re.compile(f"[ \t]*([\t{_SPACES}])")

_ANCHOR: Final = re.compile(r"&[^\s,\[\]{}]+")
_SIMPLE_KEY: Final = "could not find expected ':'"
_HINTS: Final = {
    "mapping values are not allowed": "quote a text that holds ': ', or mend the indentation",
    "undefined alias": "quote a text that begins with *, or define it with & first",
    "cannot start any token": "quote a text that begins with @, ` or %",
    _SIMPLE_KEY: "is a space missing after the colon?",
    "scanning a quoted scalar": "close the quote that is opened here",
    "parsing a flow": "is a bracket or a comma missing?",
}
"""What to say beside the parser's words, by a part of them."""


def strange_character(text: str, name: str) -> Problem | None:
    """The first character that may not stand in a stack file."""
    found = _FORBIDDEN.search(text)
    if found is None:
        return None
    before = text[: found.start()]
    place = Place(name, before.count("\n") + 1, len(before) - before.rfind("\n"))
    what = "ends a line for YAML, but not for editors" if found[0] in _LINE_ENDS else "may not stand in YAML text"
    reason = f"holds the character U+{ord(found[0]):04X}, which {what}; remove it"
    return place.problem("yaml-syntax", f"{reason}, or write it as an escape in double quotes")


def syntax_problem(error: yaml.MarkedYAMLError, text: str, name: str) -> Problem:
    """The problem that PyYAML's error is, at the place where a person would mend it."""
    if found := _CONFLICT.search(text):
        reason = "the mark of a merge conflict stands here; resolve the conflict"
        return Place(name, text.count("\n", 0, found.start()) + 1, 1).problem("yaml-syntax", reason)
    mark, opened, words = error.problem_mark or error.context_mark, error.context_mark, str(error.problem)
    if mark is not None and "another document" in words:
        reason = "a second document begins here (---); a stack file is one document"
        return place_of(name, mark).problem("yaml-syntax", reason)
    if mark is not None and opened is not None and "duplicate anchor" in str(error.context):
        anchor = _ANCHOR.match(text.splitlines()[mark.line], mark.column)
        reason = f"the anchor {anchor[0] if anchor else ''} is defined twice (first in line {opened.line + 1})"
        return place_of(name, mark).problem("yaml-syntax", f"{reason}; rename one")
    reason = f"not YAML: {error.problem or error.context}"
    if mark is not None and opened is not None and opened.line != mark.line:
        reason += f" ({error.context}"
        if _SIMPLE_KEY in reason or _is_behind(mark, text):
            mark = opened
        else:
            reason += f" that begins in line {opened.line + 1}"
        reason += ")"
    place = _within(text, place_of(name, mark))
    return place.problem("yaml-syntax", reason + _way_out(reason, text, place))


def place_of(name: str, mark: Mark | None) -> Place:
    """Where one of PyYAML's marks points."""
    return Place(name, mark.line + 1, mark.column + 1) if mark else Place(name)


def _within(text: str, place: Place) -> Place:
    """The place, or the end of the text where it lies behind that."""
    lines = text.splitlines() or [""]
    return place if place.line <= len(lines) else Place(place.file, len(lines), len(lines[-1]) + 1)


def _is_behind(mark: Mark, text: str) -> bool:
    """Whether a place is behind the text: where the parser gave up waiting for the end of something."""
    return mark.line >= len(text.rstrip().splitlines())


def _way_out(reason: str, text: str, place: Place) -> str:
    """What usually leads to such an error, for those where the parser's words do not tell."""
    for line in text.splitlines()[max(place.line - 2, 0) : place.line]:
        if found := _STRANGE_INDENTATION.match(line):
            what = "a tab" if found[1] == "\t" else f"the space U+{ord(found[1]):04X}"
            return f"; {what} stands in the indentation, where YAML takes only plain spaces"
    return next((f"; {hint}" for words, hint in _HINTS.items() if words in reason), "")
