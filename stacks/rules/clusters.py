"""Rules of clusters and what runs in them: every part that something needs is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stacks.clusters import EksCluster, ExistingCluster, GkeCluster
from stacks.pools import GkePool, KarpenterPool, NodeGroupPool, OnPremPool
from stacks.rules.rule import RuleProblem
from stacks.suggest import did_you_mean

if TYPE_CHECKING:
    from stacks.fleet import Fleet


def pools_name_a_known_cluster(fleet: Fleet) -> Iterator[RuleProblem]:
    """Every pool's cluster is defined."""
    for name, pool in fleet.pools.items():
        if pool.cluster not in fleet.clusters:
            hint = did_you_mean(pool.cluster, fleet.clusters)
            yield RuleProblem(("pools", name, "cluster"), pool.cluster, f"no such cluster{hint}")


def pools_share_one_cluster(fleet: Fleet) -> Iterator[RuleProblem]:
    """Queues and the agent are in one cluster; jobs are not sent between clusters."""
    known = [pool.cluster for pool in fleet.pools.values() if pool.cluster in fleet.clusters]
    home = known[0] if known else ""
    for name, pool in fleet.pools.items():
        if pool.cluster != home and pool.cluster in fleet.clusters:
            reason = f"other pools are in {home}; a fleet's pools are in one cluster, as jobs cannot move between two"
            yield RuleProblem(("pools", name, "cluster"), pool.cluster, reason)


def pools_can_be_in_their_cluster(fleet: Fleet) -> Iterator[RuleProblem]:
    """A pool's nodes can join a cluster of its kind."""
    for name, pool in fleet.pools.items():
        cluster = fleet.clusters.get(pool.cluster)
        path = ("pools", name, "cluster")
        if isinstance(pool, NodeGroupPool) and not isinstance(cluster, EksCluster | None):
            yield RuleProblem(path, pool.cluster, "a node group belongs to a cluster of kind eks")
        if isinstance(pool, KarpenterPool) and isinstance(cluster, GkeCluster):
            yield RuleProblem(path, pool.cluster, "Karpenter starts nodes on AWS; the cluster is of kind gke")
        if isinstance(pool, GkePool) and not isinstance(cluster, GkeCluster | None):
            yield RuleProblem(path, pool.cluster, "a GKE node pool belongs to a cluster of kind gke")
        if isinstance(pool, OnPremPool) and isinstance(cluster, GkeCluster):
            yield RuleProblem(path, pool.cluster, "GKE takes no machines of one's own; use kind eks or existing")
        if isinstance(pool, OnPremPool) and isinstance(cluster, EksCluster) and cluster.hybrid is None:
            reason = "on-prem machines join EKS as hybrid nodes; set hybrid on the cluster"
            yield RuleProblem(path, pool.cluster, reason)


def pools_are_in_the_region_of_their_cluster(fleet: Fleet) -> Iterator[RuleProblem]:
    """A cluster of ours and the pools on it are in one region."""
    for name, pool in fleet.pools.items():
        cluster = fleet.clusters.get(pool.cluster)
        region = None if isinstance(cluster, ExistingCluster | None) else cluster.region
        own = getattr(pool, "region", None)
        if region is not None and own is not None and own != region:
            reason = f"the cluster {pool.cluster} is in {region}; leave region out, or use another cluster"
            yield RuleProblem(("pools", name, "region"), own, reason)


def karpenter_is_there_for_its_pools(fleet: Fleet) -> Iterator[RuleProblem]:
    """Pools with `provisioner: karpenter` need Karpenter."""
    for name, pool in fleet.pools.items():
        cluster = fleet.clusters.get(pool.cluster)
        if not isinstance(pool, KarpenterPool) or isinstance(cluster, GkeCluster | None):
            continue
        if cluster.software.karpenter == "skip":
            reason = f"clusters.{pool.cluster}.software.karpenter is skip; set it to managed or existing"
            yield RuleProblem(("pools", name, "provisioner"), "karpenter", reason)


def keda_is_there_for_scaling(fleet: Fleet) -> Iterator[RuleProblem]:
    """The section `scaling` needs KEDA."""
    home = fleet.clusters.get(fleet.home_name)
    if fleet.scaling and home is not None and home.software.keda == "skip":
        reason = f"clusters.{fleet.home_name}.software.keda is skip; set it to managed or existing"
        yield RuleProblem(("scaling",), None, reason)


def the_gpu_operator_is_there_where_it_must(fleet: Fleet) -> Iterator[RuleProblem]:
    """It carries out MIG layouts and sharing, except on GKE, and offers the GPUs of hybrid nodes."""
    for name, pool in fleet.pools.items():
        cluster = fleet.clusters.get(pool.cluster)
        if not isinstance(pool, OnPremPool | NodeGroupPool) or cluster is None:
            continue
        bare = isinstance(pool, OnPremPool) and isinstance(cluster, EksCluster)  # nothing else offers its GPUs to pods
        if (pool.partitioned or bare) and cluster.software.gpu_operator == "skip":
            part = "mig" if pool.mig else "sharing" if pool.sharing else "location"
            reason = f"clusters.{pool.cluster}.software.gpu_operator is skip; set it to managed or existing"
            yield RuleProblem(("pools", name, part), None, reason)


def gke_partitions_its_pools_itself(fleet: Fleet) -> Iterator[RuleProblem]:
    """On GKE the driver and device plugin are Google's; the GPU Operator would fight them."""
    for name, cluster in fleet.clusters.items():
        if isinstance(cluster, GkeCluster) and cluster.software.gpu_operator == "managed":
            path = ("clusters", name, "software", "gpu_operator")
            yield RuleProblem(path, "managed", "GKE installs driver and device plugin itself; use skip or existing")


def scaled_targets_are_scaled_once(fleet: Fleet) -> Iterator[RuleProblem]:
    """Two autoscalers on one deployment undo each other's work."""
    owner: dict[tuple[str, str], str] = {}
    for name, scaling in fleet.scaling.items():
        key = (scaling.namespace, str(scaling.target))
        if key in owner:
            reason = f"{scaling.target} is scaled by {owner[key]} already; give it one trigger"
            yield RuleProblem(("scaling", name, "target"), str(scaling.target), reason)
        owner.setdefault(key, name)
