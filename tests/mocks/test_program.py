"""The whole program under Pulumi's mocks: types, names, order and manifests, against golden files."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pulumi
import pytest
from pulumi.runtime import mocks

from components.base import Component
from components.kubernetes import admission, agent, kueue, node_agent
from components.onprem import nodepool
from infra.planning.manifests import yaml_of
from infra.program import build
from stacks.fleet import Fleet
from stacks.load import load_file, load_text
from tests.conftest import Golden
from tests.mocks.environments import DEPLOYABLE, ENVIRONMENTS, LOCAL, load_environment
from tests.mocks.gpu_fleets import gpu_fleet


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
        for name in fleet.onprem_pools
        for node, manifest in nodepool.manifests(name, fleet).items()
    }
    for file, objects in {
        "kueue": kueue.manifests(fleet),
        "agent": agent.manifests(fleet),
        "node_agent": node_agent.manifests(fleet),
        "admission": admission.manifests(fleet),
        "nodes": pools,
    }.items():
        golden.check(f"local/{file}.yaml", yaml_of(list(objects.values())))


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


def test_a_config_map_whose_data_changes_is_changed_in_place(recorder: Recorder) -> None:
    run(load_file(LOCAL))
    [provider] = [one for one in recorder.resources if one.typ == "pulumi:providers:kubernetes"]
    assert provider.inputs["enableConfigMapMutable"] in (True, "true")


@pytest.mark.parametrize("environment", DEPLOYABLE)
def test_namespaces_go_no_later_than_the_queues_that_wait_for_their_jobs(
    recorder: Recorder, environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kueue keeps a ClusterQueue until its jobs are gone; a namespace that waited for it would wait for its own jobs."""
    pulumi.runtime.set_all_config({"gpufleet:hqKubeconfig": "apiVersion: v1"}, ["gpufleet:hqKubeconfig"])
    fleet = load_environment(environment)
    rounds = rounds_of_deletion(fleet, monkeypatch)
    for team in fleet.teams:
        namespace = rounds[f"queues-namespace-{team}"]
        twins = [rounds[f"queues-queue-{team}-burst-{flavor.name}"] for flavor in fleet.burst_flavors]
        inside = [rounds[f"queues-{role}-{team}"] for role in ("local-queue", "forecast", "rights", "grant")]
        assert max(inside) < namespace <= min(*twins, rounds[f"queues-queue-{team}"])
        assert max(twins) < rounds["queues-gate"], "no queue refers to a check that is gone"
    assert rounds["queues-gate"] < rounds["agent-deployment"] < rounds["agent-top-ups"] == rounds["agent-config"]


def rounds_of_deletion(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """When Pulumi deletes each object: in rounds, each taking what nothing that is left depends on."""
    needed: dict[str, set[str]] = {}
    names: dict[pulumi.Resource, str] = {}
    create = Component.kubernetes

    def recorded(self: Component, role: str, manifest: Any, **options: Any) -> pulumi.CustomResource:
        resource = create(self, role, manifest, **options)
        names[resource] = f"{self._component_name}-{role}"
        needed[names[resource]] = {names[one] for one in options.get("depends_on", []) if one in names}
        return resource

    monkeypatch.setattr(Component, "kubernetes", recorded)
    run(fleet)
    rounds: dict[str, int] = {}
    while left := needed.keys() - rounds.keys():
        still_needed = set().union(*(needed[one] for one in left))
        now = 1 + max(rounds.values(), default=0)
        rounds |= dict.fromkeys(left - still_needed, now)
    return rounds


def test_every_component_module_keeps_its_program_small(repository: Path) -> None:
    assert len((repository / "infra" / "__main__.py").read_text().splitlines()) < 40


@pytest.mark.parametrize("environment", DEPLOYABLE)
def test_an_environment_on_a_cluster_that_is_there_can_be_deployed(recorder: Recorder, environment: str) -> None:
    pulumi.runtime.set_all_config({"gpufleet:hqKubeconfig": "apiVersion: v1"}, ["gpufleet:hqKubeconfig"])
    fleet = load_environment(environment)
    run(fleet)
    kinds = [resource.typ.rsplit(":", 1)[-1] for resource in recorder.resources]
    assert kinds.count("ClusterQueue") == (1 + len(fleet.burst_flavors)) * len(fleet.teams)


@pytest.mark.parametrize("environment", sorted(set(ENVIRONMENTS) - set(DEPLOYABLE)))
def test_an_environment_that_needs_more_than_there_are_components_for_declares_nothing(
    recorder: Recorder, environment: str
) -> None:
    with pytest.raises(pulumi.RunError, match="not deployed yet") as refused:
        run(load_environment(environment))
    assert "clusters." in str(refused.value)
    assert recorder.resources == []


def test_the_gpu_layer_is_made_in_the_order_in_which_its_parts_need_each_other(
    recorder: Recorder, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = gpu_fleet(autoscaled=False)
    rounds = rounds_of_deletion(fleet, monkeypatch)
    names = sorted(f"{one.typ} {one.name}" for one in recorder.resources if one.name.startswith("gpus"))
    golden.check("gpus/resources.txt", "\n".join(names) + "\n")
    assert rounds["gpus-driver-rack"] < rounds["gpus-driver-slices"], "the canary's driver is made before the others"
    assert rounds["rack-rack-0"] < rounds["gpus-mig-layouts"] < rounds["agent-namespace"]
    releases = {one.name: one.inputs for one in recorder.resources if one.typ == "kubernetes:helm.sh/v3:Release"}
    assert releases["gpus-gpu-operator"]["version"] == fleet.gpu_layer.operator.version
    assert set(releases) == {"gpus-gpu-operator", "gpus-network-operator"}
