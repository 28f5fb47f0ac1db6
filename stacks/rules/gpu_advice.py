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
    for setting in sorted(GpuLayer.model_fields.keys() - _OWN):
        if getattr(fleet.gpu_layer, setting) != getattr(usual, setting):
            part = f"clusters.{fleet.home_name}.software.gpu_operator"
            reason = f"is carried out by an operator that gpufleet installs, and {part} is not managed"
            yield RuleProblem(("gpu_layer", setting), None, reason)


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
