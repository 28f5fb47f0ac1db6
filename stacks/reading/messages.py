"""What a person reads for each kind of pydantic error: what is wrong, what is allowed, how to mend it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, get_origin

from pydantic_core import ErrorDetails

from stacks.model import Path
from stacks.problems import Code
from stacks.reading.echo import looks_secret, masked, shown, with_value, with_value_once
from stacks.reading.trail import Trail
from stacks.suggest import did_you_mean
from stacks.version import MISSING

# By pydantic's error type; the braces take from the error's context.
WRONG_TYPE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number, for example 8"),
    "int_parsing_size": "must be a whole number of sensible size",
    **dict.fromkeys(("float_type", "float_parsing", "decimal_type", "decimal_parsing"), "must be a number, like 1.5"),
    "finite_number": "must be a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
    "string_unicode": "must be text of whole characters; half of one stands in it",
    **dict.fromkeys(("dict_type", "mapping_type"), "must be a mapping of names to settings"),
    **dict.fromkeys(("model_type", "model_attributes_type"), "must be a mapping of settings"),
    **dict.fromkeys(("tuple_type", "list_type"), "must be a list, for example [a, b]"),
    "invalid_key": "is a key that is not text; quote it",
    **dict.fromkeys(("time_delta_type", "time_delta_parsing"), "must be a duration, for example 90s, 4m30s or 2h"),
}
BAD_VALUE: Final[Mapping[str, str]] = {
    "string_pattern_mismatch": "must look like {pattern}",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "multiple_of": "must be a multiple of {multiple_of}",
    "string_too_short": "needs at least {min_length} characters",
    "string_too_long": "may have at most {max_length} characters",
    "too_short": "needs at least {min_length} entries, has {actual_length}",
    "too_long": "may have at most {max_length} entries, has {actual_length}",
    "decimal_max_digits": "may have at most {max_digits} digits",
    "decimal_max_places": "may have at most {decimal_places} decimals",
    "decimal_whole_digits": "may have at most {whole_digits} digits before the point",
    "recursion_loop": "may not hold itself",
}
_QUOTE_IT: Final = "; quote it if it looks like a number"
_ELSE: Final = "is not what belongs here"

_PART_OF_A_NUMBER: Final = re.compile(r"\d{3}(?!\d)")


class Said(NamedTuple):
    """What is said of one mistake."""

    path: Path
    code: Code
    message: str


@lru_cache(maxsize=1_024)  # a typo in a template comes a thousand times
def unknown_setting(name: str, known: tuple[str, ...], missing: tuple[str, ...]) -> str:
    """The message of a key that is no setting; the one that is missing beside it is the likeliest meant."""
    if split := split_number(name):
        return f"is not a known setting; {split}"
    near = did_you_mean(name, missing)
    if not near.startswith("; did you mean"):
        near = did_you_mean(name, known)
    strange = dict.fromkeys(f"U+{ord(char):04X}" for char in name[:80] if not char.isascii())
    alike = f" (the key has the letter {', '.join(strange)})" if strange else ""
    return f"is not a known setting{near}{alike}"


def split_number(name: str) -> str | None:
    """What to say of a key that is the rest of a number, as `{monthly: 20,000 USD}` has one."""
    return (
        "a comma in braces begins a new setting; leave it out of the number" if _PART_OF_A_NUMBER.match(name) else None
    )


def describe(detail: ErrorDetails, trail: Trail) -> tuple[Code, str]:
    """Code and message of one error; unknown settings are for `unknown_setting`."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    secret = looks_secret(trail.path)
    if kind == "missing":
        return "missing-setting", MISSING if trail.path == ("schema_version",) else "is required"
    if kind == "union_tag_not_found":
        tag = str(context["discriminator"]).strip("'")
        return "missing-setting", f"needs {tag}, one of {', '.join(trail.tags(tag))}"
    if kind == "union_tag_invalid":
        tags = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
        return "bad-value", _one_of(tags, str(context["tag"]))
    if kind == "literal_error":
        return "bad-value", _literal(str(context["expected"]), value, secret)
    if kind in ("value_error", "assertion_error"):
        return "bad-value", _refused(str(context["error"]), value, trail, secret)
    if kind in WRONG_TYPE:
        return "wrong-type", with_value(_wrong_type(kind, value, trail), value, secret=secret)
    if kind.endswith(("too_short", "too_long")):
        return "bad-value", _wrong_length(kind, context, value, secret)
    if kind == "string_pattern_mismatch" and trail.examples:
        return "bad-value", with_value(f"must look like {' or '.join(trail.examples)}", value, secret=secret)
    reason = BAD_VALUE.get(kind, _ELSE).format(**{name: _limit(limit) for name, limit in context.items()})
    return "bad-value", with_value(reason, value, secret=secret)


def broken_rule(detail: ErrorDetails) -> tuple[Code, str]:
    """Code and message of a rule between sections; what the reason or the path names is not shown again."""
    context, path, value = detail.get("ctx", {}), detail["loc"], detail["input"]
    code, reason = context.get("code", "rule"), str(context["reason"])
    if not isinstance(value, str | int | float) or isinstance(value, bool) or value in path:
        return code, masked(reason)
    return code, with_value_once(reason, value, secret=looks_secret(path))


def _one_of(options: Sequence[str], value: str) -> str:
    near = did_you_mean(value, options)
    return f"must be one of {', '.join(options)} (got {shown(value)}{near if 'did you mean' in near else ''})"


def _literal(expected: str, value: object, secret: bool) -> str:
    options = [part.strip(" '") for part in expected.replace(" or ", ",").split(",")]
    if isinstance(value, str) and len(options) > 1 and not secret:
        return _one_of(options, value)
    if isinstance(value, str) and value in options:  # a number in quotes
        return with_value(f"must be {value} without quotes", value, secret=secret)
    return with_value(f"must be {expected}", value, secret=secret)


def _refused(reason: str, value: object, trail: Trail, secret: bool) -> str:
    if isinstance(value, str | int | float) or value is None:
        return with_value_once(reason, value, secret=secret)
    takes_collections = trail.settings or any(get_origin(one) for one in trail.types)
    if takes_collections or not isinstance(value, dict | list):
        return masked(reason)
    return with_value(reason.removesuffix(_QUOTE_IT), value)


def _wrong_type(kind: str, value: object, trail: Trail) -> str:
    reason = WRONG_TYPE[kind]
    if kind.startswith("model") and trail.openings:
        return f"{reason}, for example {' or '.join(f'{{{name}: …}}' for name in trail.openings)}"
    if kind == "string_type" and not isinstance(value, dict | list):
        return reason + _QUOTE_IT
    return reason


def _wrong_length(kind: str, context: Mapping[str, Any], value: Any, secret: bool) -> str:
    limits = {name: _limit(limit) for name, limit in context.items()}
    if kind.startswith("string"):
        return (
            "must not be empty" if value == "" else with_value(BAD_VALUE[kind].format(**limits), value, secret=secret)
        )
    if kind == "too_short" and context["min_length"] == 1:
        return "needs at least one entry"
    return BAD_VALUE[kind].format(**{**limits, "actual_length": f"{len(value):,}"})


def _limit(limit: object) -> str:
    if isinstance(limit, float | Decimal) and limit == int(limit):
        limit = int(limit)
    return f"{limit:,}" if isinstance(limit, int) else str(limit)
