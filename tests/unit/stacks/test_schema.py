from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from stacks.catalogue import catalogue
from stacks.describing.schema import fleet_schema, render_schema, stack_file_schema, teams_file_schema
from stacks.describing.schema_forms import Schema
from stacks.load import ConfigError, read_object
from stacks.reading.stackfile import KEY, find

STACKS = Path(__file__).parents[3] / "stacks"
ENVIRONMENTS = ("local", "dev", "prod", "hybrid", "gcp")
_PLAIN_TYPES = ("integer", "number", "boolean")

# Every spelling that the quantities read, at a place where the value fits.
SPELLINGS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("prod", "spot.checkpoint.grace", ("90s", "1m30s", " 90s ", "1M 30S", "1.5m", "90000ms", "0.025h")),
    ("prod", "burst.policy.bounds.0", ("2m", "0s", "1 m 30 s", "120S")),
    ("prod", "burst.budget.monthly", ("60000 USD", "$60,000.00", "60k USD", "USD 60000", 60000, 60000.5, " 0.06M USD")),
    ("prod", "pools.rack.usd_per_gpu_hour", ("1.10 USD", 1.1, 1, "$1.10", "1.10")),
    ("prod", "pools.rack.memory_per_node", ("1Ti", "1 TiB", "1024Gi", "2 TB", 2**40, "1.5Ti")),
    ("prod", "capacity.headroom", ("20%", "20 %", " 12.5% ")),
    ("prod", "capacity.schedule.mornings.at", ("08:00", "8:00", 480, 0)),
    ("prod", "capacity.schedule.mornings.days", ("Mon-Fri", "daily", "Mon,Wed – fri", ["Mon", "sat-Sun"], "weekdays")),
    ("prod", "capacity.schedule.mornings.time_zone", ("UTC", "europe/berlin", "Etc/GMT+5", " UTC")),
    (
        "prod",
        "classes.P2.window",
        ("22:00-06:00 UTC", "Mon – Fri 8:00 – 9:00 UTC", "daily 0:00-24:00 UTC", "0 22 * * 1-5 FOR 8h UTC"),
    ),
    ("prod", "clusters.use.network.vpc", ("10.0.0.0/16", " 10.0.0.0 / 16 ")),
    ("prod", "links.office.peer.address", ("203.0.113.7", " 203.0.113.7", "2001:db8::7")),
    ("prod", "links.office.peer.asn", (65010, "65010", "AS65010", "as 65010", "1.10")),
    ("prod", "links.office.tunnels.0.inside", ("169.254.10.0/30", "169.254.10.0 / 30")),
    ("prod", "scaling.llm-inference.target", ("deployment/llm", "Deploy / llm", "sts/llm.x")),
    ("prod", "pools.rack.gpu", ("h100-sxm-80gb", "H100 SXM5 80GB", "nvidia_h100-sxm 80gb", "H100/SXM")),
    ("prod", "pools.rack-mig.mig.layout.6-7.0", ("7x1g.5gb", "7 × 1G.5GB", "7*MIG 1g5gb", "7x nvidia.com/mig-1g.5gb")),
    ("hybrid", "links.metro.bandwidth", ("10 Gbps", "10Gbit/s", "500 Mb/s", "1.25GB/s", "10 gbps")),
    ("dev", "clusters.dev.kubeconfig", ({"secret": "devKubeconfig"}, {"context": "dev"})),
    ("dev", "classes.batch.window", ("Sat-Sun 00:00-24:00 UTC", "daily 01:00-02:00 UTC")),
)

