from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.local.plugins.kubernetes.diff import AUTONAMED, Change, difference, render
from infra.local.plugins.kubernetes.projection import project, quantity
from infra.local.plugins.kubernetes.values import UNKNOWN, has_unknowns, plain, struct

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
manifests = st.dictionaries(st.sampled_from(["spec", "data", "metadata", "status"]), documents, max_size=4)


def config_map(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, **fields}


def paths(old: dict[str, Any], new: dict[str, Any]) -> dict[str, tuple[Change, bool]]:
    return {render(each.path): (each.change, each.replaces) for each in difference(old, new, "default").fields}


def test_each_changed_field_has_its_own_path() -> None:
    old = config_map(data={"kept": "1", "gone": "1", "changed": "1"}, spec={"list": [{"a": 1}, {"b": 2}]})
    new = config_map(data={"kept": "1", "new": "1", "changed": "2"}, spec={"list": [{"a": 2}]})
    assert paths(old, new) == {
        "data.changed": (Change.UPDATE, False),
        "data.gone": (Change.DELETE, False),
        "data.new": (Change.ADD, False),
        "spec.list[0].a": (Change.UPDATE, False),
        "spec.list[1]": (Change.DELETE, False),
    }


def test_a_path_quotes_keys_that_are_no_words() -> None:
    assert render(("metadata", "labels", "gpufleet.dev/pool")) == 'metadata.labels["gpufleet.dev/pool"]'
    assert render(("data", 'a"b\\')) == 'data["a\\"b\\\\"]'


def test_an_unknown_value_counts_as_a_change() -> None:
    assert paths(config_map(data={"x": "1"}), config_map(data={"x": UNKNOWN})) == {"data.x": (Change.UPDATE, False)}


def test_true_is_not_one() -> None:
    assert paths(config_map(spec={"x": 1}), config_map(spec={"x": True})) == {"spec.x": (Change.UPDATE, False)}


def test_the_default_namespace_written_out_is_no_change() -> None:
    silent = {**config_map(), "metadata": {"name": "a"}}
    assert not difference(silent, config_map(), "default").fields
    assert not difference(silent, silent, "default").fields
    assert difference(silent, config_map(), "another").replaces


@pytest.mark.parametrize(
    ("field", "value", "delete_first"),
    [("name", "b", False), ("namespace", "other", False)],
)
def test_a_moved_object_is_made_before_the_old_one_goes(field: str, value: str, delete_first: bool) -> None:
    new = config_map(metadata={"name": "a", "namespace": "default", field: value})
    found = difference(config_map(), new, "default")
    assert found.replaces
    assert found.delete_first is delete_first


@pytest.mark.parametrize(
    ("api_version", "kind", "old", "new"),
    [
        ("kueue.x-k8s.io/v1beta2", "AdmissionCheck", {"controllerName": "a"}, {"controllerName": "b"}),
        ("kueue.x-k8s.io/v1beta2", "LocalQueue", {"clusterQueue": "a"}, {"clusterQueue": "b"}),
        ("apps/v1", "Deployment", {"selector": {"matchLabels": {"a": "1"}}}, {"selector": {"matchLabels": {"a": "2"}}}),
        ("batch/v1", "Job", {"selector": {"a": "1"}}, {}),
        ("v1", "PersistentVolumeClaim", {"storageClassName": "a"}, {"storageClassName": "b"}),
    ],
)
def test_an_immutable_field_deletes_first_under_a_fixed_name(
    api_version: str, kind: str, old: dict[str, Any], new: dict[str, Any]
) -> None:
    before = {**config_map(spec=old), "apiVersion": api_version, "kind": kind}
    found = difference(before, {**before, "spec": new}, "default")
    assert found.replaces
    assert found.delete_first


def test_an_immutable_field_of_an_object_with_a_made_name_is_replaced_without_a_gap() -> None:
    metadata = {"name": "a-1f", "namespace": "default", "annotations": {AUTONAMED: "true"}}
    before = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"selector": {"a": "1"}}}
    found = difference(before, {**before, "spec": {"selector": {"a": "2"}}}, "default")
    assert found.replaces
    assert not found.delete_first


def test_a_volume_claim_may_grow() -> None:
    claim = {**config_map(), "kind": "PersistentVolumeClaim"}
    sizes = [{**claim, "spec": {"resources": {"requests": {"storage": size}}}} for size in ("1Gi", "2Gi")]
    assert paths(*sizes) == {"spec.resources.requests.storage": (Change.UPDATE, False)}


def test_only_a_sealed_config_map_is_replaced() -> None:
    assert not difference(config_map(data={"x": "1"}), config_map(data={"x": "2"}), "default").replaces
    old, new = config_map(data={"x": "1"}, immutable=True), config_map(data={"x": "2"}, immutable=True)
    assert difference(old, new, "default").replaces


@given(manifests)
def test_equal_inputs_have_no_difference(manifest: dict[str, Any]) -> None:
    assert not difference(manifest, manifest, "default").fields


@given(manifests)
def test_an_untouched_object_shows_no_drift(manifest: dict[str, Any]) -> None:
    inputs = plain(struct(manifest))
    assert project(inputs, {**inputs, "status": inputs.get("status", {"phase": "Active"})}) == inputs


@given(manifests)
def test_whole_numbers_survive_the_wire(manifest: dict[str, Any]) -> None:
    once = plain(struct(manifest))
    assert plain(struct(once)) == once
    assert ".0" not in str([value for value in once.values() if isinstance(value, int | float)])


def test_numbers_reach_the_api_server_as_the_program_wrote_them() -> None:
    assert str(plain(struct({"gpus": 16, "share": 0.5, "none": None, "flag": True}))) == (
        "{'flag': True, 'gpus': 16, 'share': 0.5}"
    )


def test_unknowns_are_found_at_any_depth() -> None:
    assert has_unknowns({"spec": [{"a": UNKNOWN}]})
    assert not has_unknowns({"spec": [{"a": "known"}]})


def test_what_the_api_server_writes_in_its_own_way_is_no_drift() -> None:
    inputs = {
        "kind": "Secret",
        "stringData": {"password": "s3cret"},
        "spec": {"cpu": 0.5, "memory": "1024Mi", "gpus": 8, "paused": False, "empty": {}, "items": []},
    }
    live = {"kind": "Secret", "data": {"password": "czNjcmV0"}, "spec": {"cpu": "500m", "memory": "1Gi", "gpus": "8"}}
    assert project(inputs, live) == inputs


def test_what_somebody_changed_is_drift() -> None:
    inputs = config_map(data={"x": "0.5", "gone": "1"}, spec={"cpu": "1", "paused": True, "list": [1]})
    live = config_map(data={"x": "500m", "theirs": "1"}, spec={"cpu": "2", "list": [1, 2]}, status={"phase": "Active"})
    assert project(inputs, live) == config_map(data={"x": "500m"}, spec={"cpu": "2", "list": [1, 2]})


@pytest.mark.parametrize(
    ("text", "same_as"), [("1", "1000m"), ("1Gi", "1024Mi"), ("1e3", "1k"), ("0.1", "100m"), ("+1", "1")]
)
def test_a_quantity_has_many_spellings(text: str, same_as: str) -> None:
    assert quantity(text) == quantity(same_as)


@pytest.mark.parametrize("text", ["", "1.2.3", "1 Gi", "Gi", "1e999999999999", "half"])
def test_other_text_is_no_quantity(text: str) -> None:
    assert quantity(text) is None
