"""Puts together what a cluster holds: the pure function from objects to findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from pydantic import ValidationError
from yaml import YAMLError

from infra.discovery.findings import Findings, Part
from infra.discovery.gpus import model_of_flavor, place_of_flavor
from infra.discovery.naming import free_name, legal_name
from infra.discovery.nodepools import idle_pools, limits_of
from infra.discovery.nodes import NodeFacts, facts_of, lacks_gpus
from infra.discovery.objects import ClusterObjects, at, labels_of, list_at, name_of, some, whole
from infra.discovery.pools import pools_of
from infra.discovery.queues import classes_of, flavor_selectors, organization_of, taken_names, teams_of
from infra.discovery.rented import rented_settings, type_like
from stacks.agent_config import AgentConfig, parse


def find(objects: ClusterObjects, *, unknown_gpu: str | None = None) -> Findings:
    """What the cluster holds; nodes whose model no label names are taken to have `unknown_gpu`."""
    remarks = list(objects.notes)
    deployed = _deployed(objects, remarks)
    facts = [fact for fact in map(facts_of, objects.nodes) if fact]
    if unknown_gpu is not None:
        facts = [replace(one, gpu=unknown_gpu, gpu_source="as --gpu says") if one.gpu is None else one for one in facts]
    grouped = pools_of(facts, limits_of(objects.node_pools))
    seen = {fact.pool for fact in facts if fact.pool_source == "Karpenter NodePool"}
    region = Counter(fact.region for fact in facts if fact.location == "aws").most_common(1)
    pools = list(grouped.pools)
    for part in idle_pools(objects.node_pools, seen, region[0][0] if region else ""):
        pools.append(replace(part, name=free_name(part.name, {pool.name for pool in pools})))
    if deployed is not None:
        pools += _unseen_pools(deployed, facts, objects, {pool.name for pool in pools})
    organization, source = organization_of(objects, deployed)
    return Findings(
        organization=organization,
        organization_source=source,
        pools=tuple(pools),
        flavor_pools=_flavor_pools(objects, grouped.pool_of_node),
        teams=teams_of(objects, deployed),
        classes=classes_of(objects, deployed),
        deployed=deployed,
        agent=_agent(objects, deployed),
        taken=taken_names(objects),
        left_out=tuple(grouped.left_out),
        remarks=(*remarks, *_census(objects, facts)),
    )


def _census(objects: ClusterObjects, facts: list[NodeFacts]) -> Iterable[str]:
    """What the nodes are that make up no pool."""
    yield f"{len(objects.nodes):,} nodes, {len(facts):,} of them with NVIDIA GPUs."
    if bare := sorted(name_of(node) for node in objects.nodes if lacks_gpus(node)):
        yield (
            f"{len(bare):,} nodes ({some(bare)}) should have GPUs by their labels and offer none: a driver or the "
            "device plugin is missing there, or the node is starting."
        )
    amd = [name_of(node) for node in objects.nodes if whole(at(node, "status", "allocatable", "amd.com/gpu"))]
    if amd:
        yield f"{len(amd):,} nodes ({some(sorted(amd))}) have AMD GPUs, which gpufleet does not know."


def _deployed(objects: ClusterObjects, remarks: list[str]) -> AgentConfig | None:
    if objects.agent_config is None:
        return None
    try:
        return parse(objects.agent_config)
    except (ValidationError, YAMLError, ValueError):
        remarks.append("The gpufleet agent of this cluster has a configuration that this version cannot read.")
        return None


def _unseen_pools(
    deployed: AgentConfig, facts: list[NodeFacts], objects: ClusterObjects, taken: set[str]
) -> Iterable[Part]:
    """Cloud flavors that the agent knows and no node carries at the moment, because nothing is rented."""
    present = {labels_of(node).get("gpufleet.dev/flavor") for node in objects.nodes}
    for flavor in deployed.burst_order:
        told, gpu = deployed.flavors.get(flavor), model_of_flavor(flavor)
        if flavor in present or told is None or gpu is None:
            continue
        location, market = place_of_flavor(flavor)
        like = type_like(location, gpu, told.gpus_per_node)
        settings, notes = rented_settings(location, market, "", [like.id] if like else [], told.gpus)
        notes["max_gpus"] = "the gpufleet agent of this cluster"
        notes |= dict.fromkeys(("instance_types", "machine_type"), "REVIEW: the catalogue's leanest with this GPU")
        name = free_name(legal_name(f"{location}-{market}", "burst"), taken)
        taken.add(name)
        yield Part(name, settings, notes, (f"Flavor {flavor} of the gpufleet agent; nothing of it is rented now.",))


def _flavor_pools(objects: ClusterObjects, pool_of_node: dict[str, str]) -> dict[str, tuple[str, ...]]:
    named = ((labels_of(node), pool_of_node.get(name_of(node))) for node in objects.nodes)
    labelled = [(labels, pool) for labels, pool in named if pool]
    found = {}
    for name, wanted in flavor_selectors(objects.resource_flavors).items():
        pools = (pool for labels, pool in labelled if wanted.items() <= labels.items())
        found[name] = tuple(dict.fromkeys(pools))
    return found


def _agent(objects: ClusterObjects, deployed: AgentConfig | None) -> Part | None:
    if deployed is None:
        return None
    told = deployed.model_dump(mode="json", exclude_none=True)
    settings = {"interval": told["interval"], "ledger": told["ledger"]}
    if deployed.dry_run:
        settings["dry_run"] = True
    if deployed.replay_speed != 1:
        settings["replay_speed"] = deployed.replay_speed
    deployment = objects.agent_deployment
    replicas = at(deployment, "spec", "replicas")
    if isinstance(replicas, int) and replicas > 1:
        settings["replicas"] = replicas
    containers = list_at(deployment, "spec", "template", "spec", "containers")
    if image := next((at(one, "image") for one in containers if isinstance(at(one, "image"), str)), None):
        settings["image"] = image
    return Part("agent", settings, {}, ("As the gpufleet agent of this cluster is told.",))
