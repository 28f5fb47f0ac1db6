"""Rewrites of the JSON schema that pydantic generates, for the sake of editors and of validators other than pydantic.

Two things here change which files are valid, and both follow the loader: a mapping whose keys have a form takes no
other keys, and no setting is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from stacks.catalogue import catalogue

Schema = dict[str, Any]

REFERENCE: Final = "#/$defs/"
"""What references to definitions begin with."""

_SCHEMAS_BY_NAME: Final = ("$defs", "patternProperties")
_LISTS_OF_SCHEMAS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_SCHEMAS: Final = ("items", "additionalProperties", "propertyNames")

_LINE_BREAK: Final = re.compile(r"(?<!\n)\n(?!\n)")
_SEPARATORS: Final = r"[\s_/.-]"
_WORD: Final = re.compile(r"[a-z0-9]+")
_PRODUCT_WORDS: Final = ("nvidia", "tesla", "hbm", "hbm2", "hbm2e", "hbm3", "hbm3e", *(f"sxm{n}" for n in range(2, 10)))
"""What product names add to the catalogue's ids; the parser of GPU names passes over it."""

_TYPE_SETTINGS: Final = {"aws": "instance_types", "gcp": "machine_type"}


def refined(schema: Schema) -> Schema:
    """The schema with every rewrite made, everywhere in it."""
    definitions = schema.get("$defs", {})
    result: Schema = _refine(schema, definitions)
    for definition in result.get("$defs", {}).values():
        _offer_instance_types(definition.get("properties", {}))
    return result


def _refine(schema: Any, definitions: Mapping[str, Schema]) -> Any:
    if not isinstance(schema, dict):  # true and false are schemas too
        return schema
    if "discriminator" in schema:
        return _conditions(schema, definitions)
    result: Schema = {}
    for keyword, value in schema.items():
        if keyword == "properties":
            result[keyword] = {name: {"title": name, **_refine(inner, definitions)} for name, inner in value.items()}
        elif keyword in _SCHEMAS_BY_NAME:
            result[keyword] = {name: _refine(inner, definitions) for name, inner in value.items()}
        elif keyword in _LISTS_OF_SCHEMAS:
            result[keyword] = [_refine(inner, definitions) for inner in value]
        else:
            result[keyword] = _refine(value, definitions) if keyword in _SCHEMAS else value
    return _polished(result)


def _polished(schema: Schema) -> Schema:
    if "properties" not in schema:
        schema.pop("title", None)  # pydantic's form of the setting's name
    if schema.get("default", ...) is None:
        del schema["default"]  # the description says what happens without it
    branches = schema.get("anyOf", [])
    if {"type": "null"} in branches:  # a setting is left out, never null; the loader refuses an empty one
        del schema["anyOf"]
        rest = [branch for branch in branches if branch != {"type": "null"}]
        schema = {**rest[0], **schema} if len(rest) == 1 else {**schema, "anyOf": rest}
    if "patternProperties" in schema:
        schema.setdefault("additionalProperties", False)
    if isinstance(schema.get("description"), str):
        schema |= _description(schema["description"])
    if "pattern" in schema and schema.get("examples"):
        schema["patternErrorMessage"] = f"write it like {' or '.join(map(str, schema['examples']))}"
    if schema.get("enum") == sorted(catalogue().gpus):
        return _gpu_names(schema)
    return schema


def _description(text: str) -> Schema:
    """A description for editors that render Markdown, and for those that do not."""
    unwrapped = _LINE_BREAK.sub(" ", text)
    return {"description": unwrapped} | ({"markdownDescription": unwrapped} if "`" in unwrapped else {})


def _conditions(schema: Schema, definitions: Mapping[str, Schema]) -> Schema:
    """A union as conditions on its tag: plain validators know no `discriminator` and would blame every branch."""
    tag, mapping = schema["discriminator"]["propertyName"], schema["discriminator"]["mapping"]
    branches = {value: {"$ref": to} if isinstance(to, str) else to for value, to in mapping.items()}
    branches = dict(sorted(branches.items(), key=lambda item: schema["oneOf"].index(item[1])))
    meanings = "\n\n".join(f"`{value}`: {_meaning(to, definitions)}" for value, to in branches.items())
    conditions = [
        {
            "if": {"type": "object", "required": [tag], "properties": {tag: {"const": value}}},
            "then": _refine(to, definitions),
        }
        for value, to in branches.items()
    ]
    kept = {name: schema[name] for name in ("description", "default") if schema.get(name) is not None}
    union = {
        "title": " | ".join(branches),
        "type": "object",
        "required": [tag],
        "properties": {tag: {"title": tag, "enum": list(branches), **_description(meanings)}},
        "allOf": conditions,
    }
    return _polished(kept | union)


def _meaning(branch: Schema, definitions: Mapping[str, Schema]) -> str:
    """The first sentences of a branch; of those below it where it is a union itself."""
    if "$ref" in branch:
        text = definitions[branch["$ref"].removeprefix(REFERENCE)]["description"]
        return _LINE_BREAK.sub(" ", text.partition("\n\n")[0])
    tag = branch["discriminator"]["propertyName"]
    return f"by `{tag}`: {', '.join(branch['discriminator']['mapping'])}."


def _gpu_names(schema: Schema) -> Schema:
    """The ids to choose from, and the other spellings that are read: words of a model's name in any form."""
    models = catalogue().gpus.items()
    words = {word for key, model in models for word in _WORD.findall(f"{key} {model.name}".lower())}
    pattern = "|".join(sorted(map(_any_case, {*words, *_PRODUCT_WORDS}), reverse=True))
    rest = {name: value for name, value in schema.items() if name not in ("enum", "type")}
    other = {"pattern": f"^{_SEPARATORS}*(({pattern}){_SEPARATORS}*)+$", "patternErrorMessage": "not a known GPU model"}
    return {"type": "string", **rest, "anyOf": [{"enum": schema["enum"]}, other]}


def _any_case(word: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" if letter.isalpha() else letter for letter in word)


def _offer_instance_types(properties: dict[str, Schema]) -> None:
    """Offer the catalogue's instance types where a pool names its own; others are allowed, with a `shape`."""
    provider = properties.get("location", {}).get("const", "")
    setting = properties.get(_TYPE_SETTINGS.get(provider, ""))
    if setting is None:
        return
    known = sorted(name for name, one in catalogue().instance_types.items() if one.provider == provider)
    target = setting.get("items", setting)
    target["anyOf"] = [{"enum": known}, {"type": target.pop("type"), "description": "One that the catalogue lacks."}]
