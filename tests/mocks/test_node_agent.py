"""The node agent's objects: where it runs, whom it asks, what it may touch, and that nothing waits for it."""

from __future__ import annotations

from typing import Any

import pytest

from components.kubernetes import agent, node_agent
from runtime.node.settings import load
from stacks.fleet import Fleet
from stacks.labels import FLAVOR_LABEL
from stacks.load import load_text
from tests.mocks.environments import LOCAL, load_environment, of_kind

BROKER = "{cluster: lab, location: broker, provider: PROVIDER, market: spot, shape: {gpu: h100-sxm-80gb, gpus_per_node: 8, cpus_per_node: 96, memory_per_node: 1Ti}, max_gpus: 8, usd_per_gpu_hour: 2}"
BURST_SPOT = "      burst-spot: "
URL = "http://broker.acme.internal/notices"


def fleet_with(eviction: str = "{}", provider: str = "") -> Fleet:
    """The local fleet with these settings, and one pool more where a broker is named."""
    text = LOCAL.read_text().replace("    on_destroy:", f"    eviction: {eviction}\n    on_destroy:")
    if provider:
        text = text.replace(BURST_SPOT, f"      lent: {BROKER.replace('PROVIDER', provider)}\n{BURST_SPOT}")
        text = text.replace("order: [", "order: [lent, ")
    return load_text(text, "changed")


def daemon_sets(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """The specs of the pods by the place that they are for."""
    found = of_kind(node_agent.manifests(fleet), "DaemonSet")
    return {
        one["metadata"]["name"].removeprefix("gpufleet-node-"): one["spec"]["template"]["spec"] for one in found
    }  # fmt: skip


def flavors_of(pod: dict[str, Any]) -> list[str]:
    terms = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    [term] = terms
    [ours] = [one for one in term["matchExpressions"] if one["key"] == FLAVOR_LABEL]
    assert ours["operator"] == "In"
    return list(ours["values"])


def test_it_runs_on_nodes_of_our_flavors_that_have_somebody_to_ask_and_on_no_other() -> None:
    pods = daemon_sets(load_environment("hybrid"))
    assert {place: flavors_of(pod) for place, pod in pods.items()} == {
        "aws": ["h100-aws-on-demand", "h100-aws-spot"],
        "gcp": ["h100-gcp-spot"],
    }


def test_racks_and_brokers_have_one_only_where_there_is_an_address_to_ask() -> None:
    assert "broker" not in daemon_sets(fleet_with(provider="northgpu"))
    pod = daemon_sets(fleet_with(f'{{notices_url: "{URL}"}}', "northgpu"))["broker"]
    assert flavors_of(pod) == ["h100-northgpu-spot", "h100-onprem"]
    assert pod["containers"][0]["args"] == ["--provider", "none", "--notices-url", URL, "--port", "9477"]


def test_it_shares_the_nodes_network_only_where_it_asks_a_metadata_service() -> None:
    pods = daemon_sets(fleet_with(f'{{notices_url: "{URL}"}}', "azure"))
    assert {place: pod.get("hostNetwork", False) for place, pod in pods.items()} == {
        "aws": True, "azure": True, "broker": False,
    }  # fmt: skip
    assert flavors_of(pods["azure"]) == ["h100-azure-spot"]


def test_the_notice_of_google_cloud_reaches_its_nodes_in_seconds() -> None:
    fleet = load_environment("hybrid")
    longer = fleet.model_copy(update={"eviction": fleet.eviction.model_validate({"gcp_notice": "2m"})})
    args = daemon_sets(longer)["gcp"]["containers"][0]["args"]
    assert args == ["--provider", "gcp", "--gcp-notice-seconds", "120", "--port", "9477"]


@pytest.mark.parametrize(
    "fleet", [fleet_with("{node_agent: false}"), fleet_with(f'{{node_agent: false, notices_url: "{URL}"}}')]
)
def test_without_it_there_is_no_object_of_it_and_the_namespace_asks_for_no_exception(fleet: Fleet) -> None:
    assert node_agent.manifests(fleet) == {}
    [namespace] = of_kind(agent.manifests(fleet), "Namespace")
    assert not [label for label in namespace["metadata"]["labels"] if label.startswith("pod-security")]


def test_pod_security_lets_pods_on_the_nodes_network_into_the_namespace() -> None:
    [namespace] = of_kind(agent.manifests(fleet_with()), "Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"


def test_it_may_get_and_patch_nodes_and_nothing_else() -> None:
    objects = node_agent.manifests(fleet_with())
    assert objects["cluster-role"]["rules"] == [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "patch"]}]
    assert not of_kind(objects, "Role")
    assert [one["roleRef"]["name"] for one in of_kind(objects, "ClusterRoleBinding")] == ["gpufleet-node"]


