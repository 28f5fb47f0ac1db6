"""The GPU layer's objects: what each says, that the CRDs take them, and in which order they are made."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest
import yaml

from components.kubernetes import gpu, kueue
from components.kubernetes.gpu import drivers, gke, operator, readings
from components.onprem import nodepool
from infra.planning.manifests import yaml_of
from infra.planning.objects import objects_of
from runtime.node.settings import load
from stacks.devices import node_capacity
from stacks.fleet import Fleet
from stacks.layouts import MIG_CONFIG_LABEL, PLUGIN_CONFIG_LABEL
from stacks.pools import GkePool
from tests.conftest import Golden
from tests.fakes.crds import problems, spec_problems
from tests.mocks.environments import ENVIRONMENTS, load_environment, of_kind
from tests.mocks.gpu_fleets import LAYER, NCCL, gpu_fleet

OPERATOR = "gpu-operator-26.7.0"
RELAYOUT = "    gpu_layer: {relayout: {mode_change: reset}}\n"


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return gpu_fleet()


def data_of(fleet: Fleet, name: str) -> dict[str, str]:
    [found] = [one for one in of_kind(gpu.manifests(fleet), "ConfigMap") if one["metadata"]["name"] == name]
    return dict(found["data"])


def labels_of(fleet: Fleet, pool: str) -> dict[str, str]:
    [node, *_] = nodepool.manifests(pool, fleet).values()
    return dict(node["metadata"]["labels"])


def test_the_objects_read_as_reviewed(fleet: Fleet, golden: Golden) -> None:
    golden.check("gpus/objects.yaml", yaml_of(list(gpu.manifests(fleet).values())))
    golden.check("gpus/releases.yaml", yaml_of(list(gpu.releases(fleet).values())))


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_release_and_no_object_is_made_unasked(environment: str) -> None:
    fleet = load_environment(environment)
    part = fleet.home.software.gpu_operator
    assert bool(gpu.releases(fleet)) is (part == "managed")
    partitioned = any(getattr(pool, "partitioned", False) for pool in fleet.pools.values())
    assert bool(gpu.manifests(fleet)) is (part == "managed" or (part == "existing" and partitioned))


def test_beside_an_operator_of_somebody_else_there_are_its_config_maps_alone() -> None:
    fleet = gpu_fleet("", "existing")
    kinds = {(one["kind"], one["metadata"]["name"]) for one in gpu.manifests(fleet).values()}
    assert kinds == {
        ("ConfigMap", "gpufleet-mig-layouts"),
        ("ConfigMap", "gpufleet-device-plugin"),
        ("ConfigMap", "gpufleet-kubelet-rack"),
        ("NodeOverlay", "gpufleet-auto"),
    }
    assert gpu.releases(fleet) == {}


# The API server's view.


def test_every_custom_resource_is_one_that_its_crd_takes(fleet: Fleet) -> None:
    files = {
        "NVIDIADriver": f"{OPERATOR}/nvidia.com_nvidiadrivers.yaml",
        "NodeOverlay": "karpenter-aws-1.14.1/karpenter.sh_nodeoverlays.yaml",
        "NetworkAttachmentDefinition": "network-attachment-definition-client/networks-crd.yaml",
    }
    objects = gpu.manifests(fleet)
    for kind, file in files.items():
        assert of_kind(objects, kind)
        assert [problems(one, file) for one in of_kind(objects, kind) if problems(one, file)] == []


def cluster_policy_spec(values: dict[str, Any]) -> dict[str, Any]:
    """The spec that the chart makes of values: a section goes by its own name, but for what only the chart reads.

    Of sections: `nfd` and `node-feature-discovery`, which are another chart's. In them: `create` and `data` of a
    `config`, which make a ConfigMap, and `driver.nvidiaDriverCRD`, which becomes `driver.useNvidiaDriverCRD`.
    """
    spec = json.loads(json.dumps({key: section for key, section in values.items() if "feature" not in key}))
    del spec["nfd"]
    for section in spec.values():
        for key in ("create", "data"):
            section.get("config", {}).pop(key, None)
    spec["driver"]["useNvidiaDriverCRD"] = spec["driver"].pop("nvidiaDriverCRD")["enabled"]
    filled_by_the_chart: dict[str, Any] = {"dcgm": {}, "gfd": {}, "nodeStatusExporter": {}, "operator": {}}
    return filled_by_the_chart | dict(spec)


@pytest.mark.parametrize("layer", [LAYER, RELAYOUT, ""])
def test_the_values_become_a_cluster_policy_that_its_crd_takes(layer: str) -> None:
    values = operator.values(gpu_fleet(layer.replace("mode_change: reset", "mode_change: reboot")))
    assert spec_problems(cluster_policy_spec(values), f"{OPERATOR}/nvidia.com_clusterpolicies.yaml") == []


def test_a_value_that_the_crd_does_not_know_is_found(fleet: Fleet) -> None:
    spec = cluster_policy_spec(operator.values(fleet))
    spec["mig"]["config"] = "all-1g.10gb"
    assert spec_problems(spec, f"{OPERATOR}/nvidia.com_clusterpolicies.yaml")


# Security and metrics.


def test_no_container_gets_gpus_by_an_environment_variable(fleet: Fleet) -> None:
    values = operator.values(fleet)
    toolkit = {one["name"]: one["value"] for one in values["toolkit"]["env"]}
    assert toolkit["ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED"] == "false"
    assert toolkit["ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS"] == "true"
    plugin = {one["name"]: one["value"] for one in values["devicePlugin"]["env"]}
    assert "envvar" not in plugin["DEVICE_LIST_STRATEGY"].split(",")
    assert values["cdi"]["enabled"]


def test_series_are_named_after_the_pods_that_use_gpus_and_after_their_node(fleet: Fleet) -> None:
    monitor = operator.values(fleet)["dcgmExporter"]["serviceMonitor"]
    assert monitor["honorLabels"] is True
    assert {one["targetLabel"] for one in monitor["relabelings"]} == {"node"}


def test_the_table_of_metrics_has_three_columns_and_each_field_once(fleet: Fleet) -> None:
    rows = list(csv.reader(data_of(fleet, "gpufleet-dcgm-metrics")["dcgm-metrics.csv"].splitlines()))
    assert {len(row) for row in rows} == {3}
    assert {row[1].strip() for row in rows} == {"gauge", "counter"}
    names = [row[0] for row in rows]
    assert len(set(names)) == len(names)
    assert "DCGM_FI_DEV_POWER_VIOLATION" in names


def test_every_chart_is_pinned_and_its_namespace_allows_drivers(fleet: Fleet) -> None:
    spaces = {one["metadata"]["name"]: one["metadata"]["labels"] for one in of_kind(gpu.manifests(fleet), "Namespace")}
    for release in gpu.releases(fleet).values():
        assert release["version"]
        assert spaces[release["namespace"]]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert len(gpu.releases(fleet)) == len(spaces) == 2


# MIG and sharing.


def test_every_label_names_a_layout_that_the_config_map_has(fleet: Fleet) -> None:
    layouts = yaml.safe_load(data_of(fleet, "gpufleet-mig-layouts")["config.yaml"])["mig-configs"]
    assert labels_of(fleet, "slices")[MIG_CONFIG_LABEL] in layouts
    assert labels_of(fleet, "slices")[PLUGIN_CONFIG_LABEL] in data_of(fleet, "gpufleet-device-plugin")
    assert MIG_CONFIG_LABEL not in labels_of(fleet, "rack")
    assert len([name for name in layouts if name.startswith("slices-")]) == 2, "the former layout is kept"


def test_the_layout_without_mig_is_always_there() -> None:
    for layer in ("", LAYER):
        layouts = yaml.safe_load(data_of(gpu_fleet(layer), "gpufleet-mig-layouts")["config.yaml"])
        assert layouts["mig-configs"]["all-disabled"] == [{"devices": "all", "mig-enabled": False}]


def test_a_layout_says_every_gpu_of_a_node_once(fleet: Fleet) -> None:
    layouts = yaml.safe_load(data_of(fleet, "gpufleet-mig-layouts")["config.yaml"])["mig-configs"]
    for entries in (layouts[name] for name in layouts if name.startswith("slices-")):
        assert sorted(index for entry in entries for index in entry["devices"]) == list(range(8))


def test_another_layout_has_another_name_so_that_nodes_notice(fleet: Fleet) -> None:
    before = labels_of(fleet, "slices")
    pool = fleet.onprem_pools["slices"]
    assert pool.mig
    changed = pool.model_copy(update={"mig": pool.mig.model_copy(update={"layout": pool.mig.former, "former": None})})
    after = labels_of(fleet.model_copy(update={"pools": {**fleet.pools, "slices": changed}}), "slices")
    assert before[MIG_CONFIG_LABEL] != after[MIG_CONFIG_LABEL]


def test_the_agent_labels_nodes_with_layouts_where_it_changes_them() -> None:
    labels = labels_of(gpu_fleet(RELAYOUT), "slices")
    assert MIG_CONFIG_LABEL not in labels
    assert PLUGIN_CONFIG_LABEL in labels


def test_the_device_plugin_shares_what_the_queues_count(fleet: Fleet) -> None:
    """The names and numbers of quotas, the plugin's configuration and the layout are those of one node."""
    config = yaml.safe_load(data_of(fleet, "gpufleet-device-plugin")[labels_of(fleet, "slices")[PLUGIN_CONFIG_LABEL]])
    assert config["flags"]["migStrategy"] == "mixed"
    sharing = config["sharing"]["timeSlicing"]
    assert sharing["renameByDefault"]
    assert sharing["resources"] == [{"name": "nvidia.com/mig-1g.5gb", "replicas": 4}]
    assert node_capacity(fleet.pools["slices"]) == {
        "nvidia.com/mig-3g.20gb": 6,
        "nvidia.com/mig-2g.10gb": 6,
        "nvidia.com/mig-1g.5gb.shared": (6 * 2 + 7) * 4,
        "nvidia.com/gpu": 1,
    }
    assert fleet.flavors["a100-40gb-mig-onprem"].devices == node_capacity(fleet.pools["slices"])


