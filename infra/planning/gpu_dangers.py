"""What a change of the GPU layer does to nodes that jobs run on."""

from __future__ import annotations

from collections.abc import Iterator

from stacks.drivers import drivers
from stacks.fleet import Fleet
from stacks.layouts import layout_name, operator_is_ours, served_pools


def gpu_dangers(old: Fleet, new: Fleet) -> Iterator[str]:
    """Layouts and drivers that change, and what is lost with an operator."""
    yield from _layouts(old, new)
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
            yield (
                f"pool {name} gets another MIG layout on all its nodes at once, and nothing empties them: drain them "
                "first, or set gpu_layer.relayout"
            )
        kept = {layout_name(name, pool, layout) for layout in pool.mig.layouts.values()}
        if former not in kept:
            yield (
                f"pool {name} forgets the MIG layout that its nodes have: where the new one fails, there is nothing to "
                "go back to; set mig.former to the old layout"
            )
