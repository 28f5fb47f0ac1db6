"""Makes findings and answers into the parts of a file that is right: what no validator takes is left out, and said.

Prices are never invented: one that nobody knows is 0 for GPUs of one's own, where it only shows in reports, and keeps a
rented pool out of the file. Nothing can be spent before a person has set a budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from infra.discovery.answers import DEFAULT_REGIONS, Answers, wanted_type
from infra.discovery.beside import beside, classes_beside, flavors_beside, teams_beside
from infra.discovery.bursting import burst_part, link_parts, project_parts
from infra.discovery.findings import CLUSTER, Findings, Part
from infra.discovery.naming import free_name
from infra.discovery.prices import priced, validated, with_setting
from infra.discovery.rented import rented_settings
from infra.discovery.shares import Allotment
from stacks.agent_config import AgentConfig
from stacks.catalogue import catalogue
from stacks.flavors import flavor_name, flavors_of_pools
from stacks.labels import burst_queue, window_queue
from stacks.pools import CloudPool
from stacks.suggest import did_you_mean

DEFAULT_TEAM: Final = "team-a"
DEFAULT_ORGANIZATION: Final = "my-org"

_LONGEST_QUEUE: Final = 63  # a label value
_SEARCH: Final = "; `gpufleet catalog search` lists what there is"
_CLASSES: Final = (
    Part("high", {"priority": 1000, "max_wait": "15m"}),
    Part("normal", {"priority": 100, "default": True}),
    Part("low", {"priority": 10, "burst": "never"}, {"burst": "waits for GPUs of your own, however long"}),
)


@dataclass(frozen=True, slots=True)
class Draft:
    """The parts of the file, by section."""

    organization: Part
    cluster: Part
    links: tuple[Part, ...]
    pools: tuple[Part, ...]
    classes: tuple[Part, ...]
    teams: tuple[Part, ...]
    projects: tuple[Part, ...]
    burst: Part
    agent: Part | None
    preset: str
    left_out: tuple[str, ...]
    remarks: tuple[str, ...]


def draft(findings: Findings, answers: Answers) -> Draft:
    """The parts of a file."""
    deployed, left_out = findings.deployed, list(findings.left_out)
    parts: dict[str, Part] = {}
    models: dict[str, Any] = {}
    for found in findings.pools or _said(answers):
        part = priced(found, answers, deployed)
        try:
            models[found.name] = validated(part)
            parts[found.name] = part
        except ValueError as error:
            price = "; --cloud-usd-per-gpu-hour gives one" if "usd_per_gpu_hour" in str(error) else ""
            left_out.append(f"pool {found.name} ({' '.join(found.remarks[:1])}): {error}{price}")
    if not any(isinstance(model, CloudPool) for model in models.values()):
        rented = _default_cloud_pool(parts, models, answers)
        parts[rented.name], models[rented.name] = rented, validated(rented)
    parts = {name: _capped(part, models, deployed) for name, part in parts.items()}
    models = {name: validated(part) for name, part in parts.items()}
    allotment = Allotment(flavors_of_pools(models), findings.flavor_pools)
    teams = [allotment.team(found) for found in findings.teams]
    teams = teams or allotment.evenly(answers.teams or (DEFAULT_TEAM,))
    wanted = answers.organization or findings.organization or DEFAULT_ORGANIZATION
    organization = beside(wanted, findings.taken.cohorts)
    source = findings.organization_source if findings.organization and not answers.organization else ""
    classes = classes_beside(findings.classes or _CLASSES, findings.taken)
    longest = _longest_team(models, classes) if findings.teams else None  # what a person asked for is never changed
    teams_found = teams_beside(teams, organization, findings.taken, longest=longest)
    unsaid = "" if answers.organization or findings.organization else "REVIEW: the name of your company or group"
    return Draft(
        organization=Part("organization", {"organization": organization}, {"organization": source or unsaid}),
        cluster=_cluster(answers),
        links=link_parts(deployed, answers),
        pools=tuple(_in_cluster(part, answers) for part in parts.values()),
        classes=classes,
        teams=teams_found,
        projects=project_parts(deployed, {part.name for part in teams_found}),
        burst=burst_part(models, answers, deployed),
        agent=findings.agent,
        preset=answers.preset,
        left_out=tuple(left_out),
        remarks=(*findings.remarks, *flavors_beside(allotment.flavors, findings.taken)),
    )


def _longest_team(models: dict[str, Any], classes: tuple[Part, ...]) -> int:
    """Characters that the longest name of a flavor, or of a class with a window, leaves for a team's."""
    queues = [burst_queue("", name) for name, flavor in flavors_of_pools(models).items() if flavor.cloud]
    queues += [window_queue("", part.name) for part in classes if "window" in part.settings]
    return max(1, _LONGEST_QUEUE - max(map(len, queues)))