def test_mps_is_for_whole_gpus_under_another_name(fleet: Fleet) -> None:
    config = yaml.safe_load(data_of(fleet, "gpufleet-device-plugin")[labels_of(fleet, "old")[PLUGIN_CONFIG_LABEL]])
    assert config["sharing"]["mps"]["resources"] == [{"name": "nvidia.com/gpu", "replicas": 8}]
    assert node_capacity(fleet.pools["old"]) == {"nvidia.com/gpu.shared": 4 * 8}


def test_what_queues_cover_is_what_some_node_offers(fleet: Fleet) -> None:
    offered = {resource for pool in fleet.pools.values() for resource in node_capacity(pool)}
    for queue in of_kind(kueue.manifests(fleet), "ClusterQueue"):
        for group in queue["spec"]["resourceGroups"]:
            assert set(group["coveredResources"]) - {"cpu", "memory"} <= offered


def test_karpenter_learns_what_its_nodes_offer_and_of_no_other_pool(fleet: Fleet) -> None:
    [overlay] = of_kind(gpu.manifests(fleet), "NodeOverlay")
    assert overlay["spec"]["capacity"] == {
        "nvidia.com/mig-3g.40gb.shared": "16",
        "nvidia.com/mig-1g.10gb.shared": "64",
    }
    assert {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["auto"]} in overlay["spec"]["requirements"]


