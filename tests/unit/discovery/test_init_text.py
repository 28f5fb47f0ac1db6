"""From cluster objects to a file that is right, whatever the cluster holds."""

from __future__ import annotations

import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.kubernetes import kueue
from infra.discovery.answers import Answers
from infra.discovery.draft import draft
from infra.discovery.find import find
from infra.discovery.objects import ClusterObjects
from infra.discovery.text import flow, render
from infra.local.embedded import kwok_pool
from infra.local.kwok import nodes as kwok_nodes
from infra.planning.objects import node_patches
from stacks.agent_config import agent_config, dump
from stacks.flavors import flavor_name
from stacks.fleet import Fleet
from stacks.load import load_file, load_text, read_text
from stacks.quantities import parse_kube_name
from tests.unit.discovery.builders import A100_MIXED, GKE_SPOT, H100, KARPENTER_SPOT, node, queue, raw

OURS = {"app.kubernetes.io/managed-by": "gpufleet"}


def text_of(objects: ClusterObjects, answers: Answers = Answers(), unknown_gpu: str | None = None) -> str:  # noqa: B008
    return render(draft(find(objects, unknown_gpu=unknown_gpu), answers))


def fleet_of(objects: ClusterObjects, answers: Answers = Answers()) -> Fleet:  # noqa: B008 - it is frozen
    return load_text(text_of(objects, answers), "found")


def cluster(*nodes: dict[str, Any], **others: Any) -> ClusterObjects:
    lists: dict[str, Any] = {key: tuple(value) for key, value in others.items()}
    return ClusterObjects(nodes=nodes, **lists)


def test_equal_machines_become_one_pool_whose_nodes_are_named() -> None:
    nodes = [node(f"gpu{at}", H100, memory=f"{2_097_152_000 - at}Ki") for at in range(3)]
    fleet = fleet_of(cluster(*nodes, node("web", gpus=0), node("small", H100, memory="500Gi")))

    assert {name: pool.gpus for name, pool in fleet.onprem_pools.items()} == {"h100": 8, "h100-2": 24}
    rack = fleet.onprem_pools["h100-2"]
    assert rack.node_names == ("gpu0", "gpu1", "gpu2")
    assert (rack.gpu, rack.cpus_per_node, rack.memory_per_node) == ("h100-sxm-80gb", 190, 1999 * 2**30)


def test_owned_gpus_cost_what_a_person_says_and_else_nothing() -> None:
    objects = cluster(node("gpu", H100))
    assert fleet_of(objects).onprem_pools["h100"].usd_per_gpu_hour == 0
    assert "usd_per_gpu_hour: 0 USD" in text_of(objects)
    said = Answers(usd_per_gpu_hour=Decimal("1.10"))
    assert fleet_of(objects, said).onprem_pools["h100"].usd_per_gpu_hour == Decimal("1.1")


def test_nothing_may_be_rented_or_spent_before_a_person_says_so() -> None:
    fleet = fleet_of(cluster(node("gpu", H100)))
    assert [(pool.gpu, pool.gpus, pool.market) for pool in fleet.cloud_pools.values()] == [
        ("h100-sxm-80gb", 0, "on-demand")
    ]
    assert fleet.burst.budget is not None
    assert fleet.burst.budget.monthly == 0


def test_slices_become_a_layout() -> None:
    slices = {"mig_1g_5gb": "16", "mig_2g_10gb": "8", "mig_3g_20gb": "8"}
    fleet = fleet_of(cluster(*(node(f"mig{at}", A100_MIXED, gpus=0, **slices) for at in range(2))))
    pool = fleet.onprem_pools["a100-40gb"]
    assert pool.mig is not None
    assert (pool.gpus, pool.mig.strategy, dict(pool.mig.slices)) == (
        16,
        "mixed",
        {"1g.5gb": 16, "2g.10gb": 8, "3g.20gb": 8},
    )
    assert fleet.teams["team-a"].quota == {"a100-40gb-mig-onprem": 16}


