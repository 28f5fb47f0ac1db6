"""A program without any library of ours: registers what resources.json, beside it, lists.

It is copied into a throw-away project by tests/bench/plan.py; it is the least that a Pulumi program can do to declare
the same graph.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi


def main() -> None:
    """Register every recorded resource, in the recorded order."""
    made: dict[str, Any] = {}
    for record in json.loads(Path(__file__).with_name("resources.json").read_bytes()):
        options = pulumi.ResourceOptions(
            parent=made.get(record["parent"]),
            depends_on=[made[urn] for urn in record["dependencies"]],
            provider=made.get(record["provider"]),
            version=record["version"],
        )
        made[record["urn"]] = register(record, options)


def register(record: dict[str, Any], options: pulumi.ResourceOptions) -> pulumi.Resource:
    """Make one resource of the kind that the record is of."""
    token, name, inputs = record["type"], record["name"], record["inputs"]
    if token.startswith("pulumi:providers:"):
        return pulumi.ProviderResource(token.removeprefix("pulumi:providers:"), name, inputs, options)
    if record["custom"]:
        return pulumi.CustomResource(token, name, inputs, options)
    component = pulumi.ComponentResource(token, name, None, options)
    component.register_outputs({})
    return component


main()
