"""What is not wrong with the GPU layer, and yet probably not meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stacks.catalogue import catalogue
from stacks.gpulayer import GpuLayer
from stacks.gpuversions import OPERATOR, OPERATOR_OLD, is_older
from stacks.layouts import operator_is_ours, served_pools
from stacks.mig import Reach, reach
from stacks.partitioning import profiles_of
from stacks.pools import NodeGroupPool
from stacks.rules.rule import RuleProblem

if TYPE_CHECKING:
    from stacks.fleet import Fleet

_OWN = frozenset({"relayout", "readings", "network_operator"})
"""Settings that do not need an operator of ours."""


def the_driver_can_place_the_layouts(fleet: Fleet) -> Iterator[RuleProblem]:
    """The MIG manager says how many slices of which profile, and the driver chooses their places."""
    for name, pool in served_pools(fleet).items():
        for key, items in pool.mig.layout.items() if pool.mig else ():
            if reach(catalogue().gpus[pool.gpu], profiles_of(items)) is Reach.EXPLICIT:
                reason = (
                    "fits only where places are given, which the MIG manager cannot, so it is expected to fail on the "
                    "nodes; `gpufleet mig explain` says more"
                )
                yield RuleProblem(("pools", name, "mig", "layout", key), ", ".join(map(str, items)), reason)


def the_gpu_layer_is_carried_out(fleet: Fleet) -> Iterator[RuleProblem]:
    """Versions and metrics are those of an operator that gpufleet installs."""
    if operator_is_ours(fleet):
        return
    usual = GpuLayer()
    part = f"clusters.{fleet.home_name}.software.gpu_operator"
    reason = f"is carried out by an operator that gpufleet installs, and {part} is not managed"
    for setting in sorted(GpuLayer.model_fields.keys() - _OWN):
        if getattr(fleet.gpu_layer, setting) != getattr(usual, setting):
            yield RuleProblem(("gpu_layer", setting), None, reason)
    for name, pool in fleet.onprem_pools.items():
        if pool.driver is not None and not pool.driver.preinstalled:
            yield RuleProblem(("pools", name, "driver"), None, reason)


def the_operator_is_not_old(fleet: Fleet) -> Iterator[RuleProblem]:
    """NVIDIA mends the newest versions only."""
    version = fleet.gpu_layer.operator.version
    if operator_is_ours(fleet) and is_older(version, OPERATOR_OLD):
        reason = f"is more than two minor versions behind {OPERATOR}; go up in steps"
        yield RuleProblem(("gpu_layer", "operator", "version"), version, reason)


def rdma_has_somebody_to_offer_it(fleet: Fleet) -> Iterator[RuleProblem]:
    """Without the Network Operator no node offers `rdma/…`, and with it alone nobody asks for it."""
    pools = [name for name, pool in fleet.onprem_pools.items() if pool.rdma is not None]
    if pools and fleet.gpu_layer.network_operator is None:
        reason = "gpu_layer.network_operator is not set, so that somebody else must offer it to pods"
        yield RuleProblem(("pools", pools[0], "rdma"), None, reason)
    if not pools and fleet.gpu_layer.network_operator is not None:
        reason = "no pool has rdma, so that there is nothing for it to do; set rdma on a pool"
        yield RuleProblem(("gpu_layer", "network_operator"), None, reason)


def the_gpu_layer_has_pools_to_serve(fleet: Fleet) -> Iterator[RuleProblem]:
    """GPUs are read, and layouts changed, where NVIDIA's operator serves them; GKE does without it."""
    served, layer = served_pools(fleet).values(), fleet.gpu_layer
    if layer.readings and not served:
        yield RuleProblem(("gpu_layer", "readings"), True, "reads nothing, as the GPU Operator serves no pool")
    if layer.relayout is not None and not any(pool.mig for pool in served):
        reason = "changes nothing, as no pool that the GPU Operator serves has mig"
        yield RuleProblem(("gpu_layer", "relayout"), None, reason)


def autoscalers_see_what_nodes_will_offer(fleet: Fleet) -> Iterator[RuleProblem]:
    """Of a node group without a node an autoscaler knows whole GPUs, unless the group's tags say more."""
    for name, pool in served_pools(fleet).items():
        if isinstance(pool, NodeGroupPool) and pool.partitioned and pool.nodes.min == 0:
            reason = (
                "an autoscaler starts no node of an empty group for a slice or a share; write 1 or more, or tag the "
                "group with k8s.io/cluster-autoscaler/node-template/resources/ and each resource"
            )
            yield RuleProblem(("pools", name, "nodes", "min"), 0, reason)


def rdma_is_left_out_of_quotas(fleet: Fleet) -> Iterator[RuleProblem]:
    """Kueue admits no pod that asks for what no quota covers, and network cards are shared."""
    for name, pool in fleet.onprem_pools.items():
        if pool.rdma is not None:
            reason = (
                "Kueue's configuration, which gpufleet does not write, needs resources.excludeResourcePrefixes: "
                "[rdma/], or no job that asks for a card is admitted"
            )
            yield RuleProblem(("pools", name, "rdma"), None, reason)
            return
