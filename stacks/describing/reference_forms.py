"""Cells of the reference's tables: the form of a setting, its default, and text that fits into a cell."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stacks.describing.schema_forms import REFERENCE, Schema
from stacks.reading.scalars import resolve

_PLAIN: Final = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`"}
_MOST_OPTIONS: Final = 8
"""An enumeration that is longer is a list of the catalogue, which has a command of its own."""


def row(*cells: str) -> str:
    """A row of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def form_of(field: Schema) -> str:
    """What is written for a setting."""
    if "$ref" in field:
        return _link(field["$ref"])
    if "const" in field:
        return f"`{field['const']}`"
    if "allOf" in field:
        return _union(field)
    if examples := field.get("examples"):
        return f"e.g. `{inline(examples[0])}`"
    if "enum" in field:
        return "text" if len(field["enum"]) > _MOST_OPTIONS else _either(f"`{option}`" for option in field["enum"])
    if "anyOf" in field:
        return _either(form_of(option) for option in field["anyOf"] if option.get("type") != "null")
    if field.get("type") == "array":
        inner = field.get("items") or {"anyOf": field["prefixItems"]}
        return f"list of {form_of(inner)}"
    if field.get("type") == "object":
        inner = next(iter(field.get("patternProperties", {}).values()), None) or field["additionalProperties"]
        return f"name → {form_of(inner)}"
    return _PLAIN.get(field.get("type", ""), "text")


def default_of(field: Schema) -> str:
    """The default of a setting as it would be written; empty where its description tells."""
    value = field.get("default")
    return f"`{inline(value)}`" if value not in (None, {}, []) else ""


def inline(value: Any) -> str:
    """A value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {inline(item)}" for key, item in value.items() if item is not None) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(inline, value)) + "]"
    if isinstance(value, str) and resolve(value)[0] != "str":
        return f'"{value}"'
    return str(value).lower() if isinstance(value, bool) else str(value)


def models_of(schema: Any) -> Iterator[str]:
    """Names of the models that a schema refers to, in its own order."""
    if isinstance(schema, list):
        for item in schema:
            yield from models_of(item)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.removeprefix(REFERENCE)
            else:
                yield from models_of(value)


def _union(schema: Schema) -> str:
    """`location`: `onprem` → OnPremPool, `aws` → `provisioner`: … ."""
    branches = [(branch["if"]["properties"], branch["then"]) for branch in schema["allOf"]]
    tag = next(iter(branches[0][0]))
    shown = [f"`{when[tag]['const']}` → {form_of(then)}" for when, then in branches]
    return f"by `{tag}`: {', '.join(f'({one})' if 'by `' in one else one for one in shown)}"


def _either(forms: Iterator[str]) -> str:
    return " or ".join(dict.fromkeys(forms))


def _link(reference: str) -> str:
    name = reference.removeprefix(REFERENCE)
    return f"[{name}](#{name.lower()})"