def test_its_container_has_no_privilege_and_cannot_grow() -> None:
    for pod in daemon_sets(load_environment("hybrid")).values():
        [container] = pod["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "privileged": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }  # fmt: skip
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
        assert "memory" in container["resources"]["limits"]
        assert not {"volumes", "hostPID", "hostIPC"} & set(pod)


def test_it_outranks_jobs_and_stays_where_they_may_not_come() -> None:
    for pod in daemon_sets(fleet_with()).values():
        assert pod["priorityClassName"] == "system-node-critical"
        assert {"operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
        assert not [one for one in pod["tolerations"] if "key" not in one and one.get("effect") != "NoSchedule"], (
            "a node that is lost or not there yet gets none"
        )


def test_gke_is_told_that_pods_of_this_priority_are_meant() -> None:
    assert "quota" not in node_agent.manifests(fleet_with())
    [quota] = of_kind(node_agent.manifests(load_environment("hybrid")), "ResourceQuota")
    [scope] = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert scope["values"] == ["system-node-critical"]


def test_pulumi_waits_for_no_daemon_set_as_nodes_come_and_go_and_the_embedded_stack_runs_none() -> None:
    for one in of_kind(node_agent.manifests(load_environment("hybrid")), "DaemonSet"):
        assert one["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


def test_pods_of_two_places_are_told_apart_by_their_selectors() -> None:
    found = of_kind(node_agent.manifests(load_environment("hybrid")), "DaemonSet")
    selectors = [one["spec"]["selector"]["matchLabels"] for one in found]
    assert selectors[0] != selectors[1]
    assert all(
        one["spec"]["template"]["metadata"]["labels"] == chosen for one, chosen in zip(found, selectors, strict=True)
    )


def test_a_change_of_who_is_asked_restarts_the_node_agents_of_that_place_only() -> None:
    before = node_agent.manifests(fleet_with(f'{{notices_url: "{URL}"}}'))
    after = node_agent.manifests(fleet_with(f'{{notices_url: "{URL}/2"}}'))
    assert [role for role in before if before[role] != after[role]] == ["daemon-set-broker"]


def test_the_process_takes_the_arguments_that_it_is_given() -> None:
    environment = {"NODE_NAME": "spot-0", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    for pod in daemon_sets(fleet_with(f'{{notices_url: "{URL}"}}', "azure")).values():
        [container] = pod["containers"]
        assert container["command"] == ["python", "-m", "runtime.node"]
        told = load(container["args"], environment)
        assert (told.node, told.port) == ("spot-0", node_agent.PORT)
        assert (told.provider == "none") is (told.notices == URL)


def test_the_kubelet_asks_a_pod_on_its_own_network_over_loopback() -> None:
    pods = daemon_sets(fleet_with(f'{{notices_url: "{URL}"}}'))
    hosts = {place: pod["containers"][0]["livenessProbe"]["httpGet"].get("host") for place, pod in pods.items()}
    assert hosts == {"aws": "127.0.0.1", "broker": None}
