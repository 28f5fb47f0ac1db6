"""Names for the fleet's objects beside those that somebody else made in the cluster.

Pulumi creates nothing under a name that is taken, so a first file that kept those names could not even be previewed.
What is there already stays as it is; a person may take it over later with `pulumi import` and change the name back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from infra.discovery.findings import Part, Taken
from infra.discovery.naming import free_name
from stacks.labels import BURST_INFIX, SYSTEM_NAMESPACE

_PREFIX: Final = "fleet-"
_LONGEST: Final = 63  # RFC 1123 label
_SYSTEM: Final = frozenset({"default", "kueue-system", SYSTEM_NAMESPACE})
_SYSTEM_PREFIX: Final = "kube-"  # Kubernetes keeps these namespaces for itself


def beside(name: str, taken: Iterable[str], *, longest: int = _LONGEST) -> str:
    """The name, or one like it where it is taken."""
    names = frozenset(taken)
    if name not in names:
        return name
    return free_name(f"{_PREFIX}{name}"[:longest].rstrip("-"), names, longest=longest)


def classes_beside(classes: Iterable[Part], taken: Taken) -> tuple[Part, ...]:
    """The classes, under names that are free."""
    found: dict[str, Part] = {}
    for part in classes:
        name = beside(part.name, taken.classes | found.keys())
        if name != part.name:
            why = f"WorkloadPriorityClass {part.name} exists already and stays; jobs of this class name {name}."
            part = replace(part, name=name, remarks=(*part.remarks, f"REVIEW: {why}"))
        found[name] = part
    return tuple(found.values())


def teams_beside(
    teams: Iterable[Part], organization: str, taken: Taken, *, longest: int | None = None
) -> tuple[Part, ...]:
    """The teams, with queues and namespaces whose names are free; no two teams share one.

    Names are cut to `longest` characters, where that is given.
    """
    cohorts = {name.removeprefix(f"{organization}-") for name in taken.cohorts}
    twins = {name.partition(BURST_INFIX)[0] for name in taken.cluster_queues if BURST_INFIX in name}
    found: dict[str, Part] = {}
    namespaces: set[str] = set()
    for part in teams:
        short = part.name[:longest].rstrip("-")
        taken_names = taken.cluster_queues | twins | cohorts | found.keys()
        name = beside(short, taken_names, longest=longest or _LONGEST)
        wanted = str(part.settings.get("namespace", part.name))
        reserved = {wanted} if wanted.startswith(_SYSTEM_PREFIX) else set()
        namespace = beside(wanted, taken.namespaces | namespaces | _SYSTEM | reserved)
        namespaces.add(namespace)
        settings = {key: value for key, value in part.settings.items() if key != "namespace"}
        if namespace != name:
            settings = {"namespace": namespace, **settings}
        remarks = [f"REVIEW: queue {short} exists already and stays; the team is {name}."] if name != short else []
        if short != part.name:
            remarks.append(f"REVIEW: {part.name} leaves no room for a flavor in the names of queues; shortened.")
        if namespace != wanted:
            remarks.append(f"REVIEW: namespace {wanted} exists already and stays; jobs of the fleet go to {namespace}.")
        found[name] = replace(part, name=name, settings=settings, remarks=(*part.remarks, *remarks))
    return tuple(found.values())


def flavors_beside(flavors: Iterable[str], taken: Taken) -> Iterator[str]:
    """What to say of flavors: their names follow from the pools and cannot be changed."""
    for name in sorted(taken.flavors & set(flavors)):
        yield f"REVIEW: ResourceFlavor {name} exists already; `pulumi import` it, or delete it before `pulumi up`."
