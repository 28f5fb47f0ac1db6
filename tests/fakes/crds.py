"""CustomResourceDefinitions beside the checkout, and what an API server would say of an object by their schemas.

It checks structure: unknown fields (which a server would drop in silence), types, enums, patterns, required fields. It
does not evaluate CEL rules; the tests on the real API server do.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.conftest import ROOT

CRDS = ROOT.parent / "shared" / "crds"

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # megabytes of YAML: seconds for the Python parser


@cache
def crd(name: str) -> dict[str, Any]:
    """A CRD by its file below the folder; the test is skipped where it is not at hand."""
    path = CRDS / name
    if not path.exists():
        pytest.skip(f"the CRD {name} is not beside the checkout")
    found: dict[str, Any] = yaml.load(path.read_text(), Loader=_Loader)
    return found


def problems(manifest: Mapping[str, Any], name: str) -> list[str]:
    """What is wrong with an object by the schema of its version; empty where nothing is."""
    definition = crd(name)["spec"]
    version = manifest["apiVersion"].rpartition("/")[2]
    assert manifest["apiVersion"].startswith(definition["group"])
    assert manifest["kind"] == definition["names"]["kind"]
    [served] = [one for one in definition["versions"] if one["name"] == version]
    schema = _strict(served["schema"]["openAPIV3Schema"])
    body = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}
    return _of(schema, body)


def spec_problems(spec: Mapping[str, Any], name: str) -> list[str]:
    """The same of a spec alone, for what a chart makes an object of."""
    [version] = [one for one in crd(name)["spec"]["versions"] if one["storage"]]
    return _of(_strict(version["schema"]["openAPIV3Schema"]["properties"]["spec"]), spec)


def _of(schema: dict[str, Any], value: Mapping[str, Any]) -> list[str]:
    found = Draft202012Validator(schema).iter_errors(value)
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in found]


def _strict(schema: Any) -> Any:
    """A schema of Kubernetes as a JSON schema that refuses unknown fields."""
    if isinstance(schema, list):
        return [_strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items() if not key.startswith("x-") and key != "format"}
    if schema.get("x-kubernetes-int-or-string"):
        strict = {"type": ["integer", "string"]}
    open_ended = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not open_ended:
        strict["additionalProperties"] = False
    return strict
