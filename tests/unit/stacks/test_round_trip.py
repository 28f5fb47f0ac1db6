"""A fleet that is written down again is the same fleet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.fleet import Fleet
from stacks.load import load_file, read_object, read_text
from stacks.reading.stackfile import KEY
from tests.unit.stacks.rules.cases import NOTICE_CASES, RULE_CASES, WARNING_CASES, Case, changed

STACKS = Path(__file__).parents[3] / "stacks"
ENVIRONMENTS = sorted(STACKS.glob("Pulumi.*.yaml"))
CASES = [*RULE_CASES, *WARNING_CASES, *NOTICE_CASES]


def dumped(fleet: Fleet) -> Any:
    """The fleet as plain values; a setting that has none is left out, as in a file."""
    return fleet.model_dump(mode="json", exclude_none=True)


@pytest.mark.parametrize("file", ENVIRONMENTS, ids=lambda path: path.stem)
def test_an_environment_reads_back_as_itself(file: Path) -> None:
    fleet = load_file(file)
    values = dumped(fleet)
    values.pop("teams_file", None)  # its teams are in the dump
    again = fleet.model_copy(update={"teams_file": None})
    assert read_object(values, "dump").fleet == again
    assert read_object(json.loads(json.dumps(values)), "dump").fleet == again
    assert read_text(yaml.safe_dump({"config": {KEY: values}}), "dump").fleet == again


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.rule.__name__)
def test_every_kind_of_part_reads_back_as_itself(case: Case) -> None:
    fleet = Fleet.model_validate(changed(case.right))
    assert Fleet.model_validate(dumped(fleet)) == fleet
    assert dumped(Fleet.model_validate(dumped(fleet))) == dumped(fleet)
