"""What the models say about themselves: the JSON schema for editors, and the settings known at a path."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from stacks.fleet import Fleet

SCHEMA_ID: Final = "https://gpufleet.dev/schema/fleet-1.json"


def stack_file_schema() -> dict[str, Any]:
    """JSON schema of a whole stack file, our object at its place, other keys left alone."""
    fleet = Fleet.model_json_schema()
    definitions = fleet.pop("$defs")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "gpufleet stack file",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {"type": "object", "required": ["gpufleet:fleet"], "properties": {"gpufleet:fleet": fleet}},
        },
        "$defs": definitions,
    }


def render_schema() -> str:
    """The schema as the text of `stacks/fleet.schema.json`."""
    return json.dumps(stack_file_schema(), indent=2, ensure_ascii=False) + "\n"


@cache
def _fleet_schema() -> dict[str, Any]:
    return Fleet.model_json_schema()


def settings_at(loc: tuple[str | int, ...]) -> list[str]:
    """Names of the settings allowed at a pydantic error location; empty where any name is.

    Union branches are told apart by the tag that pydantic puts into the location.
    """
    schema = _fleet_schema()
    definitions = schema["$defs"]
    branches = [schema]
    for part in loc:
        stepped = [child for branch in branches for child in _step(branch, part, definitions)]
        branches = stepped or branches
    flat = [one for branch in branches for one in _flatten(branch, definitions)]
    return sorted({name for branch in flat for name in branch.get("properties", {})})


def _flatten(schema: dict[str, Any], definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        yield from _flatten(definitions[schema["$ref"].rsplit("/", 1)[-1]], definitions)
        return
    yield schema
    for keyword in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(keyword, []):
            yield from _flatten(option, definitions)


def _step(schema: dict[str, Any], part: str | int, definitions: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for option in _flatten(schema, definitions):
        mapping = option.get("discriminator", {}).get("mapping", {})
        if part in mapping:
            yield definitions[mapping[part].rsplit("/", 1)[-1]]
        elif part in option.get("properties", {}):
            yield option["properties"][part]
        elif isinstance(option.get("additionalProperties"), dict):
            yield option["additionalProperties"]
        elif "patternProperties" in option:
            yield from option["patternProperties"].values()
        elif isinstance(option.get("items"), dict) and isinstance(part, int):
            yield option["items"]
