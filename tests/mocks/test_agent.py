"""The agent's objects: what it may touch, what is not ours, and how its pods are replaced."""

from __future__ import annotations

from components.kubernetes import agent, kueue
from stacks.labels import FORECAST_NAME, TOP_UPS_NAME
from stacks.load import load_file, load_text
from tests.mocks.environments import LOCAL, load_environment, of_kind

READING = {"get", "list", "watch"}


def test_the_agent_sees_no_secret_and_changes_no_quota_and_no_pod_outside_a_teams_namespace() -> None:
    objects = agent.manifests(load_file(LOCAL))
    rules = objects["cluster-role"]["rules"] + objects["role"]["rules"]
    seen = {resource for rule in rules for resource in rule["resources"]}
    changed = {resource for rule in rules if set(rule["verbs"]) - READING for resource in rule["resources"]}
    assert seen.isdisjoint({"secrets", "cohorts", "*"})
    assert changed.isdisjoint(
        {"pods", "pods/eviction", "nodes/status", "clusterqueues", "resourceflavors", "configmaps"}
    )
    assert all("*" not in rule["verbs"] and "*" not in rule["apiGroups"] for rule in rules)
    assert {verb for rule in rules if "nodes" in rule["resources"] for verb in rule["verbs"]} - READING == {"patch"}


def test_in_a_teams_namespace_the_agent_may_patch_the_forecast_and_pods_and_evict_them_and_nothing_else() -> None:
    fleet = load_environment("hybrid")
    objects = kueue.manifests(fleet)
    for team, settings in fleet.teams.items():
        role, grant = objects[f"rights-{team}"], objects[f"grant-{team}"]
        assert role["rules"] == [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"], "resourceNames": [FORECAST_NAME]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]},
        ]
        assert grant["roleRef"]["name"] == role["metadata"]["name"]
        assert {one["metadata"]["namespace"] for one in (role, grant)} == {settings.namespace or team}
        assert objects[f"forecast-{team}"]["metadata"]["namespace"] == (settings.namespace or team)


def test_what_others_write_into_config_maps_is_never_ours() -> None:
    fleet = load_file(LOCAL)
    maps = of_kind({**agent.manifests(fleet), **kueue.manifests(fleet)}, "ConfigMap")
    theirs = [one for one in maps if one["metadata"]["name"] in (TOP_UPS_NAME, FORECAST_NAME)]
    assert len(theirs) == 1 + len(fleet.teams)
    assert {frozenset(one) for one in theirs} == {frozenset({"apiVersion", "kind", "metadata"})}


def test_a_change_of_what_the_agent_is_told_restarts_nothing() -> None:
    text = LOCAL.read_text().replace("interval: 500ms", "interval: 700ms")
    before, after = agent.manifests(load_file(LOCAL)), agent.manifests(load_text(text, "changed"))
    assert [role for role in before if before[role] != after[role]] == ["config"]


def test_replicas_that_share_a_bucket_are_replaced_one_by_one_and_prefer_other_nodes() -> None:
    spec = agent.manifests(load_environment("hybrid"))["deployment"]["spec"]
    assert spec["replicas"] == 2
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    [preference] = spec["template"]["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    assert preference["podAffinityTerm"]["labelSelector"] == spec["selector"]


def test_on_a_volume_the_old_pod_ends_before_the_new_one_begins() -> None:
    spec = agent.manifests(load_file(LOCAL))["deployment"]["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    assert "affinity" not in spec["template"]["spec"]
