"""Changes of a file that destroy, disturb or forget something, and that its text does not show as such.

Only what the two versions of the file tell: what runs in a cluster at the moment it does not know, so each sentence
says what happens to such things if there are any.
"""

from __future__ import annotations

from collections.abc import Iterator

from infra.planning.gpu_dangers import gpu_dangers
from infra.planning.limits import cut_pools, lifted_budgets
from stacks.agent import VolumeLedger
from stacks.agent_config import ledger_url
from stacks.clusters import Cluster, EksCluster, ExistingCluster, GkeCluster
from stacks.flavors import flavor_name
from stacks.fleet import Fleet


def dangers(old: Fleet, new: Fleet) -> Iterator[str]:
    """Everything to think about before the new version is applied, most destructive first."""
    yield from _clusters(old, new)
    yield from _namespaces(old, new)
    yield from _on_destroy(old, new)
    yield from _ledger(old, new)
    yield from _organization(old, new)
    yield from _flavors(old, new)
    yield from gpu_dangers(old, new)
    yield from cut_pools(old, new)
    yield from _classes(old, new)
    yield from _teams(old, new)
    yield from lifted_budgets(old, new)


def data_stays(old: Fleet, new: Fleet) -> bool:
    """Whether what leaves the file leaves its data in the cluster.

    Pulumi goes by the setting under which an object was made, so by the old one; a cluster that goes takes all along.
    """
    before, after = old.home, new.clusters.get(old.home_name)
    is_replaced = any(was != becomes for _, was, becomes in _identifying(before, after))
    return old.on_destroy == "keep-data" and not _is_removed(before, after) and not is_replaced


def _is_removed(before: Cluster, after: Cluster | None) -> bool:
    return not isinstance(before, ExistingCluster) and (after is None or after.kind != before.kind)


def _clusters(old: Fleet, new: Fleet) -> Iterator[str]:
    if old.home_name != new.home_name:
        but = " but namespaces and the ledger's volume" if data_stays(old, new) else ""
        yield (
            f"cluster {old.home_name} becomes {new.home_name}: every object{but} is removed there and made anew here; "
            "jobs do not move along"
        )
    for name, before in old.clusters.items():
        after = new.clusters.get(name)
        if isinstance(before, ExistingCluster):
            if isinstance(after, ExistingCluster) and before.kubeconfig != after.kubeconfig:
                yield f"cluster {name} has another kubeconfig: if it leads elsewhere, every object is made anew there"
        elif _is_removed(before, after):
            yield f"cluster {name} is removed, with everything in it"
        for setting, was, becomes in _identifying(before, after):
            if was != becomes:
                yield f"cluster {name} is replaced, with everything in it: {setting} {was} becomes {becomes}"


def _identifying(before: Cluster, after: Cluster | None) -> Iterator[tuple[str, object, object]]:
    """What a cloud cannot change of a cluster."""
    match before, after:
        case EksCluster(), EksCluster():
            yield "region", before.region, after.region
            yield "network.vpc", before.network.vpc, after.network.vpc
        case GkeCluster(), GkeCluster():
            yield "project", before.project, after.project
            yield "region", before.region, after.region


def _namespaces(old: Fleet, new: Fleet) -> Iterator[str]:
    kept = set(_namespaces_of(new).values())
    for team, namespace in _namespaces_of(old).items():
        if namespace in kept:
            continue
        if data_stays(old, new):
            yield f"namespace {namespace} of team {team} stays, with jobs that no queue starts any more"
        else:
            yield f"namespace {namespace} of team {team} is deleted, with every job and volume in it"


def _namespaces_of(fleet: Fleet) -> dict[str, str]:
    return {name: team.namespace or name for name, team in fleet.teams.items()}


def _on_destroy(old: Fleet, new: Fleet) -> Iterator[str]:
    if old.on_destroy == "keep-data" and new.on_destroy == "remove-everything":
        yield "on_destroy becomes remove-everything: after this change, what leaves the file goes with its data"


def _ledger(old: Fleet, new: Fleet) -> Iterator[str]:
    before, after = old.agent.ledger, new.agent.ledger
    if ledger_url(before) != ledger_url(after):
        yield (
            f"the ledger moves from {ledger_url(before)} to {ledger_url(after)}: what was spent is not copied, so "
            "every budget begins anew"
        )
    elif isinstance(before, VolumeLedger) and isinstance(after, VolumeLedger):
        if before.storage_class != after.storage_class:
            yield "the ledger's volume is replaced by an empty one: storage_class cannot be changed on a volume"
        elif before.size != after.size:
            yield f"the ledger's volume is resized from {before.size} to {after.size}: few classes can, none shrinks"


def _organization(old: Fleet, new: Fleet) -> Iterator[str]:
    if old.organization != new.organization:
        yield (
            f"organization {old.organization} becomes {new.organization}: the whole queue tree is renamed; jobs wait "
            "until it stands"
        )


def _flavors(old: Fleet, new: Fleet) -> Iterator[str]:
    before, after = ({name: flavor_name(pool) for name, pool in fleet.pools.items()} for fleet in (old, new))
    for pool, flavor in before.items():
        if pool not in after and flavor not in after.values():
            yield (
                f"flavor {flavor} goes with pool {pool}: jobs that run on it are counted no more, and none starts there"
            )
        elif pool in after and after[pool] != flavor:
            yield (
                f"pool {pool} is renamed from flavor {flavor} to {after[pool]}: its nodes need the new label; jobs "
                "that run on them are counted no more"
            )


def _teams(old: Fleet, new: Fleet) -> Iterator[str]:
    flavors = {flavor_name(pool) for pool in new.pools.values()}
    for name, team in old.teams.items():
        if name not in new.teams:
            yield f"team {name} loses its queues: what waits in them never starts, what runs in them runs to its end"
            continue
        after = new.teams[name]
        for flavor, gpus in team.quota.items():
            left = after.quota.get(flavor, 0)
            if left < gpus and flavor in flavors:
                yield f"team {name} has {left} instead of {gpus} GPUs of {flavor}: jobs beyond that can be preempted"


def _classes(old: Fleet, new: Fleet) -> Iterator[str]:
    left = {name.lower() for name in new.classes}
    default = next((name for name, job_class in new.classes.items() if job_class.default), None)
    for name in old.classes:
        if name.lower() not in left:
            yield (
                f"class {name} is removed: new jobs that name it are not queued, as Kueue finds no "
                f"WorkloadPriorityClass {name.lower()}; those there are keep its priority and count as class {default}"
            )
