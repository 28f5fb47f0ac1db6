"""Rules of names, and of the agent's own settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from stacks.agent import ObjectStoreLedger, VolumeLedger
from stacks.clusters import ExistingCluster
from stacks.flavors import flavor_name
from stacks.labels import burst_queue, window_queue
from stacks.pools import BrokerPool
from stacks.quantities import parse_kube_name
from stacks.rules.rule import RuleProblem
from stacks.teams import check_team_name

if TYPE_CHECKING:
    from stacks.fleet import Fleet

_LONGEST_LABEL_VALUE: Final = 63


def team_names_are_legal(fleet: Fleet) -> Iterator[RuleProblem]:
    """No team name collides with a queue's of ours, and no two teams share a namespace."""
    owner: dict[str, str] = {}
    for name, team in fleet.teams.items():
        try:
            check_team_name(name, team)
        except ValueError as error:
            yield RuleProblem(("teams", name), name, str(error))
        namespace = team.namespace or name
        if namespace in owner:
            reason = f"namespace {namespace} is team {owner[namespace]}'s already; give each team its own"
            yield RuleProblem(("teams", name), namespace, reason)
        owner.setdefault(namespace, name)


def queue_names_fit_a_label(fleet: Fleet) -> Iterator[RuleProblem]:
    """A job names its queue in a label, and queues join the name of a team with that of a flavor or a class."""
    pools = [fleet.pools[name] for name in fleet.burst.order if name in fleet.cloud_pools]
    flavors = {flavor_name(pool): " or the provider" if isinstance(pool, BrokerPool) else "" for pool in pools}
    windows = {name: " or the class" for name, job_class in fleet.classes.items() if job_class.window is not None}
    for team in fleet.teams:
        for what, names, queue_of in (("flavor", flavors, burst_queue), ("class", windows, window_queue)):
            name = max(names, key=len, default="")
            length = len(queue_of(team, name))
            excess = length - _LONGEST_LABEL_VALUE
            if name and excess > 0:
                reason = (
                    f"its queue for {what} {name} would have a name of {length} characters, and a label takes "
                    f"{_LONGEST_LABEL_VALUE}; take {excess} off the name of the team{names[name]}"
                )
                yield RuleProblem(("teams", team), team, reason)


def exactly_one_class_is_the_default(fleet: Fleet) -> Iterator[RuleProblem]:
    """Jobs without a class label need a class, and only one."""
    defaults = [name for name, job_class in fleet.classes.items() if job_class.default]
    if not defaults:
        yield RuleProblem(("classes",), None, "no class is the default; set default: true on exactly one")
    for name in defaults[1:]:
        reason = f"class {defaults[0]} is the default already; set default: true on exactly one"
        yield RuleProblem(("classes", name, "default"), True, reason)


def class_names_are_legal(fleet: Fleet) -> Iterator[RuleProblem]:
    """Class names become Kubernetes names in lower case, and stay distinct."""
    seen: dict[str, str] = {}
    for name in fleet.classes:
        folded = name.lower()
        try:
            parse_kube_name(folded)
        except ValueError as error:
            yield RuleProblem(("classes", name), name, str(error))
        if folded in seen:
            yield RuleProblem(("classes", name), name, f"differs from class {seen[folded]} only in case; rename one")
        seen.setdefault(folded, name)


def the_image_is_pinned(fleet: Fleet) -> Iterator[RuleProblem]:
    """An image without a tag or digest, or tagged latest, changes without anyone deciding it."""
    image = fleet.agent.image
    tag = image.rsplit("/", 1)[-1].partition(":")[2]
    if "@sha256:" not in image and tag in {"", "latest"}:
        yield RuleProblem(("agent", "image"), image, "pin a tag or digest, e.g. ghcr.io/gpufleet/agent:0.1.0")


def several_replicas_share_a_ledger(fleet: Fleet) -> Iterator[RuleProblem]:
    """A volume of the usual kind is attached to one node; standing replicas elsewhere could not start."""
    if fleet.agent.replicas > 1 and isinstance(fleet.agent.ledger, VolumeLedger):
        reason = "several replicas need a ledger that all nodes reach; set agent.ledger to {kind: object-store, url: …}"
        yield RuleProblem(("agent", "replicas"), fleet.agent.replicas, reason)


def replayed_time_spends_no_real_money(fleet: Fleet) -> Iterator[RuleProblem]:
    """Waits and costs are multiplied by the replay speed; it is for clusters of fake nodes."""
    speed = fleet.agent.replay_speed
    real = [name for name, pool in fleet.cloud_pools.items() if getattr(pool, "provisioner", "existing") != "existing"]
    if speed == 1 or (
        isinstance(fleet.clusters.get(fleet.home_name), ExistingCluster | None)
        and not real
        and not isinstance(fleet.agent.ledger, ObjectStoreLedger)
    ):
        return
    reason = (
        "must be 1 where money is real: on a cluster of ours, with nodes that we start, or with a ledger in a bucket"
    )
    yield RuleProblem(("agent", "replay_speed"), speed, reason)
