"""The JSON schemas of a stack file and of a teams file, for editors and for whoever checks files without Python.

They say what the models say, as far as a schema can: rules between settings are left to `gpufleet check`. What pydantic
generates is rewritten where editors and plain validators need another form: a union becomes conditions on its tag, so
that errors and completion are those of the branch that is meant; names that the catalogue knows are offered; defaults
are written as in the file.

Invariant: a file that loads is valid by its schema, unless it writes a number or a truth value in a form that only
pydantic takes for one (`"8"`, `yes`), which an editor should underline.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from stacks.describing.schema_forms import REFERENCE, Schema, refined
from stacks.fleet import Fleet
from stacks.model import Path
from stacks.presets import PRESETS
from stacks.reading.stackfile import KEY

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCHEMA_ID: Final = "https://gpufleet.dev/schema/{}-1.json"


class _WithDefaultsAsWritten(GenerateJsonSchema):
    """Writes a default in the form of the file: `1h`, not `PT1H`."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        written = super().default_schema(schema)
        if "default" in written:
            written["default"] = _as_written(schema["default"], schema["schema"], written["default"])
        return written


def _as_written(value: Any, schema: Any, otherwise: Any) -> Any:
    """A default, or each item of one, as its type is written; `otherwise` for types that write themselves."""
    while "serialization" not in schema and "schema" in schema:  # validators wrap the type that is written
        schema = schema["schema"]
    serialization = schema.get("serialization")
    if serialization and serialization["type"] == "function-plain":
        return value if isinstance(value, str | None) else serialization["function"](value)
    if schema["type"] == "tuple" and "variadic_item_index" in schema and isinstance(value, tuple):
        [item] = schema["items_schema"]
        return [_as_written(one, item, plain) for one, plain in zip(value, otherwise, strict=True)]
    return otherwise


def fleet_schema() -> Schema:
    """The schema of the object under `gpufleet:fleet`, with its definitions."""
    schema = refined(Fleet.model_json_schema(schema_generator=_WithDefaultsAsWritten))
    for path in {path for settings in PRESETS.values() for path in settings}:
        _make_optional(schema, path)
    schema["required"].remove("teams")
    schema["if"] = {"required": ["teams_file"], "properties": {"teams_file": {"type": "string"}}}
    schema["then"] = {"properties": {"teams": False}}
    schema["else"] = {"required": ["teams"]}
    return schema


def stack_file_schema() -> Schema:
    """The schema of a whole Pulumi stack file: our object at its place, settings of other projects left alone."""
    fleet = fleet_schema()
    definitions = fleet.pop("$defs")
    secret = {
        "type": "object",
        "description": f"A secret of this stack, which settings below {KEY} refer to by name.",
        "required": ["secure"],
        "properties": {"secure": {"description": "Written by `pulumi config set --secret gpufleet:NAME`."}},
        "additionalProperties": False,
    }
    namespace = KEY.partition(":")[0]
    config = {
        "type": "object",
        "description": "The configuration of the stack.",
        "required": [KEY],
        "properties": {KEY: fleet},
        "patternProperties": {f"^(?!{KEY}$|<<$)({namespace}:.*|[^:]*)$": secret},
    }
    return {
        "$schema": _DIALECT,
        "$id": _SCHEMA_ID.format("fleet"),
        "title": "gpufleet stack file",
        "type": "object",
        "required": ["config"],
        "properties": {"config": config},
        "$defs": definitions,
    }


def teams_file_schema() -> Schema:
    """The schema of a file that `teams_file` names."""
    annotation = Fleet.model_fields["teams"].rebuild_annotation()
    teams = refined(TypeAdapter(annotation).json_schema(schema_generator=_WithDefaultsAsWritten))
    definitions = teams.pop("$defs")
    return {
        "$schema": _DIALECT,
        "$id": _SCHEMA_ID.format("teams"),
        "title": "gpufleet teams file",
        "type": "object",
        "required": ["teams"],
        "properties": {"teams": {"description": "Teams by name.", **teams}},
        "additionalProperties": False,
        "$defs": definitions,
    }


def render_schema(schema: Schema) -> str:
    """The text of a schema file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"


def _make_optional(schema: Schema, path: Path) -> None:
    """Do not ask for a setting that presets fill in."""
    *above, name = path
    here = schema
    for part in above:
        here = here["properties"][part]
        here = schema["$defs"][here["$ref"].removeprefix(REFERENCE)] if "$ref" in here else here
    if name in here.get("required", ()):
        here["required"].remove(name)
