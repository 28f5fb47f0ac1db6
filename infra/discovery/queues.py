"""Teams, classes and the organisation from what Kueue has.

Objects that gpufleet made fold back into what they were made from: a team's share stands in its Cohort, and its burst
twins and window queues are no teams of their own. Of anybody else's objects a ClusterQueue becomes a team.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

from infra.discovery.findings import FoundTeam, Part, Share, Taken
from infra.discovery.naming import free_name, legal_name
from infra.discovery.objects import ClusterObjects, Raw, at, labels_of, list_at, name_of, some, text_at, whole
from stacks.agent_config import AgentConfig
from stacks.labels import BURST_INFIX, MANAGED_BY, MANAGED_BY_LABEL, TEAM_LABEL, WINDOW_INFIX
from stacks.quantities import format_duration
from stacks.teams import Budget

_HOUR: Final = timedelta(hours=1)  # the fleet's own default
_LARGEST_PRIORITY: Final = 1_000_000_000
_LARGEST_WEIGHT: Final = 1_000
_DEFAULT_NAMES: Final = ("default", "normal", "standard", "medium", "batch")


def is_ours(raw: Raw) -> bool:
    """Whether gpufleet made the object."""
    return labels_of(raw).get(MANAGED_BY_LABEL) == MANAGED_BY


def organization_of(objects: ClusterObjects, deployed: AgentConfig | None) -> tuple[str, str]:
    """The name of the root of the queue tree, and where it was found; empty where there is none."""
    if deployed is not None:
        return legal_name(deployed.organization, "organization"), "the gpufleet agent of this cluster"
    roots = [name_of(one) for one in objects.cohorts if is_ours(one) and TEAM_LABEL not in labels_of(one)]
    if roots:
        return legal_name(roots[0], "organization"), "root Cohort, made by gpufleet"
    parents = {name_of(one): text_at(one, "spec", "parentName") for one in objects.cohorts}
    used = Counter(_root(_cohort_of(one), parents) for one in objects.cluster_queues)
    del used[""]
    if not used:
        return "", ""
    root = min(used, key=lambda name: (-used[name], name))
    return legal_name(root, "organization"), f"Cohort {root}"


def teams_of(objects: ClusterObjects, deployed: AgentConfig | None) -> tuple[FoundTeam, ...]:
    """All teams: those of gpufleet first, then one for each other ClusterQueue."""
    foreign = [one for one in sorted(objects.cluster_queues, key=name_of) if not is_ours(one)]
    return (*_our_teams(objects, deployed), *(_foreign_team(queue, objects) for queue in foreign))


def classes_of(objects: ClusterObjects, deployed: AgentConfig | None) -> tuple[Part, ...]:
    """The classes, the highest priority first; exactly one of them is the default. Empty where there is none."""
    found: dict[str, Part] = {}
    for raw in sorted(objects.priority_classes, key=lambda one: (-_priority(one), name_of(one))):
        original, value = name_of(raw), _priority(raw)
        name = free_name(legal_name(original, "class"), found)
        priority = max(-_LARGEST_PRIORITY, min(_LARGEST_PRIORITY, value))
        settings, notes = {"priority": priority}, {}
        if priority != value:
            notes["priority"] = f"{value:,} in the cluster; the most is {_LARGEST_PRIORITY:,} either way"
        if name != original:
            notes["priority"] = f"WorkloadPriorityClass {original} in the cluster"
        settings |= _class_settings(name, deployed)
        found[name] = Part(name, settings, notes)
    if not found:
        return ()
    default, note = _default_class(tuple(found), deployed)
    part = found[default]
    found[default] = Part(default, {**part.settings, "default": True}, {**part.notes, "default": note})
    return tuple(found.values())


def taken_names(objects: ClusterObjects) -> Taken:
    """The names of objects that somebody else made."""
    kinds = (objects.namespaces, objects.cluster_queues, objects.cohorts, objects.priority_classes)
    namespaces, queues, cohorts, classes = (frozenset(name_of(x) for x in kind if not is_ours(x)) for kind in kinds)
    flavors = frozenset(name_of(one) for one in objects.resource_flavors if not is_ours(one))
    return Taken(namespaces, queues, cohorts, classes, flavors)


def _default_class(names: Sequence[str], deployed: AgentConfig | None) -> tuple[str, str]:
    if deployed is not None and deployed.default_class in names:
        return deployed.default_class, ""
    usual = next((name for name in _DEFAULT_NAMES if name in names), names[len(names) // 2])
    return usual, "REVIEW: the class of jobs that name none; Kueue has no such thing"


def _class_settings(name: str, deployed: AgentConfig | None) -> dict[str, Any]:
    told = deployed.classes.get(name) if deployed else None
    if told is None or deployed is None:
        return {}
    settings: dict[str, Any] = {}
    if told.burst == "never":
        settings["burst"] = "never"
    elif told.max_wait is not None:
        settings["max_wait"] = format_duration(told.max_wait)
    settings |= told.model_dump(mode="json", include={"markets", "window", "policy"}, exclude_none=True)
    if told.expected_runtime != usual_runtime(deployed):
        settings["expected_runtime"] = format_duration(told.expected_runtime)
    return settings


def usual_runtime(deployed: AgentConfig) -> timedelta:
    """The run time that most classes expect: the fleet's, as far as the agent's configuration tells."""
    [usual] = Counter(one.expected_runtime for one in deployed.classes.values()).most_common(1) or [(_HOUR, 0)]
    return usual[0]


def budget_settings(budget: Budget) -> dict[str, Any]:
    """A budget as a file says it, without what it need not say."""
    return {**budget.model_dump(mode="json", exclude_defaults=True), "kind": budget.kind}


def _our_teams(objects: ClusterObjects, deployed: AgentConfig | None) -> Iterator[FoundTeam]:
    spaces = {
        labels_of(one)[TEAM_LABEL]: text_at(one, "metadata", "namespace")
        for one in objects.local_queues
        if is_ours(one) and TEAM_LABEL in labels_of(one)
    }
    for cohort in sorted(objects.cohorts, key=name_of):
        name = labels_of(cohort).get(TEAM_LABEL, "")
        if not is_ours(cohort) or not name:
            continue
        settings: dict[str, Any] = {}
        if (namespace := legal_name(spaces.get(name, ""), name)) != name:
            settings["namespace"] = namespace
        settings |= _weight(cohort)
        told = deployed.teams.get(name) if deployed else None
        if told and told.max_burst_gpus is not None:
            settings["max_burst_gpus"] = told.max_burst_gpus
        if told and told.policy:
            settings["policy"] = told.policy.model_dump(mode="json")
        if told and told.budget:
            settings["budget"] = budget_settings(told.budget)
        yield FoundTeam(Part(_team_name(name), settings), tuple(_shares(cohort)))


def _foreign_team(queue: Raw, objects: ClusterObjects) -> FoundTeam:
    """A team for somebody else's ClusterQueue, called as the one namespace that it serves, if it is one."""
    original = name_of(queue)
    mine = [one for one in objects.local_queues if text_at(one, "spec", "clusterQueue") == original]
    spaces = sorted({text_at(one, "metadata", "namespace") for one in mine} - {""})
    called = spaces[0] if len(spaces) == 1 else original
    remarks = [f"ClusterQueue {original}" + (f", with LocalQueues in {some(spaces)}." if spaces else ".")]
    return FoundTeam(Part(_team_name(called), _weight(queue), {}, tuple(remarks)), tuple(_shares(queue)))


