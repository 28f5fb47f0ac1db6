"""The queue tree of the example environments: who offers what, behind which gate, under which name."""

from __future__ import annotations

from collections import Counter

import pytest

from components.kubernetes import agent, kueue, namespaces
from components.onprem import nodepool
from stacks.agent_config import agent_config
from stacks.flavors import flavors_of_pools
from stacks.labels import GATE_NAME
from stacks.load import load_file, load_text
from tests.mocks.environments import ENVIRONMENTS, LOCAL, flavors_offered, load_environment, of_kind


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_no_queue_offers_a_cloud_flavor_without_the_gate_and_each_twin_offers_one(environment: str) -> None:
    fleet = load_environment(environment)
    cloud = {flavor.name for flavor in flavors_of_pools(fleet.pools).values() if flavor.cloud}
    offers: Counter[str] = Counter()
    for queue in of_kind(kueue.manifests(fleet), "ClusterQueue"):
        offered = flavors_offered(queue)
        gated = [name for name in offered if name in cloud]
        checks = queue["spec"].get("admissionChecksStrategy", {}).get("admissionChecks", [])
        assert checks == ([{"name": GATE_NAME, "onFlavors": gated}] if gated else [])
        assert len(gated) <= 1
        assert gated == offered[len(offered) - len(gated) :], "the cloud is tried last"
        offers.update(gated)
    assert offers == {flavor.name: len(fleet.teams) for flavor in fleet.burst_flavors}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_twin_offers_all_that_the_teams_own_queue_offers_and_one_cloud_flavor_more(environment: str) -> None:
    fleet = load_environment(environment)
    for team, settings in fleet.teams.items():
        own = kueue.cluster_queue(fleet, team)
        for flavor in fleet.burst_flavors:
            twin = kueue.burst_cluster_queue(fleet, team, flavor)
            assert twin["metadata"]["name"] == f"{team}-burst-{flavor.name}"
            assert flavors_offered(twin) == [*flavors_offered(own), flavor.name]
            assert twin["spec"]["cohortName"] == own["spec"]["cohortName"]
            assert twin["spec"]["namespaceSelector"] == own["spec"]["namespaceSelector"]
            assert set(twin["spec"]["preemption"].values()) == {"Never"}
        places = {one["metadata"]["namespace"] for one in namespaces.local_queues(fleet, team).values()}
        assert places == {settings.namespace or team}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_queues_themselves_own_nothing(environment: str) -> None:
    for queue in of_kind(kueue.manifests(load_environment(environment)), "ClusterQueue"):
        for group in queue["spec"].get("resourceGroups", []):
            assert {one["nominalQuota"] for flavor in group["flavors"] for one in flavor["resources"]} <= {"0", "0Gi"}


def test_a_class_with_a_window_has_a_queue_of_its_own_in_every_team() -> None:
    fleet = load_environment("hybrid")
    queues = {one["metadata"]["name"]: one for one in of_kind(kueue.manifests(fleet), "LocalQueue")}
    windows = {name: one["spec"] for name, one in queues.items() if "-window-" in name}
    assert windows == {f"{team}-window-nightly": {"clusterQueue": team} for team in fleet.teams}


def test_who_holds_a_window_is_not_pulumi() -> None:
    """A field that the program never sets belongs to whoever writes it: the agent."""
    for environment in ENVIRONMENTS:
        for queue in of_kind(kueue.manifests(load_environment(environment)), "LocalQueue"):
            assert set(queue["spec"]) == {"clusterQueue"}


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_the_names_of_queues_fit_into_labels_and_the_agent_is_told_the_same(environment: str) -> None:
    fleet = load_environment(environment)
    told = agent_config(fleet).teams
    made = of_kind(kueue.manifests(fleet), "LocalQueue")
    assert {one["metadata"]["name"] for one in made} == {
        name
        for team in told.values()
        for name in (team.queue, *team.burst_queues.values(), *team.window_queues.values())
    }
    assert all(len(one["metadata"]["name"]) <= 63 for one in made)


