from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from infra.local.engine import Engine
from tests.engine.conftest import Stack


@pytest.fixture
def alone(engine: Engine) -> Stack:
    """A stack without any cluster."""
    return Stack(engine)


def test_a_run_error_is_one_line_without_a_traceback(alone: Stack) -> None:
    said = alone.fail("preview", 'raise pulumi.RunError("stacks/Pulumi.test.yaml:3:1: pools: is empty")')
    diagnostics = said.partition("Diagnostics:")[2].partition("Resources:")[0]
    assert diagnostics.split("error: ")[1:] == ["stacks/Pulumi.test.yaml:3:1: pools: is empty\n\n"]
    assert "Traceback" not in said
    assert "exit" not in said


def test_any_other_error_of_the_program_keeps_its_traceback(alone: Stack) -> None:
    said = alone.fail("preview", "int('seven')")
    assert "Traceback" in said
    assert "ValueError: invalid literal for int() with base 10: 'seven'" in said


def test_a_program_reads_its_configuration_and_exports_outputs(alone: Stack) -> None:
    file = alone.engine.stack_file("test")
    file.write_text(file.read_text() + "config:\n  trial:fleet: {nodes: 10, spot: true}\n")
    alone.up("pulumi.export('fleet', pulumi.Config().require_object('fleet'))")
    outputs = alone.engine.run("stack", "output", "--json", "--stack", "test", capture=True).document()
    assert outputs == {"fleet": {"nodes": 10, "spot": True}}


@pytest.mark.skipif(importlib.util.find_spec("pulumi_policy") is None, reason="pulumi-policy is not installed")
def test_a_policy_pack_stops_a_preview(alone: Stack, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    pack.mkdir()
    (pack / "PulumiPolicy.yaml").write_text("runtime: python\n")
    (pack / "__main__.py").write_text(
        "from pulumi_policy import EnforcementLevel, PolicyPack, StackValidationPolicy\n"
        "def forbid(args, report): report('nothing may be deployed on a Sunday')\n"
        "rest = StackValidationPolicy('sunday', 'rest', forbid)\n"
        "PolicyPack('pack', [rest], EnforcementLevel.MANDATORY)\n"
    )
    said = alone.fail("preview", "", "--policy-pack", str(pack))
    assert "nothing may be deployed on a Sunday" in said