# Drivers.


def versions(fleet: Fleet) -> dict[str, str]:
    every = [*drivers.manifests(fleet, canary=True).values(), *drivers.manifests(fleet, canary=False).values()]
    return {one["metadata"]["name"].removeprefix("gpufleet-"): one["spec"]["version"] for one in every}


def test_an_upgrade_reaches_the_canary_first_and_the_others_once_it_is_validated(fleet: Fleet) -> None:
    assert versions(fleet) == {"slices": "595.91.07", "rack": "580.65.06", "old": "580.65.06"}
    assert list(drivers.manifests(fleet, canary=True)) == ["driver-slices"]
    validated = gpu_fleet(LAYER.replace("canary: slices", "canary: slices, validated: true"))
    assert versions(validated) == {"slices": "595.91.07", "rack": "595.91.07", "old": "580.65.06"}, "a pin stays"
    done = gpu_fleet('    gpu_layer: {driver: {version: "595.91.07", automatic: true, most_nodes: 2}}\n')
    assert versions(done) == versions(validated), "naming the new driver as the fleet's changes no node"


def test_each_node_has_one_driver_at_most_and_those_with_their_own_none(fleet: Fleet) -> None:
    selectors = [one["spec"]["nodeSelector"] for one in of_kind(gpu.manifests(fleet), "NVIDIADriver")]
    assert len({str(one) for one in selectors}) == len(selectors) == 3
    assert "image" not in versions(fleet)


