"""Which driver each on-prem pool has, after pins and a staged upgrade.

Beside an operator of somebody else's only what the file says is known: our default is nobody's driver there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stacks.gpulayer import DriverSettings, KernelModuleChoice
from stacks.layouts import operator_is_ours
from stacks.pools import OnPremPool

if TYPE_CHECKING:
    from stacks.fleet import Fleet


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver of a pool."""

    version: str
    """Release, or a branch, of which precompiled modules are used."""

    kernel_module: KernelModuleChoice
    """Which kernel modules."""

    path: tuple[str, ...]
    """The setting that the version comes from; the pool where no file says it."""


def driver_of(fleet: Fleet, name: str) -> Driver | None:
    """The driver that an on-prem pool is to have; None where the nodes come with one, or somebody else chooses it."""
    pool, settings = fleet.pools[name], fleet.gpu_layer.driver
    if not isinstance(pool, OnPremPool):
        return None
    module = settings.kernel_module
    if pool.driver is not None:
        if pool.driver.preinstalled:
            return None
        module = pool.driver.kernel_module or module
        if pool.driver.version is not None:
            return Driver(pool.driver.version, module, ("pools", name, "driver", "version"))
    upgraded = _upgraded(settings, name)
    if upgraded:
        return Driver(upgraded, module, ("gpu_layer", "driver", "upgrade", "version"))
    if "version" in settings.model_fields_set:
        return Driver(settings.version, module, ("gpu_layer", "driver", "version"))
    return Driver(settings.version, module, ("pools", name)) if operator_is_ours(fleet) else None


def _upgraded(settings: DriverSettings, name: str) -> str | None:
    upgrade = settings.upgrade
    return upgrade.version if upgrade is not None and (upgrade.validated or upgrade.canary == name) else None


def drivers(fleet: Fleet) -> dict[str, Driver]:
    """The drivers of all pools whose driver the file decides, by pool."""
    found = {name: driver_of(fleet, name) for name in fleet.onprem_pools}
    return {name: driver for name, driver in found.items() if driver is not None}
