"""What every quantity shares: taking text out of a YAML value, and describing itself to editors.

It knows no unit and no format; those belong to the quantity. Everything here raises ValueError and nothing else, and
no text longer than `LONGEST_TEXT` reaches a pattern, so that no input can make a pattern slow.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any, Final

from pydantic import WithJsonSchema

LONGEST_TEXT: Final = 400
"""The longest legal text is a label key: 253 + 1 + 63 characters."""


def text_of(value: object, what: str, example: str) -> str:
    """The stripped text of a value.

    Raises:
        ValueError: when the value is not text, or longer than any quantity; `what` and `example` tell how to write it.
    """
    if isinstance(value, bool):
        raise ValueError(f"is true or false, where {what} belongs, for example {example}")
    if not isinstance(value, str):
        raise ValueError(f"write {what} as text, for example {example}")
    if len(value) > LONGEST_TEXT:
        raise ValueError(f"{len(value):,} characters are too long for {what}; write it shorter, for example {example}")
    return value.strip()


def plain_number(value: Decimal) -> str:
    """A number without exponent and without zeros at the end, for example `1.25`."""
    return f"{value.normalize():f}" if value else "0"


def text_schema(description: str, examples: Iterable[str], pattern: str | None = None) -> WithJsonSchema:
    """JSON schema of a quantity that is written as text."""
    schema: dict[str, Any] = {"type": "string", "description": description, "examples": list(examples)}
    return WithJsonSchema(schema | {"pattern": pattern} if pattern else schema)
