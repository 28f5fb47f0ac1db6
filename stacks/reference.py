"""The reference of every setting, written from the models' own docstrings: `docs/config.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from stacks.fleet import Fleet

_HEADER: Final = """\
# Every setting of the fleet file

The object stands under `gpufleet:fleet` in `stacks/Pulumi.<env>.yaml`. Durations are written `90s`, `4m30s`, `2h`;
money `20000 USD`; memory `1Ti`. Unknown settings are errors. This file is generated (`make generate`).
"""

_FORMS: Final = {"integer": "whole number", "number": "number", "boolean": "`true` or `false`"}

Schema = dict[str, Any]


def render_reference() -> str:
    """The text of `docs/config.md`: one section per model, in the order in which the file mentions them."""
    schema = Fleet.model_json_schema()
    definitions: dict[str, Schema] = schema["$defs"]
    sections = [_HEADER, *_section("Fleet", schema)]
    seen: set[str] = set()
    pending = list(_models(schema, definitions))
    while pending:
        name = pending.pop(0)
        if name not in seen:
            seen.add(name)
            sections += _section(name, definitions[name])
            pending += _models(definitions[name], definitions)
    return "\n".join(sections)


def _section(name: str, schema: Schema) -> Iterator[str]:
    yield f"## {name}\n\n{schema.get('description', '').strip()}\n"
    yield "| setting | form | default | meaning |\n|---|---|---|---|"
    required = set(schema.get("required", ()))
    for key, field in schema["properties"].items():
        default = "required" if key in required else _default(field)
        meaning = " ".join(field.get("description", "").split()).replace("|", "\\|")
        yield f"| `{key}` | {_form(field)} | {default} | {meaning} |"
    yield ""


def _default(field: Schema) -> str:
    value = field.get("default")
    if value is None or isinstance(value, dict | list):
        return "" if not value else f"`{_inline(value)}`"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        shown = {key: item for key, item in value.items() if item is not None}
        return "{" + ", ".join(f"{key}: {_inline(item)}" for key, item in shown.items()) + "}"
    return str(value)


def _form(field: Schema) -> str:
    if "$ref" in field:
        return _link(field["$ref"])
    for keyword in ("oneOf", "anyOf"):
        if keyword in field:
            forms = [_form(option) for option in field[keyword] if option.get("type") != "null"]
            return " or ".join(dict.fromkeys(forms))
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return " or ".join(f"`{option}`" for option in field["enum"])
    if field.get("type") == "array":
        inner = field.get("items") or {"anyOf": field.get("prefixItems", [])}
        return f"list of {_form(inner)}"
    if field.get("type") == "object":
        inner = field.get("additionalProperties") or next(iter(field.get("patternProperties", {}).values()), {})
        return f"map of name to {_form(inner)}" if inner else "mapping"
    if examples := field.get("examples"):
        return f"e.g. `{examples[0]}`"
    return {"integer": "whole number", "number": "number", "boolean": "`true` or `false`"}.get(
        field.get("type", ""), "text"
    )


def _link(reference: str) -> str:
    name = reference.rsplit("/", 1)[-1]
    return f"[{name}](#{name.lower()})"


def _models(schema: Any, definitions: dict[str, Schema]) -> Iterator[str]:
    """Names of the models that a schema refers to, in its own order."""
    if isinstance(schema, list):
        for item in schema:
            yield from _models(item, definitions)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[-1]
            elif key not in {"$defs", "mapping"}:
                yield from _models(value, definitions)
