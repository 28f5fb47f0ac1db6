from __future__ import annotations

from typing import Any, cast

import pytest

from infra.local.plugins.kubernetes.check import LONGEST_NAME, Checked, Naming, check
from infra.local.plugins.kubernetes.diff import AUTONAMED
from infra.local.plugins.kubernetes.discovery import Discovery
from infra.local.plugins.kubernetes.values import UNKNOWN

NAMING = Naming("Rack_A", bytes.fromhex("0123456789abcdef"))


class KnownKinds:
    """What discovery would say, without a server."""

    def __init__(self) -> None:
        self.namespaced: dict[str, bool] = {"ConfigMap": True, "ClusterQueue": False}

    def is_namespaced(self, api_version: str, kind: str) -> bool | None:
        return self.namespaced.get(kind)

    def announce(self, definition: dict[str, Any]) -> None:
        self.namespaced[definition["spec"]["names"]["kind"]] = definition["spec"]["scope"] == "Namespaced"


def checked(
    new: dict[str, Any], old: dict[str, Any] | None = None, naming: Naming = NAMING, token: str = "kubernetes:x:Y"
) -> Checked:
    return check(token, old or {}, new, naming, cast(Discovery, KnownKinds()), "default")


def config_map(**metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", **({"metadata": metadata} if metadata else {})}


def failures(result: Checked) -> dict[str, str]:
    return {failure.path: failure.reason for failure in result.failures}


def test_an_object_without_a_name_gets_one_that_the_server_accepts_and_keeps_it() -> None:
    first = checked(config_map()).inputs["metadata"]
    assert first == {"name": "rack-a-01234567", "namespace": "default", "annotations": {AUTONAMED: "true"}}
    other_seed = Naming("Rack_A", b"another seed")
    assert checked(config_map(), {"metadata": first}, other_seed).inputs["metadata"]["name"] == "rack-a-01234567"
    long = checked(config_map(), naming=Naming("x" * 300, b"1234")).inputs["metadata"]["name"]
    assert len(long) == LONGEST_NAME


def test_a_name_that_the_program_gave_up_is_not_kept() -> None:
    old = config_map(name="given", namespace="default")
    assert checked(config_map(), old).inputs["metadata"]["name"] == "rack-a-01234567"


def test_the_stacks_naming_rules_are_followed() -> None:
    proposed = Naming("a", b"1234", proposed="acme-a")
    assert checked(config_map(), naming=proposed).inputs["metadata"]["name"] == "acme-a"
    assert "metadata.name" in failures(checked(config_map(), naming=Naming("a", b"1234", forbidden=True)))


def test_unknown_metadata_is_left_for_up() -> None:
    assert checked({**config_map(), "metadata": UNKNOWN}).inputs["metadata"] == UNKNOWN
    assert checked(config_map(name=UNKNOWN)).inputs["metadata"]["name"] == UNKNOWN


@pytest.mark.parametrize(
    ("inputs", "path"),
    [
        ({}, "apiVersion"),
        ({"apiVersion": "v1"}, "kind"),
        ({"apiVersion": 1, "kind": "ConfigMap"}, "apiVersion"),
        ({**config_map(), "metadata": "text"}, "metadata"),
        (config_map(name=7), "metadata.name"),
        (config_map(name=""), "metadata.name"),
        (config_map(generateName="a-"), "metadata.generateName"),
        (config_map(name="a", annotations={"pulumi.com/waitFor": "soon"}), "metadata.annotations"),
        (config_map(name="a", annotations={"pulumi.com/timeoutSeconds": "soon"}), "metadata.annotations"),
        (
            {"apiVersion": "x/v1", "kind": "ClusterQueue", "metadata": {"name": "a", "namespace": "b"}},
            "metadata.namespace",
        ),
    ],
)
def test_a_wrong_input_is_reported_with_its_path(inputs: dict[str, Any], path: str) -> None:
    assert path in failures(checked(inputs))


def test_a_patch_must_name_its_object() -> None:
    result = checked(config_map(), token="kubernetes:core/v1:ConfigMapPatch")
    assert "must name the object" in failures(result)["metadata.name"]


def test_a_cluster_wide_kind_gets_no_namespace_and_an_unknown_kind_keeps_its_own() -> None:
    queue = {"apiVersion": "x/v1", "kind": "ClusterQueue", "metadata": {"name": "a"}}
    assert "namespace" not in checked(queue).inputs["metadata"]
    rack = {"apiVersion": "x/v1", "kind": "Rack", "metadata": {"name": "a"}}
    assert "namespace" not in checked(rack).inputs["metadata"]
    assert checked(rack, {"metadata": {"name": "a", "namespace": "b"}}).inputs["metadata"]["namespace"] == "b"
