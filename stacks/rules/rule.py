"""What a cross-field rule is: a function of the whole fleet that yields every problem it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stacks.model import Path

if TYPE_CHECKING:
    from stacks.fleet import Fleet


class RuleProblem(NamedTuple):
    """One broken rule: where in the file, the value there, and what to do."""

    path: Path
    value: Any
    reason: str


Rule = Callable[["Fleet"], Iterator[RuleProblem]]