def test_a_driver_ends_no_job(fleet: Fleet) -> None:
    for one in of_kind(gpu.manifests(fleet), "NVIDIADriver"):
        policy = one["spec"]["upgradePolicy"]
        assert policy["waitForCompletion"] == {"podSelector": "kueue.x-k8s.io/podset", "timeoutSeconds": 0}
        assert policy["drain"] == {"enable": False}
    by_hand = gpu_fleet(LAYER.replace(", automatic: true", ""))
    for one in of_kind(gpu.manifests(by_hand), "NVIDIADriver"):
        assert one["spec"]["upgradePolicy"] == {"autoUpgrade": False}


def test_a_branch_means_precompiled_modules() -> None:
    fleet = gpu_fleet('    gpu_layer: {driver: {version: "580"}}\n')
    specs = {one["spec"]["version"]: one["spec"] for one in of_kind(gpu.manifests(fleet), "NVIDIADriver")}
    assert (specs["580"]["usePrecompiled"], specs["580.65.06"]["usePrecompiled"]) == (True, False)


# Around it.


def test_a_kubelet_gets_a_file_of_its_own_form(fleet: Fleet) -> None:
    [(name, text)] = data_of(fleet, "gpufleet-kubelet-rack").items()
    assert name.endswith(".conf"), "the kubelet reads no other"
    assert yaml.safe_load(text) == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cpuManagerPolicy": "static",
        "topologyManagerPolicy": "best-effort",
        "topologyManagerScope": "pod",
        "reservedSystemCPUs": "0-3,64-67",
    }


def test_cards_are_devices_that_pods_share(fleet: Fleet) -> None:
    [policy] = of_kind(gpu.manifests(fleet), "NicClusterPolicy")
    config = json.loads(policy["spec"]["rdmaSharedDevicePlugin"]["config"])
    assert config == {
        "configList": [{"resourceName": "infiniband", "rdmaHcaMax": 16, "selectors": {"ifNames": ["ibs1f0"]}}]
    }
    [network] = of_kind(gpu.manifests(fleet), "NetworkAttachmentDefinition")
    assert json.loads(network["spec"]["config"])["type"] == "ipoib"


def test_teams_get_the_topology_of_the_machines(fleet: Fleet) -> None:
    found = [one for one in of_kind(kueue.manifests(fleet), "ConfigMap") if "nccl" in one["metadata"]["name"]]
    assert {one["metadata"]["namespace"] for one in found} == set(fleet.teams)
    assert {one["data"]["topology.xml"] for one in found} == {NCCL}


def test_gke_is_told_in_its_own_words() -> None:
    pool = GkePool.model_validate(
        {
            "cluster": "gke", "location": "gcp", "provisioner": "node-pool", "market": "spot", "nodes": {"max": 1},
            "machine_type": "a3-highgpu-8g", "usd_per_gpu_hour": 4, "sharing": {"time_slicing": {"replicas": 3}},
            "mig": {"strategy": "single", "layout": {"0-7": ["7x1g.10gb"]}},
        }
    )  # fmt: skip
    assert gke.guest_accelerator(pool) == {
        "count": 8,
        "gpu_partition_size": "1g.10gb",
        "gpu_sharing_config": {"gpu_sharing_strategy": "TIME_SHARING", "max_shared_clients_per_gpu": 3},
    }
    assert node_capacity(pool) == {"nvidia.com/gpu": 8 * 7 * 3}


def test_the_reader_of_gpus_is_stopped_while_mig_changes_and_takes_its_arguments() -> None:
    assert readings.manifests(gpu_fleet("")) == {}
    objects = readings.manifests(gpu_fleet("    gpu_layer: {readings: true}\n"))
    pod = objects["daemon-set"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"nvidia.com/gpu.deploy.client": "true"}
    assert pod["priorityClassName"] == "system-node-critical"
    assert {"operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    [container] = pod["containers"]
    assert "NVIDIA_VISIBLE_DEVICES" not in {one["name"] for one in container["env"]}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    told = load(container["args"], {"NODE_NAME": "rack-0", "KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert (told.gpus, told.provider, told.port) == ("only", "none", readings.PORT)
    assert told.pod_resources == f"{container['volumeMounts'][1]['mountPath']}/kubelet.sock"


def test_everything_is_part_of_what_plan_and_render_show(fleet: Fleet) -> None:
    shown = [str(one["metadata"]) + one["kind"] for one in objects_of(fleet)]
    assert all(str(one["metadata"]) + one["kind"] in shown for one in gpu.manifests(fleet).values())
    assert len(set(shown)) == len(shown)
