"""Kueue objects: flavors, the queue tree with its burst twins, classes, and the gate.

Layout (docs/architecture.md says why): the organisation's Cohort holds the cloud caps; each team's Cohort below holds
the team's local quota; in it stand two ClusterQueues with nominal quota 0: the team's own, which offers local flavors
and knows no check of ours, and its burst twin, which offers local flavors first and then the cloud, behind the gate.
Because the quota stands in the Cohort and not in a queue, the oldest job wins freed local GPUs whichever of the two it
waits in.

It does not install Kueue, and sets no field that Kueue or the agent writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

import pulumi

from components.base import Component, keeps_data
from components.kubernetes.quotas import quota, resource_groups, team_quota
from components.names import Manifest, cohort_of, manifest, team_cohort_of
from stacks.flavors import Flavor
from stacks.fleet import Fleet
from stacks.labels import (
    BURST_SUFFIX,
    BURST_TAINT,
    GATE_CONTROLLER,
    GATE_NAME,
    MANAGED_LABEL,
    TEAM_LABEL,
)

API: Final = "kueue.x-k8s.io/v1beta2"

GATE_TIMEOUT_SECONDS: Final = 300
"""How long `pulumi up` waits for the agent to declare the gate Active: image pull and first list of a large cluster."""


class Queues(Component):
    """The queue tree of the fleet, with the gate. `gate` is the AdmissionCheck, Active when the twins refer to it."""

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        *,
        agent: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(name, opts)
        self.kubernetes_all(priority_classes(fleet))
        shared = self.kubernetes_all(resource_flavors(fleet))
        organization = self.kubernetes("organization", organization_cohort(fleet), depends_on=shared)
        self.gate = self.kubernetes("gate", admission_check(), depends_on=list(agent))
        namespaces = namespaces_of(fleet)
        for team in fleet.teams:
            cohort = self.kubernetes(f"cohort-{team}", team_cohort(fleet, team), depends_on=[organization])
            queue = self.kubernetes(f"queue-{team}", cluster_queue(fleet, team), depends_on=[cohort])
            twin = self.kubernetes(
                f"burst-queue-{team}", burst_cluster_queue(fleet, team), depends_on=[cohort, self.gate]
            )
            # Pulumi deletes layer by layer; without the gate here the namespace would go a layer after the twin, which
            # Kueue keeps until the jobs in the namespace are gone.
            role = f"namespace-{team}"
            namespace = self.kubernetes(role, namespaces[role], depends_on=[queue, self.gate], **keeps_data(fleet))
            for role, suffix, target in (("local-queue", "", queue), ("local-burst-queue", BURST_SUFFIX, twin)):
                self.kubernetes(f"{role}-{team}", local_queue(fleet, team, suffix), depends_on=[namespace, target])
        self.register_outputs({})


def manifests(fleet: Fleet) -> dict[str, Manifest]:
    """Every object of the queue tree by role, in the order of creation."""
    objects = {**namespaces_of(fleet), **priority_classes(fleet), **resource_flavors(fleet)}
    objects |= {"organization": organization_cohort(fleet), "gate": admission_check()}
    for team in fleet.teams:
        objects[f"cohort-{team}"] = team_cohort(fleet, team)
        objects[f"queue-{team}"] = cluster_queue(fleet, team)
        objects[f"burst-queue-{team}"] = burst_cluster_queue(fleet, team)
        objects[f"local-queue-{team}"] = local_queue(fleet, team, "")
        objects[f"local-burst-queue-{team}"] = local_queue(fleet, team, BURST_SUFFIX)
    return objects


def namespaces_of(fleet: Fleet) -> dict[str, Manifest]:
    """One namespace per team, under our admission policies."""
    return {
        f"namespace-{name}": manifest(
            "v1", "Namespace", team.namespace or name, labels={MANAGED_LABEL: "true", TEAM_LABEL: name}
        )
        for name, team in fleet.teams.items()
    }


def priority_classes(fleet: Fleet) -> dict[str, Manifest]:
    """One WorkloadPriorityClass per job class."""
    return {
        f"class-{name.lower()}": manifest(
            API,
            "WorkloadPriorityClass",
            name.lower(),
            value=job_class.priority,
            description=f"Jobs of class {name}; a job asks for it with the label kueue.x-k8s.io/priority-class.",
        )
        for name, job_class in fleet.classes.items()
    }


def resource_flavors(fleet: Fleet) -> dict[str, Manifest]:
    """One ResourceFlavor per flavor; only cloud flavors tolerate the burst taint."""
    return {f"flavor-{flavor.name}": _resource_flavor(flavor) for flavor in fleet.flavors.values()}


def _resource_flavor(flavor: Flavor) -> Manifest:
    spec: dict[str, Any] = {"nodeLabels": flavor.node_labels}
    if flavor.cloud:
        spec["tolerations"] = [{"key": BURST_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
    return manifest(API, "ResourceFlavor", flavor.name, spec=spec)


def admission_check() -> Manifest:
    """The gate; Pulumi waits until the agent has declared it Active."""
    annotations = {
        "pulumi.com/waitFor": "condition=Active",
        "pulumi.com/timeoutSeconds": str(GATE_TIMEOUT_SECONDS),
    }
    return manifest(API, "AdmissionCheck", GATE_NAME, annotations=annotations, spec={"controllerName": GATE_CONTROLLER})


def organization_cohort(fleet: Fleet) -> Manifest:
    """The root: the cloud caps. Local quota stands with the teams, so that changing one team's changes one object."""
    caps = [quota(fleet, flavor, flavor.gpus) for flavor in fleet.queued_flavors if flavor.cloud]
    spec = {"resourceGroups": resource_groups(fleet, caps)}
    return manifest(API, "Cohort", cohort_of(fleet.organization), spec=spec)


