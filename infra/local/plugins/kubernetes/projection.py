"""What the program's inputs look like in the live object, so that `refresh` sees drift and nothing else.

Pure. Only the fields that the program has set are compared: defaults, status and fields of other writers are not
drift. Invariant: an object that nobody touched projects to its very inputs, although the API server drops empty
values, writes quantities in its own form and turns `stringData` into `data`.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"(?P<number>[+-]?(\d+\.?\d*|\.\d+))(?P<suffix>[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?")
_SUFFIXES = {
    **{suffix: Decimal(10) ** exponent for suffix, exponent in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}
_MISSING = object()


# Parts of an object where every character counts: a label "0.5" is not a label "500m".
_VERBATIM = frozenset({"metadata", "data", "stringData", "binaryData"})


def project(inputs: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs as the live object has them now."""
    if inputs.get("kind") == "Secret" and inputs.get("stringData"):
        live = {**live, "stringData": _decoded(live.get("data") or {})}
    projected = {
        name: _project(value, live.get(name, _MISSING), verbatim=name in _VERBATIM) for name, value in inputs.items()
    }
    return {name: value for name, value in projected.items() if value is not _MISSING}


def _project(value: Any, live: Any, *, verbatim: bool) -> Any:
    if live is _MISSING or live is None:
        return value if value in (False, 0, "", {}, []) else _MISSING
    if isinstance(value, Mapping) and isinstance(live, Mapping):
        items = {name: _project(item, live.get(name, _MISSING), verbatim=verbatim) for name, item in value.items()}
        return {name: item for name, item in items.items() if item is not _MISSING}
    if isinstance(value, list) and isinstance(live, list) and len(value) == len(live):
        projected = [_project(*pair, verbatim=verbatim) for pair in zip(value, live, strict=True)]
        return [was if now is _MISSING else now for was, now in zip(live, projected, strict=True)]
    return value if not verbatim and _same_quantity(value, live) else live


def _same_quantity(value: Any, live: Any) -> bool:
    """Whether two scalars are one Kubernetes quantity (`0.5` and `500m`, `1024Mi` and `1Gi`)."""
    if isinstance(value, bool) or isinstance(live, bool):
        return False
    if not isinstance(value, str | int | float) or not isinstance(live, str | int | float):
        return False
    amount = quantity(str(value))
    return amount is not None and amount == quantity(str(live))


def quantity(text: str) -> Decimal | None:
    """The amount that a Kubernetes quantity stands for, or None if the text is not one."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        return None
    number, suffix = Decimal(match["number"]), match["suffix"]
    if suffix is None:
        return number
    if suffix in _SUFFIXES:
        return number * _SUFFIXES[suffix]
    return number.scaleb(int(suffix[1:])) if len(suffix) <= len("e+99") else None


def _decoded(data: Mapping[str, Any]) -> dict[str, str]:
    return {name: base64.b64decode(str(value)).decode("utf-8", "replace") for name, value in data.items()}
