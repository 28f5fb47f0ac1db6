"""Names that the fleet file takes, made from names that a cluster has."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

_LONGEST: Final = 63  # RFC 1123 label
_OTHER: Final = re.compile(r"[^a-z0-9]+")


def legal_name(text: str, otherwise: str, *, longest: int = _LONGEST) -> str:
    """The nearest name that Kubernetes takes; `otherwise` where nothing of the text remains."""
    return _OTHER.sub("-", text[: 4 * _LONGEST].lower()).strip("-")[:longest].rstrip("-") or otherwise


def free_name(wanted: str, taken: Container[str], *, longest: int = _LONGEST) -> str:
    """The name itself, or with the first number that makes it new."""
    name, number = wanted, 1
    while name in taken:
        number += 1
        suffix = f"-{number}"
        name = wanted[: longest - len(suffix)].rstrip("-") + suffix
    return name
