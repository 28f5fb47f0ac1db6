"""What changes of layouts are planned from: nodes of pools with MIG, as the API server sent them.

It reads what the MIG manager and the device plugin say of a node, and what is remembered of a change. Nodes without a
layout of ours are of no interest, unless a change was begun on them. It judges nothing.

Invariant: what cannot be read counts as not said; of our own record that is kept as `unreadable`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runtime.eviction.drains import drains_of
from runtime.eviction.notice import NoticeKind
from runtime.eviction.sources.nodes import notices_of
from runtime.relayout.record import Record, record_from_json
from runtime.routing.requests import GPU_RESOURCES, whole
from stacks.agent_config import AgentConfig, PoolLayoutConfig
from stacks.labels import AGENT_DRAIN_TAINT, MIG_STATE_LABEL, POOL_LABEL, RELAYOUT_ANNOTATION
from stacks.layouts import MIG_CONFIG_LABEL

Raw = Mapping[str, Any]

LONGEST_TEXT: Final = 63
"""Characters kept of a label; its value has no more."""


@dataclass(frozen=True, slots=True)
class LayoutNode:
    """One node.

    `label` is the layout that it is labelled with, `state` what the MIG manager says of it, both empty where they are
    not there; `devices` are the GPUs and slices that it offers, by resource. `tainted` says that we hold it empty.
    `taken` says that somebody else has plans with it. `version` is the resourceVersion that all of this was read in.
    """

    name: str
    pool: str
    version: str
    label: str
    state: str
    devices: Mapping[str, int]
    ready: bool
    tainted: bool
    taken: bool
    record: Record | None
    unreadable: str
    taints: Sequence[Raw]


@dataclass(frozen=True, slots=True)
class LayoutView:
    """One moment: every node of interest, the layouts of each pool, and whether nodes may be emptied now."""

    nodes: Sequence[LayoutNode]
    pools: Mapping[str, PoolLayoutConfig]
    most_nodes: int
    open: bool


def layout_node(raw: Raw, pools: Collection[str], now: float) -> LayoutNode | None:
    """A node as it was read at a time; None for one of no interest."""
    metadata, spec, status = raw.get("metadata") or {}, raw.get("spec") or {}, raw.get("status") or {}
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    taints = spec.get("taints") or ()
    pool, text = str(labels.get(POOL_LABEL, "")), annotations.get(RELAYOUT_ANNOTATION)
    tainted = any(_is_ours(taint) for taint in taints)
    if not isinstance(metadata.get("name"), str) or not (pool in pools or tainted or text is not None):
        return None
    record, unreadable = _record(text)
    conditions = status.get("conditions") or ()
    others = [notice for notice in drains_of(raw, now) if notice.source != "drain-by-agent"]
    return LayoutNode(
        name=metadata["name"],
        pool=pool,
        version=str(metadata.get("resourceVersion", "")),
        label=str(labels.get(MIG_CONFIG_LABEL, ""))[:LONGEST_TEXT],
        state=str(labels.get(MIG_STATE_LABEL, ""))[:LONGEST_TEXT],
        devices=_devices(status.get("allocatable") or {}),
        ready=any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions),
        tainted=tainted,
        taken=bool(spec.get("unschedulable") or others or notices_of(raw, now)),
        record=record,
        unreadable=unreadable,
        taints=tuple(taints),
    )


def pools_of(config: AgentConfig) -> Collection[str]:
    """The pools whose nodes have layouts of ours."""
    return () if config.gpu_layouts is None else config.gpu_layouts.pools.keys()


def _is_ours(taint: Raw) -> bool:
    return taint.get("key") == AGENT_DRAIN_TAINT and str(taint.get("value", "")).startswith(f"{NoticeKind.LAYOUT}.")


def _record(text: object) -> tuple[Record | None, str]:
    if text is None:
        return None, ""
    try:
        return record_from_json(str(text)), ""
    except ValueError as error:
        return None, str(error)


def _devices(allocatable: Raw) -> dict[str, int]:
    """GPUs and slices; those that the kubelet remembers of former layouts stand there with 0, and are left out."""
    found = {}
    for name, quantity in allocatable.items():
        if not GPU_RESOURCES.match(name):
            continue
        try:
            found[name] = whole(quantity)
        except ValueError:
            continue
    return {name: count for name, count in found.items() if count}
