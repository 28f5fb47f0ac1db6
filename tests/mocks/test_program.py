"""The whole program under Pulumi's mocks: types, names, order and manifests, against golden files."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pulumi
import pytest
import yaml
from pulumi.runtime import mocks

from components.kubernetes import admission, agent, kueue
from components.onprem import nodepool
from infra.program import build
from stacks.flavors import flavors_of_pools
from stacks.fleet import Fleet
from stacks.load import load_file, load_text
from tests.conftest import ROOT, Golden

LOCAL = ROOT / "stacks" / "Pulumi.local.yaml"


ENVIRONMENTS = [path.stem.removeprefix("Pulumi.") for path in sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))]
DEPLOYABLE = ["dev", "hybrid", "local"]


@dataclass
class Recorder(mocks.Mocks):
    """Records every resource as it is registered."""

    resources: list[mocks.MockResourceArgs] = field(default_factory=list)

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str | None, dict[Any, Any]]:
        self.resources.append(args)
        return f"{args.name}-id", args.inputs

    def call(self, args: mocks.MockCallArgs) -> NoReturn:
        raise AssertionError(f"the program invoked {args.token}; components do no look-ups")


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The thread's event loop, which the SDK looks for and any earlier asyncio.run has taken away."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def recorder(loop: asyncio.AbstractEventLoop) -> Iterator[Recorder]:
    recorder = Recorder()
    mocks.set_mocks(recorder, project="gpufleet", stack="local", preview=False)
    yield recorder
    pulumi.runtime.settings.reset_options()


def run(fleet: Fleet) -> None:
    program = pulumi.runtime.test(lambda: build(fleet, pulumi.Config("gpufleet")))  # type: ignore[no-untyped-call]
    program()


def test_types_and_logical_names_are_a_contract(recorder: Recorder, golden: Golden) -> None:
    run(load_file(LOCAL))
    names = sorted(f"{resource.typ} {resource.name}" for resource in recorder.resources)
    golden.check("local/resources.txt", "\n".join(names) + "\n")


def test_the_manifests_of_the_local_stack_read_as_reviewed(golden: Golden) -> None:
    fleet = load_file(LOCAL)
    pools = {
        f"{name}-{node}": manifest
        for name, pool in fleet.onprem_pools.items()
        for node, manifest in nodepool.manifests(name, pool).items()
    }
    for file, objects in {
        "kueue": kueue.manifests(fleet),
        "agent": agent.manifests(fleet),
        "admission": admission.manifests(),
        "nodes": pools,
    }.items():
        golden.check(f"local/{file}.yaml", yaml.safe_dump_all(objects.values(), sort_keys=False, width=120))


def test_what_the_engine_is_given_is_the_manifest_and_nothing_else(recorder: Recorder) -> None:
    fleet = load_file(LOCAL)
    run(fleet)
    by_name = {resource.name: resource.inputs for resource in recorder.resources}
    for role, manifest in kueue.manifests(fleet).items():
        assert by_name[f"queues-{role}"] == manifest


def test_reordering_teams_and_pools_renames_nothing(recorder: Recorder) -> None:
    run(load_file(LOCAL))
    before = {(resource.typ, resource.name) for resource in recorder.resources}
    recorder.resources.clear()
    text = LOCAL.read_text()
    vision = re.search(r"^ +vision: .*\n", text, re.MULTILINE)
    speech = re.search(r"^ +speech: .*\n", text, re.MULTILINE)
    assert vision
    assert speech
    moved = text.replace(vision.group(), "").replace(speech.group(), speech.group() + vision.group())
    assert moved != text
    run(load_text(moved, "moved"))
    assert {(resource.typ, resource.name) for resource in recorder.resources} == before


def test_no_burst_queue_is_without_the_gate_on_every_cloud_flavor() -> None:
    fleet = load_file(LOCAL)
    cloud = {flavor.name for flavor in flavors_of_pools(fleet.pools).values() if flavor.cloud}
    for team in fleet.teams:
        own, twin = kueue.cluster_queue(fleet, team), kueue.burst_cluster_queue(fleet, team)
        [check] = twin["spec"]["admissionChecksStrategy"]["admissionChecks"]
        offered = {flavor["name"] for group in twin["spec"]["resourceGroups"] for flavor in group["flavors"]}
        assert set(check["onFlavors"]) == cloud == offered & cloud
        local = {flavor["name"] for group in own["spec"]["resourceGroups"] for flavor in group["flavors"]}
        assert not local & cloud
        assert "admissionChecksStrategy" not in own["spec"]


def test_changing_one_quota_changes_one_object() -> None:
    before = kueue.manifests(load_file(LOCAL)) | agent.manifests(load_file(LOCAL))
    text = LOCAL.read_text().replace("vision: {quota: {h100-onprem: 8}", "vision: {quota: {h100-onprem: 6}")
    after = kueue.manifests(load_text(text, "changed")) | agent.manifests(load_text(text, "changed"))
    assert [role for role in before if before[role] != after[role]] == ["cohort-vision"]


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


def test_the_agent_may_touch_no_secret_no_pod_and_no_quota() -> None:
    objects = agent.manifests(load_file(LOCAL))
    rules = objects["cluster-role"]["rules"] + objects["role"]["rules"]
    touched = {resource for rule in rules for resource in rule["resources"]}
    assert touched.isdisjoint({"secrets", "pods", "nodes", "clusterqueues", "cohorts", "resourceflavors", "*"})
    assert all("*" not in rule["verbs"] and "*" not in rule["apiGroups"] for rule in rules)


def test_every_component_module_keeps_its_program_small(repository: Path) -> None:
    assert len((repository / "infra" / "__main__.py").read_text().splitlines()) < 40


@pytest.mark.parametrize("environment", DEPLOYABLE)
def test_an_environment_on_a_cluster_that_is_there_can_be_deployed(recorder: Recorder, environment: str) -> None:
    pulumi.runtime.set_all_config({"gpufleet:hqKubeconfig": "apiVersion: v1"}, ["gpufleet:hqKubeconfig"])
    fleet = load_file(ROOT / "stacks" / f"Pulumi.{environment}.yaml")
    run(fleet)
    kinds = [resource.typ.rsplit(":", 1)[-1] for resource in recorder.resources]
    assert kinds.count("ClusterQueue") == 2 * len(fleet.teams)


@pytest.mark.parametrize("environment", sorted(set(ENVIRONMENTS) - set(DEPLOYABLE)))
def test_an_environment_that_needs_more_than_there_are_components_for_declares_nothing(
    recorder: Recorder, environment: str
) -> None:
    with pytest.raises(pulumi.RunError, match="not deployed yet") as refused:
        run(load_file(ROOT / "stacks" / f"Pulumi.{environment}.yaml"))
    assert "clusters." in str(refused.value)
    assert recorder.resources == []


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_every_quota_of_every_environment_names_all_resources_that_kueue_wants(environment: str) -> None:
    fleet = load_file(ROOT / "stacks" / f"Pulumi.{environment}.yaml")
    for manifest in kueue.manifests(fleet).values():
        for group in manifest.get("spec", {}).get("resourceGroups", []):
            assert group["flavors"]
            for flavor in group["flavors"]:
                assert [resource["name"] for resource in flavor["resources"]] == group["coveredResources"]


def test_a_teams_share_of_a_mig_flavor_is_its_share_of_the_slices() -> None:
    fleet = load_file(ROOT / "stacks" / "Pulumi.prod.yaml")
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