def _said(answers: Answers) -> tuple[Part, ...]:
    """The pool that a person describes without a cluster."""
    if not answers.nodes:
        return ()
    settings = {
        "cluster": CLUSTER,
        "location": "onprem",
        "gpu": answers.gpu,
        "gpus_per_node": answers.gpus_per_node,
        "nodes": answers.nodes,
    }
    note = "name them in node_names, or label them yourself with what `gpufleet plan` prints"
    return (Part("rack", settings, {"nodes": note}),)


def _capped(part: Part, models: dict[str, Any], deployed: AgentConfig | None) -> Part:
    """The pool with the limit that the agent is told, where the pool is alone in its flavor."""
    flavor = flavor_name(models[part.name])
    alone = [flavor_name(model) for model in models.values()].count(flavor) == 1
    told = deployed.flavors.get(flavor) if deployed else None
    if told is None or not alone or "max_gpus" not in part.settings:
        return part
    return with_setting(part, "max_gpus", told.gpus, "as the gpufleet agent is told")


def _default_cloud_pool(parts: dict[str, Part], models: dict[str, Any], answers: Answers) -> Part:
    """A rented pool for a fleet that has none, which the file needs: with 0 GPUs, unless flags say otherwise.

    Raises:
        ValueError: the flags contradict the catalogue or each other; the message begins with the setting.
    """
    local = max(models.values(), key=lambda one: one.gpus, default=None)
    asked = replace(answers, gpus_per_node=local.gpus_per_node) if local else answers
    one = wanted_type(asked, local.gpu if local else answers.gpu)
    if one is None:
        if answers.instance_type is None:
            raise ValueError(f"market: the catalogue has no type of {answers.cloud} that is sold as {answers.market}")
        near = did_you_mean(answers.instance_type, catalogue().instance_types)
        raise ValueError(f"instance_type: {answers.instance_type} is not in the catalogue{near or _SEARCH}")
    if answers.cloud not in {None, one.provider}:
        raise ValueError(f"cloud: {one.id} is an instance type of {one.provider}, not of {answers.cloud}")
    region = answers.region or DEFAULT_REGIONS[one.provider]
    most = answers.max_gpus
    if most is None:
        most = one.gpus if answers.monthly_budget else 0
    settings, notes = rented_settings(one.provider, answers.market, region, [one.id], most)
    if not most:
        unspent = "; none of the budget can be spent" if answers.monthly_budget else ""
        notes["max_gpus"] = f"REVIEW: nothing is rented until you raise it{unspent}"
    elif answers.max_gpus is None:
        notes["max_gpus"] = "REVIEW: one node, so that the budget can be spent; raise it for more"
    if answers.instance_type is None:
        kind = "instance_types" if one.provider == "aws" else "machine_type"
        gpu = catalogue().gpus[one.gpu].id
        notes[kind] = f"REVIEW: one with {one.gpus} x {gpu}; `gpufleet catalog search` lists others"
    why = "No rented pool is known, and a fleet needs somewhere to burst to."
    part = Part(free_name("burst", parts), settings, notes, (why,))
    return priced(part, answers, None)


def _cluster(answers: Answers) -> Part:
    settings: dict[str, Any] = {"kind": "existing"}
    if answers.context is not None:
        settings["kubeconfig"] = {"context": answers.context}
        return Part(answers.cluster, settings)
    return Part(answers.cluster, settings, {"kind": "reached as kubectl would; kubeconfig: {context: NAME} pins one"})


def _in_cluster(part: Part, answers: Answers) -> Part:
    return replace(part, settings={**part.settings, "cluster": answers.cluster})
