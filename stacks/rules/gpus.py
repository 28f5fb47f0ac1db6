"""Rules of GPUs as nodes offer them: what nodes would refuse at night is refused here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stacks.catalogue import GpuModel, catalogue
from stacks.drivers import drivers
from stacks.gpuversions import DRA_DRIVER_FLOOR, is_older
from stacks.layouts import LONGEST_LABEL_VALUE, LONGEST_POOL_NAME, operator_is_ours, served_pools
from stacks.model import Path
from stacks.pools import InstancePool, KarpenterPool, NodeGroupPool, OnPremPool, PartitionedPool, Pool
from stacks.rules.rule import RuleProblem

if TYPE_CHECKING:
    from stacks.fleet import Fleet


def names_of_layouts_fit_a_label(fleet: Fleet) -> Iterator[RuleProblem]:
    """Nodes find their MIG layout and their sharing by a label, whose value begins with the pool's name."""
    for name, pool in served_pools(fleet).items():
        excess = len(name) - LONGEST_POOL_NAME
        if pool.partitioned and excess > 0:
            reason = (
                f"the label of its layout would have {LONGEST_LABEL_VALUE + excess} characters, and a label takes "
                f"{LONGEST_LABEL_VALUE}; take {excess} off the name of the pool"
            )
            yield RuleProblem(("pools", name), name, reason)


def one_strategy_for_each_operator(fleet: Fleet) -> Iterator[RuleProblem]:
    """The operator gives its device plugin one MIG strategy, which goes before that of a node."""
    cut = {name: pool for name, pool in served_pools(fleet).items() if pool.mig is not None}
    first = next(iter(cut), "")
    for name, pool in cut.items():
        wanted, other = pool.mig and pool.mig.strategy, cut[first].mig
        if other is not None and wanted != other.strategy:
            reason = f"pool {first} has {other.strategy}, and a GPU Operator offers slices in one way; use the same"
            yield RuleProblem(("pools", name, "mig", "strategy"), wanted, reason)


def changes_of_mig_mode_are_planned(fleet: Fleet) -> Iterator[RuleProblem]:
    """Ampere GPUs turn MIG on and off only with a reset, which some nodes cannot do without a reboot."""
    relayout = fleet.gpu_layer.relayout
    if relayout is None:
        return
    for name, pool in served_pools(fleet).items():
        geometry = catalogue().gpus[pool.gpu].mig
        if pool.mig is None or geometry is None or geometry.mode_change != "reset":
            continue
        path: Path = ("gpu_layer", "relayout", "mode_change")
        if relayout.mode_change is None:
            path = path[:-1]
            reason = (
                f"mode_change is missing: GPUs of pool {name} ({pool.gpu}) turn MIG on and off only with a reset; say "
                "what a node takes: reset, reboot or replace"
            )
            yield RuleProblem(path, None, reason)
        elif relayout.mode_change == "replace" and isinstance(pool, OnPremPool):
            reason = f"pool {name} is on-prem, where no other node takes the place of one; use reset or reboot"
            yield RuleProblem(path, "replace", reason)
        elif relayout.mode_change == "reset" and not isinstance(pool, OnPremPool):
            reason = f"GPUs of pool {name} are passed through to virtual machines, which cannot reset them; use reboot"
            yield RuleProblem(path, "reset", reason)


def claims_are_for_pools_that_can_have_them(fleet: Fleet) -> Iterator[RuleProblem]:
    """Resource claims go with nodes that are there, whole GPUs, and quota without topology."""
    of_drivers = drivers(fleet)
    for name, pool in fleet.pools.items():
        if not isinstance(pool, PartitionedPool) or pool.device_interface != "dra":
            continue
        driver = of_drivers.get(name)
        if isinstance(pool, KarpenterPool) or (isinstance(pool, NodeGroupPool) and pool.nodes.min < pool.nodes.max):
            reason = "autoscalers do not see resource claims and would start no node for them; use device-plugin"
        elif pool.topology_levels:
            reason = "Kueue's topology-aware scheduling knows no resource claims; leave topology_levels or it out"
        elif pool.partitioned:
            part = "mig" if pool.mig else "sharing"
            reason = (
                f"goes with whole GPUs, as NVIDIA's DRA driver knows no MIG manager and no replicas; leave {part} out"
            )
        elif driver is not None and is_older(driver.version, DRA_DRIVER_FLOOR):
            reason = f"needs driver {DRA_DRIVER_FLOOR} or newer, and the pool has {driver.version}; raise it"
        else:
            continue
        yield RuleProblem(("pools", name, "device_interface"), "dra", reason)


def one_device_interface_for_each_operator(fleet: Fleet) -> Iterator[RuleProblem]:
    """The operator installs the device plugin or the DRA driver, and never both."""
    served = served_pools(fleet) if operator_is_ours(fleet) else {}
    first = next(iter(served), "")
    for name, pool in served.items():
        if pool.device_interface != served[first].device_interface:
            reason = f"pool {first} has {served[first].device_interface}, and a GPU Operator installs one; use the same"
            yield RuleProblem(("pools", name, "device_interface"), pool.device_interface, reason)


def joined_gpus_are_there(fleet: Fleet) -> Iterator[RuleProblem]:
    """A class that needs NVLink or RDMA has a pool with it, and never gets MIG slices in the place of GPUs."""
    for name, job_class in fleet.classes.items():
        if job_class.interconnect is None:
            continue
        path = ("classes", name, "interconnect")
        pools = {
            key: pool
            for key, pool in fleet.pools.items()
            if job_class.markets is None or _market(pool) in job_class.markets
        }
        if not any(_joins(pool, job_class.interconnect) for pool in pools.values()):
            hint = "nvlink on the model" if job_class.interconnect == "nvlink" else "rdma"
            reason = f"no pool that the class may use has whole GPUs with {hint}; add one, or leave interconnect out"
            yield RuleProblem(path, job_class.interconnect, reason)
        for key, pool in pools.items():
            if isinstance(pool, PartitionedPool) and pool.mig is not None and pool.mig.strategy == "single":
                reason = (
                    f"slices of pool {key} pass for GPUs (mig.strategy: single), and no two of them are joined; use "
                    "mixed there"
                )
                yield RuleProblem(path, job_class.interconnect, reason)


def _market(pool: Pool) -> str:
    return "onprem" if isinstance(pool, OnPremPool) else pool.market


def _joins(pool: Pool, interconnect: str) -> bool:
    if isinstance(pool, PartitionedPool) and pool.partitioned:
        return False
    if interconnect == "nvlink":
        gpu: GpuModel = catalogue().gpus[pool.gpu]
        return gpu.nvlink and pool.gpus_per_node > 1
    if isinstance(pool, OnPremPool):
        return pool.rdma is not None
    # What a broker's network can do nobody says; the class's owner knows.
    return not isinstance(pool, InstancePool) or any(one.rdma for one in pool.known_types)
