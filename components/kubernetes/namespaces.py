"""A team's namespace, and the doors in it to the team's ClusterQueues.

It makes no ClusterQueue, and sets no field of a door that the agent writes.
"""

from __future__ import annotations

from components.names import KUEUE_API, Manifest, manifest
from stacks.fleet import Fleet
from stacks.labels import MANAGED_LABEL, TEAM_LABEL, burst_queue, window_queue


def namespace_of(fleet: Fleet, team: str) -> Manifest:
    """The team's namespace, under our admission policies."""
    name = fleet.teams[team].namespace or team
    return manifest("v1", "Namespace", name, labels={MANAGED_LABEL: "true", TEAM_LABEL: team})


def local_queues(fleet: Fleet, team: str) -> dict[str, Manifest]:
    """The doors in the team's namespace by role: onto its queue, onto each twin, and one per class with a window.

    Their `spec.stopPolicy` is never set here: the agent holds and opens the queues of windows. The API server fills in
    its default, which belongs to no field manager, so `pulumi up`, which applies on the server's side, leaves it alone.
    """
    windows = [window_queue(team, name) for name, job_class in fleet.classes.items() if job_class.window is not None]
    twins = [burst_queue(team, cloud.name) for cloud in fleet.burst_flavors]
    targets = {team: team} | {twin: twin for twin in twins} | dict.fromkeys(windows, team)
    return {f"local-queue-{name}": _local_queue(fleet, team, name, target) for name, target in targets.items()}


def _local_queue(fleet: Fleet, team: str, name: str, cluster_queue_name: str) -> Manifest:
    return manifest(
        KUEUE_API,
        "LocalQueue",
        name,
        namespace=fleet.teams[team].namespace or team,
        labels={TEAM_LABEL: team},
        spec={"clusterQueue": cluster_queue_name},
    )
