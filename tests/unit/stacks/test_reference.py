from __future__ import annotations

import re
from pathlib import Path

import pytest

from stacks.describing.reference import EXAMPLE, render_reference
from stacks.describing.reference_forms import default_of, form_of, inline, row
from stacks.describing.schema import fleet_schema, render_schema, stack_file_schema, teams_file_schema
from stacks.describing.schema_forms import Schema
from stacks.load import load_file
from stacks.presets import PRESETS
from stacks.rules import NOTICES, RULES, WARNINGS

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def page() -> str:
    return render_reference()


def test_every_setting_of_every_model_has_a_row(page: str) -> None:
    schema = fleet_schema()

    for model in [schema, *schema["$defs"].values()]:
        for name in model["properties"]:
            assert f"\n| `{name}` | " in page


def test_every_link_leads_to_a_heading_and_every_heading_is_there_once(page: str) -> None:
    anchors = [title.lower().replace(" ", "-") for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)]

    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= set(anchors)
    assert len(set(anchors)) == len(anchors)


def test_every_row_has_the_cells_of_its_table(page: str) -> None:
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1


def test_every_rule_every_preset_and_every_quantity_is_explained(page: str) -> None:
    assert page.count("\n- ", page.index("## What is checked")) == len(RULES) + len(WARNINGS) + len(NOTICES)
    assert all(f"`{name}`" in page for name in PRESETS)
    assert "| Lengths of time | `90s`, `4m30s`, `2h` |" in page


def test_a_union_says_which_tag_leads_where(page: str) -> None:
    assert "(`gcp` → by `provisioner`: `existing` → [GcpExistingPool](#gcpexistingpool), " in page


def test_the_example_is_a_file_that_loads_and_has_every_section(page: str) -> None:
    fleet = load_file(EXAMPLE)

    assert len(fleet.pools) == 5
    assert page.count("```yaml") == sum(bool(re.search("^## [a-z]", line)) for line in page.splitlines())


@pytest.mark.parametrize(
    ("field", "form"),
    [
        ({"type": "integer"}, "whole number"),
        ({"const": "eks"}, "`eks`"),
        ({"enum": ["hard", "soft"]}, "`hard` or `soft`"),
        ({"type": "string", "examples": ["1.35"]}, 'e.g. `"1.35"`'),
        ({"type": "array", "items": {"$ref": "#/$defs/Tunnel"}}, "list of [Tunnel](#tunnel)"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "name → number"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "text"),
        ({"enum": [f"type-{n}" for n in range(90)]}, "text"),
    ],
)
def test_a_form_says_what_to_write(field: Schema, form: str) -> None:
    assert form_of(field) == form


def test_a_default_is_written_as_in_the_file() -> None:
    assert default_of({"default": False}) == "`false`"
    assert default_of({"default": "1h"}) == "`1h`"
    assert default_of({"default": {}}) == ""
    assert default_of({}) == ""
    assert inline({"bounds": ["2m", "2h"], "key": None}) == "{bounds: [2m, 2h]}"
    assert row("a|b", "c") == "| a\\|b | c |"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("docs/config.md", render_reference()),
        ("stacks/fleet.schema.json", render_schema(stack_file_schema())),
        ("stacks/teams.schema.json", render_schema(teams_file_schema())),
    ],
    ids=["reference", "schema", "schema of teams"],
)
def test_what_is_generated_is_up_to_date(path: str, text: str) -> None:
    assert (ROOT / path).read_text("utf-8") == text, "run make generate"
