"""The reference of every setting, written from the models' own docstrings: `docs/config.md`.

One chapter per section of the file, in the order of the file; a model that several sections share stands in the first.
It states no fact of its own: meanings, forms and defaults come from the schema, presets, quantities and rules from
their modules, the examples from `example.yaml`, which is a whole file that loads.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import TypeAdapter

from stacks import quantities
from stacks.describing.reference_forms import default_of, form_of, inline, models_of, row
from stacks.describing.schema import fleet_schema
from stacks.describing.schema_forms import Schema
from stacks.presets import PRESETS
from stacks.rules import NOTICES, RULES, WARNINGS

EXAMPLE: Final = Path(__file__).parents[1] / "example.yaml"
"""The file that the examples are taken from."""

_HEADER: Final = """\
# Every setting of the fleet file

The object stands under `gpufleet:fleet` in `stacks/Pulumi.<env>.yaml`. Unknown settings are errors. Editors complete
and explain all of this by the file's first line, `# yaml-language-server: $schema=fleet.schema.json`.
This page is generated (`make generate`); its examples are one file that loads, `stacks/example.yaml`.
"""
_CHAPTERS: Final = ("Presets", "Quantities", "What is checked", "What is warned about", "What has no effect yet")
_DOCUMENTED_BY: Final = re.compile(r"(?P<what>[^:.]+)[:.].*?(?:\n\n(?P<rules>.*?))?(?:\n\n.*)?", re.DOTALL)


def render_reference() -> str:
    """The text of `docs/config.md`."""
    schema = fleet_schema()
    lines = [_HEADER, *_contents(schema), *_table("## The file", schema)]
    seen: set[str] = set()
    for name, field in schema["properties"].items():
        if models := list(_new_models(field, schema["$defs"], seen)):
            lines += [f"## {name}", "", field["description"], "", *_example(name)]
            for model in models:
                heading = None if model.lower() == name else f"### {model}"  # two equal anchors would be one
                lines += _table(heading, schema["$defs"][model])
    return "\n".join([*lines, *_presets(), *_quantities(schema), *_rules()])


def _contents(schema: Schema) -> Iterator[str]:
    sections = [name for name, field in schema["properties"].items() if any(models_of(field))]
    for title in ("The file", *sections, *_CHAPTERS):
        yield f"- [{title}](#{title.lower().replace(' ', '-')})"
    yield ""


def _new_models(field: Schema, definitions: dict[str, Schema], seen: set[str]) -> Iterator[str]:
    """The models that a section needs, the outer ones first, without those that an earlier section has."""
    pending = list(models_of(field))
    while pending:
        name = pending.pop(0)
        if name not in seen:
            seen.add(name)
            yield name
            pending += models_of(definitions[name])


def _example(section: str) -> Iterator[str]:
    lines = EXAMPLE.read_text("utf-8").splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(f"    {section}:"))
    end = next((i for i in range(start + 1, len(lines)) if not lines[i].startswith("      ")), len(lines))
    yield from ("```yaml", *(line.removeprefix("    ") for line in lines[start:end]), "```", "")


def _table(heading: str | None, model: Schema) -> Iterator[str]:
    if heading:
        yield f"{heading}\n"
    yield f"{model['description']}\n"
    yield row("setting", "form", "default", "meaning")
    yield row("---", "---", "---", "---")
    required = set(model.get("required", ()))
    for name, field in model["properties"].items():
        default = "required" if name in required else default_of(field)
        yield row(f"`{name}`", form_of(field), default, " ".join(field.get("description", "").split()))
    yield ""


def _presets() -> Iterator[str]:
    yield "## Presets\n\nWhat `preset` fills in where the file is silent; an empty cell is the setting's own default.\n"
    yield row("setting", *(f"`{name}`" for name in PRESETS))
    yield row("---", *("---" for _ in PRESETS))
    for path in dict.fromkeys(path for filled in PRESETS.values() for path in filled):
        cells = [filled.get(path) for filled in PRESETS.values()]
        yield row(f"`{'.'.join(map(str, path))}`", *("" if cell is None else f"`{inline(cell)}`" for cell in cells))
    yield ""


def _quantities(schema: Schema) -> Iterator[str]:
    yield "## Quantities\n\nEach is read in several spellings, written in one, and refused with an example.\n"
    yield row("what", "for example", "rules")
    yield row("---", "---", "---")
    used = {inline(examples) for examples in _examples_in(schema)}
    shown: dict[str, list[str]] = {}
    for name in quantities.__all__:
        reader = next((extra for extra in get_args(getattr(quantities, name)) if hasattr(extra, "func")), None)
        examples = TypeAdapter(getattr(quantities, name)).json_schema().get("examples", []) if reader else []
        if reader and inline(examples) in used:
            shown.setdefault(reader.func.__module__, []).extend(f"`{example}`" for example in examples)
    for module, examples in shown.items():
        described = _DOCUMENTED_BY.fullmatch(inspect.getdoc(sys.modules[module]) or "")
        assert described is not None
        rules = " ".join((described["rules"] or "").split())
        yield row(described["what"], ", ".join(dict.fromkeys(examples)), rules)
    yield ""


def _examples_in(schema: Any) -> Iterator[list[Any]]:
    if isinstance(schema, dict):
        if isinstance(schema.get("examples"), list):
            yield schema["examples"]
        for inner in schema.values():
            yield from _examples_in(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _examples_in(inner)


def _rules() -> Iterator[str]:
    for title, rules in zip(_CHAPTERS[2:], (RULES, WARNINGS, NOTICES), strict=True):
        yield f"## {title}\n"
        yield from (f"- {(inspect.getdoc(rule) or '').splitlines()[0]}" for rule in rules)
        yield ""