def test_slices_that_are_offered_as_gpus_are_recognised_by_the_product() -> None:
    labels = H100 | {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "nvidia.com/gpu.count": "56"}
    pool = fleet_of(cluster(node("mig", labels, gpus=56))).onprem_pools["h100"]
    assert pool.mig is not None
    assert (pool.gpus, pool.mig.strategy, pool.mig.slices["1g.10gb"]) == (8, "single", 56)


def test_shared_gpus_are_counted_once() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4-SHARED", "nvidia.com/gpu.count": "4", "nvidia.com/gpu.replicas": "4"}
    pool = fleet_of(cluster(node("l4", labels, gpus=16))).onprem_pools["l4"]
    assert pool.sharing is not None
    assert (pool.gpus, pool.sharing.replicas) == (4, 4)


def test_rented_nodes_become_pools_by_group_and_market() -> None:
    aws = [node(f"ip-{at}", KARPENTER_SPOT, provider="aws:///use1-az1/i-1") for at in range(2)]
    fleet = fleet_of(cluster(*aws, node("gke-1", GKE_SPOT, provider="gce://acme/us-central1-a/x"), node("rack", H100)))

    assert fleet.onprem_pools.keys() == {"h100"}
    assert {name: (pool.flavor_location, pool.market, pool.gpus) for name, pool in fleet.cloud_pools.items()} == {
        "gpu-spot": ("aws", "spot", 16),
        "h100-pool": ("gcp", "spot", 8),
    }
    assert fleet.cloud_pools["gpu-spot"].price == Decimal("6.88"), "the on-demand list price is the ceiling"


def test_a_rented_pool_that_nobody_knows_the_price_of_is_left_out_with_the_reason() -> None:
    labels = {key: value for key, value in KARPENTER_SPOT.items() if "region" not in key}
    objects = cluster(node("ip-1", labels, provider="aws:///a/i"), node("rack", H100))
    assert "gpu-spot" not in fleet_of(objects).pools
    assert "ip-1.): usd_per_gpu_hour: a spot pool needs" in " ".join(text_of(objects).replace("#", "").split())
    assert fleet_of(objects, Answers(cloud_usd_per_gpu_hour=Decimal(3))).cloud_pools["gpu-spot"].price == 3


def test_an_instance_type_that_the_catalogue_does_not_know_is_described() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-L4", "node.kubernetes.io/instance-type": "g99.xlarge"}
    objects = cluster(node("ip-1", labels, gpus=1, provider="aws:///a/i"))
    fleet = fleet_of(objects, Answers(cloud_usd_per_gpu_hour=Decimal(1)))
    [pool] = fleet.cloud_pools.values()
    assert (pool.gpu, pool.gpus_per_node, pool.cpus_per_gpu) == ("l4-24gb", 1, 190)


def test_nodes_of_a_cloud_that_we_do_not_know_are_a_brokers() -> None:
    objects = cluster(node("aks-1", H100, provider="azure:///subscriptions/1"))
    [pool] = fleet_of(objects, Answers(cloud_usd_per_gpu_hour=Decimal(4))).cloud_pools.values()
    assert (pool.flavor_location, pool.gpus, pool.price) == ("azure", 8, Decimal(4))


def test_a_node_pool_of_karpenter_gives_its_limit_and_shows_when_it_is_empty() -> None:
    requirements = [
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5.48xlarge"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["us-east-1a"]},
    ]
    spec = {"limits": {"nvidia.com/gpu": "64"}, "template": {"spec": {"requirements": requirements}}}
    pools = [raw("big", spec=spec), raw("gpu-spot", spec={"limits": {"nvidia.com/gpu": 32}}), raw("cpu", spec={})]
    spot = node("ip-1", KARPENTER_SPOT, provider="aws:///a/i")
    fleet = fleet_of(ClusterObjects(nodes=(spot,), node_pools=tuple(pools)))
    assert {name: pool.gpus for name, pool in fleet.cloud_pools.items()} == {"gpu-spot": 32, "big-h100-on-demand": 64}


