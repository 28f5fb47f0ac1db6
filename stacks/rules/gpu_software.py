"""Rules of what makes GPUs usable: drivers, toolkit, operators and their namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from stacks.catalogue import catalogue
from stacks.drivers import drivers
from stacks.gpuversions import (
    CLIENT_LABEL_OPERATOR,
    FIRST_BRANCH,
    LAST_BRANCH,
    NETWORK_OPERATOR_FLOOR,
    OPERATOR_FLOOR,
    TOOLKIT_FLOOR,
    is_older,
)
from stacks.layouts import operator_is_ours
from stacks.rules.rule import RuleProblem
from stacks.suggest import did_you_mean
from stacks.teams import is_of_the_system

if TYPE_CHECKING:
    from stacks.fleet import Fleet

_HOLES: Final = "lets containers take over their node (CVE-2025-23266)"


def drivers_are_new_enough(fleet: Fleet) -> Iterator[RuleProblem]:
    """Each GPU architecture has an oldest driver, and some a newest; MIG may need a later one."""
    for name, driver in drivers(fleet).items():
        gpu, cut = catalogue().gpus[fleet.pools[name].gpu], fleet.onprem_pools[name].mig is not None
        first = gpu.minimum_driver if cut and gpu.minimum_driver is not None else FIRST_BRANCH.get(gpu.architecture)
        if first is not None and is_older(driver.version, first):
            what = f"{gpu.id} with MIG" if cut else gpu.id
            reason = f"pool {name} has {what}, which needs driver {first} or newer; raise it"
            yield RuleProblem(driver.path, driver.version, reason)
        last = LAST_BRANCH.get(gpu.architecture)
        if last is not None and is_older(last, driver.version):
            reason = f"pool {name} has {gpu.id}, which drivers after {last} do not support; pin one on the pool"
            yield RuleProblem(driver.path, driver.version, reason)


def kernel_modules_support_the_gpus(fleet: Fleet) -> Iterator[RuleProblem]:
    """The open kernel modules begin with Turing, the proprietary ones end before Blackwell."""
    for name, driver in drivers(fleet).items():
        gpu = catalogue().gpus[fleet.pools[name].gpu]
        module = driver.kernel_module
        if module != "auto" and module not in gpu.kernel_modules:
            own = fleet.onprem_pools[name].driver
            pinned = own is not None and own.kernel_module is not None
            path = ("pools", name, "driver", "kernel_module") if pinned else ("gpu_layer", "driver", "kernel_module")
            reason = f"pool {name} has {gpu.id}, which takes {' or '.join(gpu.kernel_modules)}; use that or auto"
            yield RuleProblem(path, module, reason)


def upgrades_begin_with_a_pool_that_takes_them(fleet: Fleet) -> Iterator[RuleProblem]:
    """The canary of a driver upgrade is an on-prem pool that has the fleet's driver."""
    upgrade = fleet.gpu_layer.driver.upgrade
    if upgrade is None:
        return
    path, pool = ("gpu_layer", "driver", "upgrade", "canary"), fleet.onprem_pools.get(upgrade.canary)
    if pool is None:
        known = did_you_mean(upgrade.canary, fleet.onprem_pools)
        yield RuleProblem(path, upgrade.canary, f"no such on-prem pool{known}")
    elif pool.driver is not None and (pool.driver.preinstalled or pool.driver.version is not None):
        reason = "has a driver of its own, so that the upgrade would not reach it; name another pool, or remove that"
        yield RuleProblem(path, upgrade.canary, reason)


def no_version_has_a_known_hole(fleet: Fleet) -> Iterator[RuleProblem]:
    """Toolkit and operator are past the holes through which containers took over nodes."""
    layer = fleet.gpu_layer
    if is_older(layer.toolkit, TOOLKIT_FLOOR):
        reason = f"{_HOLES}; use {TOOLKIT_FLOOR} or newer"
        yield RuleProblem(("gpu_layer", "toolkit"), layer.toolkit, reason)
    if is_older(layer.operator.version, OPERATOR_FLOOR):
        reason = f"installs a toolkit that {_HOLES}; use {OPERATOR_FLOOR} or newer"
        yield RuleProblem(("gpu_layer", "operator", "version"), layer.operator.version, reason)
    network = layer.network_operator
    if network is not None and is_older(network.version, NETWORK_OPERATOR_FLOOR):
        reason = f"tags its images in another way than {NETWORK_OPERATOR_FLOOR} and newer; use one of those"
        yield RuleProblem(("gpu_layer", "network_operator", "version"), network.version, reason)


def operators_have_namespaces_of_their_own(fleet: Fleet) -> Iterator[RuleProblem]:
    """Whoever may write in an operator's namespace may take over every node."""
    taken = {team.namespace or name: f"team {name}'s" for name, team in fleet.teams.items()}
    layer = fleet.gpu_layer
    named = {"operator": (layer.operator.namespace, operator_is_ours(fleet))}
    if layer.network_operator is not None:
        named["network_operator"] = (layer.network_operator.namespace, True)
    for operator, (namespace, ours) in named.items():
        whose = "the system's" if ours and is_of_the_system(namespace) else taken.get(namespace)
        if whose is not None:
            reason = f"is {whose} already; give the operator one of its own"
            yield RuleProblem(("gpu_layer", operator, "namespace"), namespace, reason)
        taken[namespace] = "the GPU Operator's"


def readings_stop_while_mig_changes(fleet: Fleet) -> Iterator[RuleProblem]:
    """Whoever holds the driver open blocks a change of MIG; only newer operators know to stop our reader."""
    layer = fleet.gpu_layer
    if layer.readings and operator_is_ours(fleet) and is_older(layer.operator.version, CLIENT_LABEL_OPERATOR):
        reason = f"needs gpu_layer.operator.version {CLIENT_LABEL_OPERATOR} or newer, which stops it while MIG changes"
        yield RuleProblem(("gpu_layer", "readings"), True, reason)