# What a schema can see without knowing the rest of the file.
WRONG: tuple[tuple[str, str, Any], ...] = (
    ("local", "schema_version", 2),
    ("local", "schema_version", "1"),
    ("local", "preset", "cheap"),
    ("local", "burst.budget", None),
    ("local", "organization", "Acme Inc"),
    ("local", "clusters", {}),
    ("local", "clusters.lab.kind", "aks"),
    ("local", "clusters.lab.kubeconfig", {"path": "/root/.kube/config"}),
    ("local", "clusters.lab.software", {"kueue": "skip", "gpu_operator": "existing"}),
    ("local", "pools.rack.location", "on-prem"),
    ("local", "pools.rack.gpu", "h100-sxm-81gb"),
    ("local", "pools.rack.gpu", ""),
    ("local", "pools.rack.nodes", {"min": 0, "max": 4}),
    ("local", "pools.rack.nodes", 0),
    ("local", "pools.rack.nodes", 1.5),
    ("local", "pools.rack.node_names", "rack-0"),
    ("local", "pools.rack.usd_per_gpu_hour", -1),
    ("local", "pools.rack.usd_per_gpu_hour", "1.10 EUR"),
    ("local", "pools.rack.memory_per_node", []),
    ("local", "pools.rack.memory_per_node", "lots"),
    ("local", "pools.rack.mig", {"layout": {"first": ["3g.20gb"]}}),
    ("local", "pools.rack.mig", {"layout": {"0": ["3 slices"]}}),
    ("local", "pools.rack.sharing", {"time_slicing": {"replicas": 1}}),
    ("local", "pools.burst-od.provisioner", "karpentr"),
    ("local", "pools.burst-od.market", "sopt"),
    ("local", "pools.burst-od.instance_types", []),
    ("local", "pools.burst-od.instance_types", "p5.48xlarge"),
    ("local", "pools.burst-od.max_gpus", "8"),
    ("local", "pools.Rack_B", {}),
    ("local", "classes.P0.max_wait", 5),
    ("local", "classes.P0.max_wait", "5 parsecs"),
    ("local", "classes.P0.burst", "sometimes"),
    ("local", "classes.P0.window", "22:00-06:00"),
    ("local", "classes.P0.markets", ["spot", "office"]),
    ("local", "classes.P0.defualt", True),
    ("local", "teams.vision.quota", {"h100-onprem": -1}),
    ("local", "teams.vision.budget.kind", "firm"),
    ("local", "teams.vision.budget.monthly", "-5 USD"),
    ("local", "teams_file", "teams.prod.yaml"),
    ("local", "burst.policy", {"kind": "constant"}),
    ("local", "burst.policy.bounds", ["2m"]),
    ("local", "burst.policy.bounds", ["2m", 7200]),
    ("local", "burst.order", []),
    ("local", "agent.ledger", {"kind": "object-store", "url": "https://acme"}),
    ("local", "on_destroy", "delete"),
    ("local", "spott", {}),
    ("prod", "links.office.kind", "vpn"),
    ("prod", "links.office.peer.address", "router.example.com"),
    ("prod", "links.office.peer.cidrs", ["10.200.0.0"]),
    ("prod", "links.office.tunnels", [{}]),
    ("prod", "links.office.tunnels.0.psk", "hunter2"),
    ("prod", "capacity.headroom", 0.2),
    ("prod", "capacity.schedule.mornings.at", "25:00"),
    ("prod", "scaling.llm-inference.trigger.kind", "kafka"),
    ("prod", "clusters.use.version", 1.35),
    ("prod", "teams", {"vision": {"quota": {}}}),
    ("hybrid", "links.metro.bandwidth", "10"),
    ("gcp", "pools.spot.nodes", 4),
    ("gcp", "pools.spot.market", "capacity-block"),
)


@cache
def stack_files() -> Draft202012Validator:
    return Draft202012Validator(stack_file_schema())


def environment(name: str) -> Any:
    return copy.deepcopy(_environment(name))


@cache
def _environment(name: str) -> Any:
    path = STACKS / f"Pulumi.{name}.yaml"
    return find(path.read_text("utf-8"), path.name).value


def complaints(fleet: Any) -> list[ValidationError]:
    return list(stack_files().iter_errors({"config": {KEY: fleet}}))


def changed(fleet: Any, place: str, value: Any) -> Any:
    parent, last = _parent(fleet, place)
    parent[last] = value
    return fleet


def removed_at(fleet: Any, place: str) -> Any:
    parent, last = _parent(fleet, place)
    del parent[last]
    return fleet


def _parent(fleet: Any, place: str) -> tuple[Any, Any]:
    here = fleet
    *above, last = place.split(".")
    for part in above:
        here = here[int(part)] if isinstance(here, list) else here[part]
    return here, int(last) if isinstance(here, list) else last


def loads(fleet: Any) -> bool:
    try:
        read_object(fleet, "Pulumi.x.yaml", folder=STACKS)
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize("schema", [stack_file_schema(), teams_file_schema()], ids=["stack file", "teams file"])
def test_the_schemas_are_schemas(schema: Schema) -> None:
    Draft202012Validator.check_schema(schema)
    assert json.loads(render_schema(schema)) == schema


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_is_valid_by_the_schema(name: str) -> None:
    assert complaints(environment(name)) == []


def test_the_file_of_teams_is_valid_by_its_schema() -> None:
    validator = Draft202012Validator(teams_file_schema())
    teams = yaml.safe_load((STACKS / "teams.prod.yaml").read_text("utf-8"))

    assert list(validator.iter_errors(teams)) == []
    assert not validator.is_valid({"teams": {}})
    assert not validator.is_valid({**teams, "pools": {}})
    assert not validator.is_valid({"teams": {"vision": {"quota": {"h100-onprem": 8}, "budgit": {"monthly": 5}}}})


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [(name, place, value) for name, place, values in SPELLINGS for value in values],
    ids=lambda part: str(part).replace("/", "_")[:40],
)
def test_every_spelling_that_loads_is_valid_by_the_schema(name: str, place: str, value: Any) -> None:
    fleet = changed(environment(name), place, value)

    assert loads(fleet)
    assert complaints(fleet) == []


@pytest.mark.parametrize(
    ("name", "place", "value"), WRONG, ids=[f"{place}={value}".replace("/", "_")[:60] for _, place, value in WRONG]
)
def test_what_is_plainly_wrong_is_invalid(name: str, place: str, value: Any) -> None:
    fleet = changed(environment(name), place, value)

    assert not loads(fleet)
    assert complaints(fleet)


