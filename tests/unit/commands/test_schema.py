from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner

from infra.commands import schema
from stacks.describing.schema import stack_file_schema, teams_file_schema


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.command()(schema.schema)
    app.command()(schema.reference)
    return app


def test_the_schema_of_a_stack_file_is_printed(app: typer.Typer) -> None:
    assert json.loads(CliRunner().invoke(app, ["schema"]).stdout) == stack_file_schema()


def test_the_schema_of_a_teams_file_is_printed(app: typer.Typer) -> None:
    assert json.loads(CliRunner().invoke(app, ["schema", "--teams"]).stdout) == teams_file_schema()


def test_the_reference_is_printed(app: typer.Typer) -> None:
    assert CliRunner().invoke(app, ["reference"]).stdout.startswith("# Every setting of the fleet file\n")