def _team_name(text: str) -> str:
    """The nearest name that a team can have: none that a queue of ours could have."""
    name = legal_name(text, "team")
    for infix in (BURST_INFIX, WINDOW_INFIX):
        while infix in f"{name}-":
            name = f"{name}-".replace(infix, "-").strip("-")
    return name


def _weight(raw: Raw) -> dict[str, Any]:
    try:
        weight = float(at(raw, "spec", "fairSharing", "weight"))
    except (TypeError, ValueError):
        return {}
    return {"weight": weight} if 0 < weight <= _LARGEST_WEIGHT and weight != 1 else {}


def _shares(raw: Raw) -> Iterator[Share]:
    for group in list_at(raw, "spec", "resourceGroups"):
        for flavor in list_at(group, "flavors"):
            for resource in list_at(flavor, "resources"):
                name = text_at(resource, "name")
                if name.startswith("nvidia.com/"):
                    limits = (at(resource, "borrowingLimit"), at(resource, "lendingLimit"))
                    borrow, lend = (None if limit is None else whole(limit) for limit in limits)
                    yield Share(text_at(flavor, "name"), name, whole(at(resource, "nominalQuota")), borrow, lend)


def _priority(raw: Raw) -> int:
    value = at(raw, "value")
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _cohort_of(queue: Raw) -> str:
    """By its name in v1beta2, or in v1beta1."""
    return text_at(queue, "spec", "cohortName") or text_at(queue, "spec", "cohort")


def _root(name: str, parents: dict[str, str]) -> str:
    seen: set[str] = set()
    while parents.get(name) and name not in seen:
        seen.add(name)
        name = parents[name]
    return name


def flavor_selectors(flavors: Iterable[Raw]) -> dict[str, dict[str, str]]:
    """The node labels that each of Kueue's flavors selects by."""
    found = {}
    for one in flavors:
        labels = at(one, "spec", "nodeLabels")
        found[name_of(one)] = dict(labels) if isinstance(labels, dict) else {}
    return found