@pytest.mark.parametrize("place", ["schema_version", "organization", "clusters", "pools", "classes", "burst", "teams"])
def test_a_section_that_is_required_is_missed(place: str) -> None:
    fleet = environment("local")
    del fleet[place]

    assert [error.message for error in complaints(fleet)] == [f"{place!r} is a required property"]


def test_what_a_preset_fills_in_is_not_required() -> None:
    fleet = environment("local")
    del fleet["burst"]["policy"]

    assert loads(fleet)
    assert complaints(fleet) == []


def test_only_the_branch_that_is_meant_complains() -> None:
    fleet = changed(environment("prod"), "pools.burst-spot.markt", "spot")

    assert [error.message for error in complaints(fleet)] == [
        "Additional properties are not allowed ('markt' was unexpected)"
    ]


def test_settings_of_other_projects_and_secrets_of_ours_stand_beside_the_object() -> None:
    config = {KEY: environment("local"), "aws:region": "us-east-1", "gpufleet:officeTunnel1": {"secure": "v1:abc"}}

    assert stack_files().is_valid({"config": config, "encryptionsalt": "v1:abc"})
    assert not stack_files().is_valid({"config": config | {"gpufleet:flete": {}}})
    assert not stack_files().is_valid({"config": config | {"officeTunnel2": "hunter2"}})
    assert not stack_files().is_valid({"config": {"aws:region": "us-east-1"}})


def test_an_instance_type_that_the_catalogue_lacks_is_allowed_with_its_shape() -> None:
    fleet = environment("local")
    shape = {"gpu": "h100-sxm-80gb", "gpus_per_node": 8, "cpus_per_node": 192, "memory_per_node": "2Ti"}
    fleet["pools"]["burst-od"] |= {"instance_types": ["p9.48xlarge"], "shape": shape, "usd_per_gpu_hour": 5}

    assert loads(fleet)
    assert complaints(fleet) == []


def _places(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, str(key)), inner
        yield from _places(inner, (*path, str(key)))


PLACES = [(name, ".".join(path), value) for name in ENVIRONMENTS for path, value in _places(_environment(name))]
VALUES = [value for _, _, value in PLACES] + [None, 0, 1, -1, 1.5, 65010, "", "x", "5m", "10%", "1Ti", "h100", [], {}]


@settings(max_examples=60)
@given(place=st.sampled_from(PLACES), value=st.sampled_from(VALUES), removed=st.booleans())
def test_whatever_loads_is_valid_by_the_schema(place: tuple[str, str, Any], value: Any, removed: bool) -> None:
    name, path, _ = place
    fleet = removed_at(environment(name), path) if removed else changed(environment(name), path, copy.deepcopy(value))

    if loads(fleet):
        assert [error for error in complaints(fleet) if not _is_read_leniently(error)] == []


def _is_read_leniently(error: ValidationError) -> bool:
    """What pydantic takes for a number, or for true or false, and a schema does not."""
    if error.context:
        return any(_is_read_leniently(inner) for inner in error.context)
    return error.instance is True or (error.validator == "type" and error.validator_value in _PLAIN_TYPES)


def _described(schema: Schema) -> Iterator[tuple[str, bool]]:
    for name, model in schema["$defs"].items():
        for key, field in model["properties"].items():
            yield f"{name}.{key}", bool(field.get("description"))


def test_every_setting_says_what_it_means() -> None:
    schema = fleet_schema()

    assert [name for name, described in _described(schema) if not described] == []
    assert [name for name, field in schema["properties"].items() if not field.get("description")] == []


def test_defaults_are_written_as_in_the_file() -> None:
    definitions = fleet_schema()["$defs"]

    assert definitions["Burst"]["properties"]["expected_runtime"]["default"] == "1h"
    assert definitions["Checkpoint"]["properties"]["grace"]["default"] == "1m30s"
    assert definitions["Capacity"]["properties"]["headroom"]["default"] == "0%"
    assert "default" not in definitions["JobClass"]["properties"]["max_wait"]


def test_the_catalogue_is_offered() -> None:
    definitions = fleet_schema()["$defs"]
    types = definitions["KarpenterPool"]["properties"]["instance_types"]["items"]["anyOf"][0]["enum"]
    machines = definitions["GkePool"]["properties"]["machine_type"]["anyOf"][0]["enum"]

    assert definitions["OnPremPool"]["properties"]["gpu"]["anyOf"][0]["enum"] == sorted(catalogue().gpus)
    assert "p5.48xlarge" in types
    assert "a3-highgpu-8g" in machines
    assert not set(types) & set(machines)


def test_a_default_that_is_a_list_is_written_as_it_could_stand_in_the_file() -> None:
    budget = fleet_schema()["$defs"]["Budget"]

    assert budget["properties"]["thresholds"]["default"] == ["50%", "80%", "100%"]
