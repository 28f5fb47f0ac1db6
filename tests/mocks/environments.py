"""The example environments, and short ways to look at what is made of them."""

from __future__ import annotations

from typing import Any

from stacks.fleet import Fleet
from stacks.load import load_file
from tests.conftest import ROOT

LOCAL = ROOT / "stacks" / "Pulumi.local.yaml"
ENVIRONMENTS = [path.stem.removeprefix("Pulumi.") for path in sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))]
DEPLOYABLE = ["dev", "hybrid", "local"]


def load_environment(name: str) -> Fleet:
    return load_file(ROOT / "stacks" / f"Pulumi.{name}.yaml")


def of_kind(manifests: dict[str, dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [manifest for manifest in manifests.values() if manifest["kind"] == kind]


def flavors_offered(queue: dict[str, Any]) -> list[str]:
    return [flavor["name"] for group in queue["spec"].get("resourceGroups", []) for flavor in group["flavors"]]
