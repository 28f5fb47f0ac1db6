"""What the agent is told of MIG layouts: which one the nodes of each pool are to have, and what they then offer."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stacks.catalogue import catalogue
from stacks.devices import node_capacity
from stacks.fleet import Fleet
from stacks.gpulayer import Relayout
from stacks.layouts import layout_name, served_pools
from stacks.model import Model
from stacks.pools import PartitionedPool
from stacks.quantities import Window


class LayoutConfig(Model):
    """A named MIG layout, and what a node with it offers."""

    name: str
    """Value of the node label `nvidia.com/mig.config`."""

    devices: dict[str, Annotated[int, Field(ge=1)]]
    """What a node then offers, by resource."""


class PoolLayoutConfig(Model):
    """The MIG layouts of one pool, whose nodes carry its name in the label `gpufleet.dev/pool`."""

    wanted: LayoutConfig
    """The layout that every node is to have."""

    former: LayoutConfig | None = None
    """The layout to go back to where the wanted one fails; None where the file names none."""

    mode_change: Literal["live", "reset", "reboot", "replace"]
    """What a node takes to turn MIG on or off."""


class RelayoutConfig(Model):
    """How nodes get another MIG layout."""

    pools: dict[str, PoolLayoutConfig]
    """The pools with MIG, by name."""

    windows: tuple[Window, ...] = ()
    """When nodes may be emptied for it; always where there is none."""

    most_nodes: Annotated[int, Field(ge=1)] = 1
    """Most nodes of the fleet that are changed at once."""


def relayout_config(fleet: Fleet) -> RelayoutConfig | None:
    """The layouts of the pools with MIG; None where the file leaves them to `pulumi up`."""
    relayout = fleet.gpu_layer.relayout
    pools = {name: pool for name, pool in served_pools(fleet).items() if pool.mig is not None}
    if relayout is None or not pools:
        return None
    return RelayoutConfig(
        pools={name: _pool_layouts(name, pool, relayout) for name, pool in pools.items()},
        windows=relayout.windows,
        most_nodes=relayout.most_nodes,
    )


def _pool_layouts(name: str, pool: PartitionedPool, relayout: Relayout) -> PoolLayoutConfig:
    assert pool.mig is not None  # of pools with MIG only
    layouts = {
        setting: LayoutConfig(name=layout_name(name, pool, layout), devices=node_capacity(pool, layout))
        for setting, layout in pool.mig.layouts.items()
    }
    geometry = catalogue().gpus[pool.gpu].mig
    live = geometry is not None and geometry.mode_change == "live"
    return PoolLayoutConfig(
        wanted=layouts["layout"],
        former=layouts.get("former"),
        mode_change="live" if live or relayout.mode_change is None else relayout.mode_change,
    )