def test_teams_that_are_called_like_roles_and_like_parts_of_names_keep_their_objects_apart() -> None:
    text = LOCAL.read_text()
    start, end = text.index("    teams:\n"), text.index("    burst:\n")
    names = ["a", "a-h100", "queue", "queue-a", "local-queue-a", "rights-a", "grant-a", "namespace-a", "bursts-a"]
    teams = ", ".join(f"{name}: {{quota: {{}}}}" for name in names)
    fleet = load_text(f"{text[:start]}    teams: {{{teams}}}\n{text[end:]}", "names")
    made = kueue.manifests(fleet).values()
    kinds = Counter(one["kind"] for one in made)
    queues = 1 + len(fleet.burst_flavors)
    assert {kind: kinds[kind] / len(names) for kind in ("ClusterQueue", "LocalQueue", "Namespace", "ConfigMap")} == {
        "ClusterQueue": queues, "LocalQueue": queues, "Namespace": 1, "ConfigMap": 1,
    }  # fmt: skip
    assert kinds["Role"] == kinds["RoleBinding"] == len(names)
    found = Counter((one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in made)
    assert max(found.values()) == 1


def test_changing_one_quota_changes_the_share_and_what_the_agent_is_told() -> None:
    before = kueue.manifests(load_file(LOCAL)) | agent.manifests(load_file(LOCAL))
    text = LOCAL.read_text().replace("vision: {quota: {h100-onprem: 8}", "vision: {quota: {h100-onprem: 6}")
    after = kueue.manifests(load_text(text, "changed")) | agent.manifests(load_text(text, "changed"))
    assert [role for role in before if before[role] != after[role]] == ["cohort-vision", "config"]


def test_quotas_of_cohorts_sum_to_the_supply() -> None:
    fleet = load_file(LOCAL)
    cohorts = [kueue.organization_cohort(fleet), *(kueue.team_cohort(fleet, team) for team in fleet.teams)]
    for flavor in flavors_of_pools(fleet.pools).values():
        nominal = [
            int(resource["nominalQuota"])
            for cohort in cohorts
            for group in cohort["spec"]["resourceGroups"]
            for quota in group["flavors"]
            for resource in quota["resources"]
            if quota["name"] == flavor.name and resource["name"] == "nvidia.com/gpu"
        ]
        assert sum(nominal) == flavor.gpus


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_named_nodes_carry_all_labels_by_which_their_flavor_finds_them(environment: str) -> None:
    fleet = load_environment(environment)
    for name, pool in fleet.onprem_pools.items():
        [flavor] = flavors_of_pools({name: pool}).values()
        assert flavor.node_labels.items() <= nodepool.node_labels(name, fleet).items()


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_quota_of_every_environment_names_all_resources_that_kueue_wants(environment: str) -> None:
    fleet = load_environment(environment)
    for manifest in kueue.manifests(fleet).values():
        for group in manifest.get("spec", {}).get("resourceGroups", []):
            assert group["flavors"]
            for flavor in group["flavors"]:
                assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]


def test_a_teams_share_of_a_mig_flavor_is_its_share_of_the_slices() -> None:
    fleet = load_environment("prod")
    quota = kueue.team_cohort(fleet, "vision")["spec"]["resourceGroups"][0]["flavors"]
    [mig] = [flavor for flavor in quota if flavor["name"] == "a100-40gb-mig-onprem"]
    amounts = {resource["name"]: resource["nominalQuota"] for resource in mig["resources"]}
    # Four nodes; of the eight GPUs of each, six are cut into 3g+2g+2x1g and two into 7x1g. The team has half of all.
    assert amounts["nvidia.com/mig-3g.20gb"] == "12"
    assert amounts["nvidia.com/mig-2g.10gb"] == "12"
    assert amounts["nvidia.com/mig-1g.5gb"] == str(4 * (6 * 2 + 2 * 7) // 2)
    assert amounts["nvidia.com/gpu"] == "0"


@pytest.mark.parametrize("gpus", [(4, 4, 4, 4), (1, 5, 10, 0), (16, 0, 0, 0), (3, 3, 3, 7)])
def test_the_teams_shares_of_few_slices_add_up_to_all_of_them(gpus: tuple[int, ...]) -> None:
    """Two nodes with two 3g slices and fourteen whole GPUs between them: rounding each share down would lose some."""
    text = LOCAL.read_text().replace("gpu: h100-sxm-80gb,", 'gpu: h100-sxm-80gb, mig: {layout: {"0": [3g.40gb]}},', 1)
    teams = ", ".join(f"team-{at}: {{quota: {{h100-mig-onprem: {owned}}}}}" for at, owned in enumerate(gpus))
    start, end = text.index("    teams:\n"), text.index("    burst:\n")
    fleet = load_text(f"{text[:start]}    teams: {{{teams}}}\n{text[end:]}", "mig")
    total = Counter[str]()
    for team in fleet.teams:
        for flavor in kueue.team_cohort(fleet, team)["spec"]["resourceGroups"][0]["flavors"]:
            if flavor["name"] == "h100-mig-onprem":
                total += Counter({one["name"]: int(one["nominalQuota"]) for one in flavor["resources"][2:]})
    assert total == fleet.flavors["h100-mig-onprem"].devices == {"nvidia.com/mig-3g.40gb": 2, "nvidia.com/gpu": 14}
