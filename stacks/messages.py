"""What a person reads for each kind of pydantic error: what is wrong, the value, what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from stacks.schema import settings_at
from stacks.suggest import did_you_mean

_LONGEST_VALUE: Final = 80  # characters; the file is at hand for the rest

# By pydantic's error type; the braces take from the error's context.
_PLAIN: Final[Mapping[str, str]] = {
    "int_type": "must be a whole number, for example 8",
    "int_parsing": "must be a whole number, for example 8",
    "int_from_float": "must be a whole number, for example 8",
    "float_type": "must be a number, for example 1.5",
    "float_parsing": "must be a number, for example 1.5",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text; quote it if it looks like a number",
    "string_pattern_mismatch": "must look like {pattern}",
    "dict_type": "must be a mapping of names to settings",
    "model_type": "must be a mapping of settings, for example {{kind: …}}",
    "model_attributes_type": "must be a mapping of settings, for example {{kind: …}}",
    "tuple_type": "must be a list, for example [a, b]",
    "list_type": "must be a list, for example [a, b]",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "too_short": "needs at least {min_length}, has {actual_length}",
    "too_long": "may have at most {max_length}, has {actual_length}",
}


def message(detail: ErrorDetails, path: tuple[str | int, ...]) -> str:
    """The message of one error; `path` leads to it through the file."""
    kind, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if kind == "fleet_rule":
        return str(context["reason"])
    if kind == "missing":
        return "is required"
    if kind == "extra_forbidden":
        return f"is not a known setting{did_you_mean(str(path[-1]), settings_at(detail['loc'][:-1]))}"
    if kind == "union_tag_not_found":
        return f"needs {context['discriminator']!s}, which says what kind of thing this is"
    if kind == "union_tag_invalid":
        return _wrong_tag(context)
    if kind == "literal_error":
        return f"must be {context['expected']} (got {value!r}{_near(value, context['expected'])})"
    if kind == "value_error":
        return _with_value(str(context["error"]), value)
    return _with_value(_PLAIN[kind].format(**context) if kind in _PLAIN else detail["msg"], value)


def _wrong_tag(context: Mapping[str, Any]) -> str:
    tags, tag = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")], str(context["tag"])
    field = str(context["discriminator"]).strip("'")
    return f"{field} must be one of {', '.join(tags)} (got {tag!r}{did_you_mean(tag, tags)})"


def _near(value: object, expected: str) -> str:
    options = [part.strip(" '") for part in expected.replace(" or ", ",").split(",")]
    return did_you_mean(str(value), options) if isinstance(value, str) and len(options) > 1 else ""


def _with_value(reason: str, value: object) -> str:
    if isinstance(value, dict | list | BaseModel):
        return reason
    text = repr(value)
    return f"{reason} (got {text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + '...'})"