def test_a_queue_of_kueue_becomes_a_team_beside_it() -> None:
    fleet = fleet_of(
        cluster(
            node("gpu", H100),
            cluster_queues=[queue("vision", "h100", "6", cohort="acme", borrowingLimit="2", lendingLimit=4)],
            local_queues=[raw("lq", namespace="vision-jobs", spec={"clusterQueue": "vision"})],
            resource_flavors=[raw("h100", spec={"nodeLabels": {"nvidia.com/gpu.count": "8"}})],
            cohorts=[raw("acme", spec={"parentName": "corp"})],
            namespaces=[raw("vision-jobs"), raw("default")],
            priority_classes=[raw("prod", value=1000), raw("test.low", value=-(2**31))],
        )
    )
    assert fleet.organization == "corp"
    team = fleet.teams["vision-jobs"]
    assert (team.quota, team.borrow, team.lend) == ({"h100-onprem": 6}, {"h100-onprem": 2}, {"h100-onprem": 4})
    assert team.namespace == "fleet-vision-jobs"
    assert {name: one.priority for name, one in fleet.classes.items()} == {
        "fleet-prod": 1000,
        "test-low": -1_000_000_000,
    }


def test_quotas_above_what_is_there_are_lowered_and_said() -> None:
    flavor = raw("gpus", spec={"nodeLabels": {}})
    objects = cluster(
        node("gpu", H100), cluster_queues=[queue("a", "gpus", 6), queue("b", "gpus", 6)], resource_flavors=[flavor]
    )
    assert [team.quota for team in fleet_of(objects).teams.values()] == [{"h100-onprem": 6}, {"h100-onprem": 2}]
    assert "its quota of h100-onprem is 6 in Kueue; 2 are there or left" in text_of(objects)


def test_a_flavor_that_selects_two_kinds_of_gpu_is_left_to_a_person() -> None:
    objects = cluster(
        node("a", H100),
        node("b", {"nvidia.com/gpu.product": "NVIDIA-L4"}),
        cluster_queues=[queue("team", "any", 6)],
        resource_flavors=[raw("any", spec={})],
    )
    assert fleet_of(objects).teams["fleet-team"].quota == {}
    assert "selects nodes of h100-onprem, l4-onprem" in text_of(objects)


def test_names_that_are_taken_by_somebody_else_are_not_used() -> None:
    spaces = [raw("team-a"), raw("fleet-team-a"), raw("mine", labels=OURS)]
    objects = cluster(
        node("gpu", H100), namespaces=spaces, priority_classes=[raw("normal", value=1)], cohorts=[raw("acme")]
    )
    fleet = fleet_of(objects, Answers(organization="acme", teams=("team-a", "mine")))
    assert fleet.organization == "fleet-acme"
    assert {name: team.namespace for name, team in fleet.teams.items()} == {"team-a": "fleet-team-a-2", "mine": None}
    assert set(fleet.classes) == {"fleet-normal"}


def test_nodes_with_dots_in_their_names_are_not_named_and_why_is_said() -> None:
    objects = cluster(node("gpu1.corp.example", H100))
    assert fleet_of(objects).onprem_pools["h100"].node_names == ()
    assert "Their names have dots" in text_of(objects)


def test_nodes_of_an_unknown_model_are_left_out_or_have_the_model_that_a_flag_names() -> None:
    objects = cluster(node("box", {"nvidia.com/gpu.product": "NVIDIA-GeForce-RTX-4090"}, gpus=2))
    assert "GPU model is not known: nvidia.com/gpu.product=NVIDIA-GeForce-RTX-4090" in text_of(objects)
    assert not fleet_of(objects).onprem_pools
    assert load_text(text_of(objects, unknown_gpu="l40s-48gb"), "x").onprem_pools["l40s"].gpus == 2