def team_cohort(fleet: Fleet, name: str) -> Manifest:
    """A team's share: its local quota, what it may borrow and lends, and how much of the cloud it may hold."""
    team = fleet.teams[name]
    owned = [team_quota(fleet, name, flavor) for flavor in fleet.queued_flavors]
    spec = {
        "parentName": cohort_of(fleet.organization),
        "fairSharing": {"weight": f"{Decimal(repr(team.weight)).normalize():f}"},
        "resourceGroups": resource_groups(fleet, owned),
    }
    return manifest(API, "Cohort", team_cohort_of(fleet.organization, name), labels={TEAM_LABEL: name}, spec=spec)


def cluster_queue(fleet: Fleet, team: str) -> Manifest:
    """The team's own queue: local flavors, no check of ours, so that local work never depends on the agent."""
    spec = _queue_spec(fleet, team, [flavor for flavor in fleet.queued_flavors if not flavor.cloud])
    spec["preemption"] = {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority"},
    }
    return manifest(API, "ClusterQueue", team, labels={TEAM_LABEL: team}, spec=spec)


def burst_cluster_queue(fleet: Fleet, team: str) -> Manifest:
    """The burst twin: local flavors first, then the cloud behind the gate; it preempts nobody."""
    flavors = fleet.queued_flavors
    spec = _queue_spec(fleet, team, flavors)
    spec["preemption"] = {"withinClusterQueue": "Never", "reclaimWithinCohort": "Never"}
    cloud = [flavor.name for flavor in flavors if flavor.cloud]
    spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": GATE_NAME, "onFlavors": cloud}]}
    return manifest(API, "ClusterQueue", team + BURST_SUFFIX, labels={TEAM_LABEL: team}, spec=spec)


def local_queue(fleet: Fleet, team: str, suffix: str) -> Manifest:
    """A queue in the team's namespace onto the ClusterQueue of the same name."""
    namespace = fleet.teams[team].namespace or team
    return manifest(
        API,
        "LocalQueue",
        team + suffix,
        namespace=namespace,
        labels={TEAM_LABEL: team},
        spec={"clusterQueue": team + suffix},
    )


def _queue_spec(fleet: Fleet, team: str, flavors: Sequence[Flavor]) -> dict[str, Any]:
    spec = {
        "cohortName": team_cohort_of(fleet.organization, team),
        "namespaceSelector": {"matchLabels": {TEAM_LABEL: team}},
        "queueingStrategy": "BestEffortFIFO",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "resourceGroups": resource_groups(fleet, [quota(fleet, flavor, 0) for flavor in flavors]),
    }
    return {field: value for field, value in spec.items() if value}
