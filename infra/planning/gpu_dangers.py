"""What a change of the GPU layer does to nodes that jobs run on."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.drivers import drivers
from stacks.fleet import Fleet
from stacks.layouts import PLUGIN_CONFIG_LABEL, layout_name, node_labels, operator_is_ours, served_pools
from stacks.pools import OnPremPool, Pool


def gpu_dangers(old: Fleet, new: Fleet) -> Iterator[str]:
    """Layouts, sharing and drivers that change, and what is lost with an operator."""
    yield from _layouts(old, new)
    yield from _handed_over(old, new)
    yield from _sharing(old, new)
    if operator_is_ours(old) and not operator_is_ours(new):
        yield "the GPU Operator is uninstalled: nodes lose device plugin and metrics, and jobs with GPUs start nowhere"
    elif operator_is_ours(old) and operator_is_ours(new):
        yield from _drivers(old, new)


def _drivers(old: Fleet, new: Fleet) -> Iterator[str]:
    before, settings = drivers(old), new.gpu_layer.driver
    how = "each when you delete its driver pod; empty it first"
    if settings.automatic:
        how = f"{settings.most_nodes} at a time, each once no job is left on it"
    for pool, driver in drivers(new).items():
        if pool in before and before[pool].version != driver.version:
            yield f"pool {pool} changes its driver from {before[pool].version} to {driver.version}: nodes {how}"


def _layouts(old: Fleet, new: Fleet) -> Iterator[str]:
    before = served_pools(old)
    for name, pool in served_pools(new).items():
        was = before[name].mig if name in before else None
        if pool.mig is None or was is None:
            continue
        former, wanted = layout_name(name, before[name], was.layout), layout_name(name, pool, pool.mig.layout)
        if former == wanted:
            continue
        if new.gpu_layer.relayout is None:
            when = "on all its nodes at once" if _is_named(pool) else "on each node as soon as it has the new label"
            yield (
                f"pool {name} gets another MIG layout {when}, and nothing empties them: drain them first, or set "
                "gpu_layer.relayout"
            )
        kept = {layout_name(name, pool, layout) for layout in pool.mig.layouts.values()}
        if former not in kept:
            yield (
                f"pool {name} forgets the MIG layout that its nodes have: where the new one fails, there is nothing to "
                "go back to; set mig.former to the old layout"
            )


def _handed_over(old: Fleet, new: Fleet) -> Iterator[str]:
    """Labels that `pulumi up` gives up for the agent: the API server takes a label away with its only owner."""
    if old.gpu_layer.relayout is not None or new.gpu_layer.relayout is None:
        return
    before = served_pools(old)
    for name, pool in served_pools(new).items():
        if pool.mig is not None and _is_named(pool) and name in before and before[name].mig is not None:
            yield (
                f"pool {name} hands its nodes' MIG layout over to the agent: until the agent sets it again the nodes "
                "have none, whatever runs on them; empty them first"
            )


def _sharing(old: Fleet, new: Fleet) -> Iterator[str]:
    """The device plugin's configuration of nodes that `pulumi up` does not label."""
    for name, pool in served_pools(new).items():
        before = node_labels(old, name).get(PLUGIN_CONFIG_LABEL) if name in old.pools else None
        wanted = node_labels(new, name).get(PLUGIN_CONFIG_LABEL)
        if before is None or before == wanted or _is_named(pool):
            continue
        label = f"the label {PLUGIN_CONFIG_LABEL}={wanted}" if wanted else f"no label {PLUGIN_CONFIG_LABEL} any more"
        yield f"pool {name}: its nodes need {label}; {before}, which they have, is no configuration of the plugin then"


def _is_named(pool: Pool) -> bool:
    return isinstance(pool, OnPremPool) and bool(pool.node_names)