def test_an_empty_cluster_and_one_without_gpus_give_a_file_that_is_right() -> None:
    for objects in (ClusterObjects(), cluster(node("web", gpus=0))):
        fleet = fleet_of(objects)
        assert (fleet.onprem_pools, fleet.teams["team-a"].quota) == ({}, {})


def test_a_driver_that_is_missing_is_said() -> None:
    assert "should have GPUs by their labels and offer none" in text_of(cluster(node("gpu", H100, gpus=0)))


def test_two_thousand_nodes_take_less_than_a_second() -> None:
    flavors = [raw(f"f{at}", spec={"nodeLabels": {"nvidia.com/gpu.product": f"x{at}"}}) for at in range(20)]
    objects = cluster(*(node(f"gpu-{at:04}", H100) for at in range(2_000)), resource_flavors=flavors)
    began = time.perf_counter()
    text = text_of(objects)
    assert time.perf_counter() - began < 1
    assert max(map(len, text.splitlines())) <= 120
    assert load_text(text, "x").onprem_pools["h100"].gpus == 16_000


HOSTILE = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=20), st.lists(st.text(max_size=3), max_size=2),
    st.sampled_from(["", "-", "9" * 400, "on", "1e5", "a\nb: c", "\u202e#x", "NVIDIA-H100-80GB-HBM3", "8", "-8", "0.5"]),
)  # fmt: skip
KEYS = st.sampled_from([*H100, *A100_MIXED, *KARPENTER_SPOT, *GKE_SPOT, "gpufleet.dev/pool", "gpufleet.dev/flavor"])
RESOURCES = st.sampled_from(
    ["nvidia.com/gpu", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-", "cpu", "memory", "amd.com/gpu"]
)


@st.composite
def any_node(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(st.dictionaries(KEYS, HOSTILE, max_size=6))
    offered = draw(st.dictionaries(RESOURCES, HOSTILE, max_size=5))
    spec = {"providerID": draw(HOSTILE)}
    return {"metadata": {"name": draw(HOSTILE), "labels": labels}, "spec": spec, "status": {"allocatable": offered}}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(any_node(), max_size=3), st.lists(st.tuples(st.text(max_size=8), HOSTILE, HOSTILE), max_size=3))
def test_whatever_a_cluster_holds_the_file_is_right(nodes: list[dict[str, Any]], queues: list[Any]) -> None:
    made = [queue(str(name), str(flavor), gpus) for name, flavor, gpus in queues]
    classes = [raw(str(name), value=value) for name, value, _ in queues]
    good = node("good", H100)
    read_text(text_of(cluster(good, *nodes, cluster_queues=made, priority_classes=classes)), "found")


@settings(max_examples=100)
@given(st.recursive(st.one_of(st.booleans(), st.integers(), st.from_regex(r"[ -~]{0,12}", fullmatch=True)),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[ -~]{1,5}", fullmatch=True), inner, max_size=3)))  # fmt: skip
def test_a_value_reads_back_as_it_was(value: Any) -> None:
    assert yaml.safe_load(flow(value)) == value


@pytest.mark.parametrize("name", ["on", "1e5", "123", "0x1f", "null", "y"])
def test_names_that_yaml_takes_for_something_else_are_quoted(name: str) -> None:
    assert parse_kube_name(name) == name
    assert flow(name) == f'"{name}"'


def deployed(fleet: Fleet) -> ClusterObjects:
    """The cluster of a fleet that `pulumi up` has deployed, as an API server would show it."""
    nodes = [dict(one) for one in kwok_nodes([kwok_pool(name, pool) for name, pool in fleet.pools.items()])]
    labels = {patch["metadata"]["name"]: patch["metadata"]["labels"] for patch in node_patches(fleet)}
    for one in nodes:
        one["metadata"]["labels"] |= labels.get(one["metadata"]["name"], {})
    made = list(kueue.manifests(fleet).values())
    of = {kind: tuple(one for one in made if one["kind"] == kind) for kind in {one["kind"] for one in made}}
    return ClusterObjects(
        nodes=tuple(nodes),
        namespaces=of["Namespace"],
        cluster_queues=of["ClusterQueue"],
        local_queues=of["LocalQueue"],
        resource_flavors=of["ResourceFlavor"],
        priority_classes=of["WorkloadPriorityClass"],
        cohorts=of["Cohort"],
        agent_config=dump(agent_config(fleet)),
    )


@pytest.mark.parametrize("stack", ["local", "dev", "hybrid"])
def test_what_gpufleet_deployed_folds_back_into_the_same_fleet(repository: Path, stack: str) -> None:
    original = load_file(repository / "stacks" / f"Pulumi.{stack}.yaml")
    found = fleet_of(deployed(original))
    assert found.organization == original.organization
    assert {name: flavor_name(pool) for name, pool in found.pools.items()} == {
        name: flavor_name(pool) for name, pool in original.pools.items()
    }
    assert dump(agent_config(found)) == dump(agent_config(original))
    assert {name: team.model_dump() for name, team in found.teams.items()} == {
        name: team.model_dump() for name, team in original.teams.items()
    }


def test_what_a_file_says_of_policies_money_and_dry_runs_folds_back_too(repository: Path) -> None:
    text = (repository / "stacks" / "Pulumi.dev.yaml").read_text()
    more = "    projects: {grant: {teams: [research], budget: {weekly: 9 USD, time_zone: Asia/Tokyo}}}\n    agent: {dry_run: true}\n"
    text = text.replace("    burst:\n", f"{more}    burst:\n").replace(
        "platform: {", "platform: {policy: {kind: never}, "
    )
    original = agent_config(load_text(text, "dev"))

    assert (original.dry_run, *original.projects) == (True, "grant")
    assert original.teams["platform"].policy is not None
    assert dump(agent_config(fleet_of(deployed(load_text(text, "dev"))))) == dump(original)


def test_names_of_queues_that_we_make_are_no_names_of_teams() -> None:
    names = ["vision-burst", "nlp-burst-h100-aws-spot", "a-window-b", "-burst-window", "x" * 60]
    queues = [queue(name, "any", 1) for name in names]
    fleet = fleet_of(cluster(node("gpu", H100), cluster_queues=queues))
    assert len(fleet.teams) == len(names)


def test_pools_without_a_node_are_known_from_the_agent(repository: Path) -> None:
    original = load_file(repository / "stacks" / "Pulumi.local.yaml")
    objects = deployed(original)
    kept = tuple(one for one in objects.nodes if one["metadata"]["name"].startswith("rack"))
    found = fleet_of(replace(objects, nodes=kept))
    assert agent_config(found).flavors == agent_config(original).flavors


def test_an_agent_of_another_version_is_said() -> None:
    objects = replace(cluster(node("gpu", H100)), agent_config="nonsense: true")
    assert "has a configuration that this version cannot read" in text_of(objects)


def test_a_quota_that_stands_for_no_limit_becomes_one() -> None:
    huge = queue("a", "gpus", 10**12, borrowingLimit=10**12)
    objects = cluster(node("gpu", H100), cluster_queues=[huge], resource_flavors=[raw("gpus", spec={})])
    [team] = fleet_of(objects).teams.values()
    assert (team.quota, team.borrow) == ({"h100-onprem": 8}, {"h100-onprem": 1_000_000})


def test_a_context_that_was_named_is_pinned(repository: Path) -> None:
    home = fleet_of(cluster(node("gpu", H100)), Answers(cluster="office", context="prod@acme")).clusters["office"]
    assert home.model_dump()["kubeconfig"] == {"context": "prod@acme"}
