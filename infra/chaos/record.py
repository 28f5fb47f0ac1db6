"""The record of a drill, in the cluster itself: which nodes it marked, and what those looked like that it deleted.

It is written before anything else is, and removed after everything is put back, so whatever a drill that was killed has
left can be found and undone from any machine (`gpufleet chaos clean`). It decides nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from infra.chaos.nodes import Target, as_created
from infra.chaos.terms import ChaosError
from runtime.errors import Conflict, Forbidden, NotFound
from runtime.kube import CONFIG_MAPS, Kube
from stacks.labels import MANAGED_BY, MANAGED_BY_LABEL, PREFIX, SYSTEM_NAMESPACE

DRILL_LABEL: Final = f"{PREFIX}/drill"
"""Label of the ConfigMap of a drill: its id."""

_NAME: Final = "gpufleet-drill-"
_ABOUT: Final = "drill"
_NODE: Final = "node."  # before the name of a node, in the keys of the ConfigMap


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """One node of a drill; `removed` says that the drill deletes the Node or has done so."""

    name: str
    notice: str
    before: dict[str, Any] = field(default_factory=dict)
    removed: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """One drill. `until` is when it is over at the latest, in real seconds since the epoch."""

    run: str
    pool: str
    began_at: float
    until: float
    nodes: tuple[NodeRecord, ...]

    @property
    def name(self) -> str:
        """The name of its ConfigMap."""
        return _NAME + self.run


def new_record(run: str, pool: str, began_at: float, until: float, targets: Sequence[Target]) -> Record:
    """The record of a drill that begins."""
    nodes = (NodeRecord(target.name, notice_id(run, target.name), as_created(target.before)) for target in targets)
    return Record(run, pool, began_at, until, tuple(nodes))


def notice_id(run: str, node: str) -> str:
    """The id of the notice of one node; ids are short, so that of a long name only the beginning stands in it."""
    return f"drill-{run}-{node}"[:128]


async def create(kube: Kube, record: Record) -> None:
    """Write the record.

    Raises:
        ChaosError: it may not be written.
    """
    about = {"pool": record.pool, "began_at": record.began_at, "until": record.until}
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": record.name,
            "namespace": SYSTEM_NAMESPACE,
            "labels": {DRILL_LABEL: record.run, MANAGED_BY_LABEL: MANAGED_BY},
        },
        "data": {_ABOUT: json.dumps(about)} | {_NODE + node.name: _node_to_json(node) for node in record.nodes},
    }
    try:
        await kube.send("POST", CONFIG_MAPS.path(SYSTEM_NAMESPACE), body=body)
    except (Forbidden, Conflict) as error:
        raise ChaosError(
            f"the drill cannot be recorded in namespace {SYSTEM_NAMESPACE}, and is not begun without: {error}"
        ) from None


async def mark_removed(kube: Kube, record: Record, name: str) -> None:
    """Write down that a node is about to be deleted."""
    [node] = [one for one in record.nodes if one.name == name]
    await kube.patch_config_map(
        SYSTEM_NAMESPACE, record.name, {_NODE + name: _node_to_json(replace(node, removed=True))}
    )


async def find(kube: Kube) -> list[Record]:
    """Every record, the oldest first.

    Raises:
        ChaosError: one cannot be read.
    """
    found = await kube.list(CONFIG_MAPS, SYSTEM_NAMESPACE, labels=DRILL_LABEL)
    return sorted((_read(raw) for raw in found), key=lambda record: (record.began_at, record.run))


async def read(kube: Kube, record: Record) -> Record:
    """The record as it is now; as it was, where somebody removed it meanwhile."""
    try:
        return _read(await kube.get(CONFIG_MAPS, record.name, SYSTEM_NAMESPACE))
    except NotFound:
        return record


async def remove(kube: Kube, record: Record) -> None:
    """Remove the record; nothing happens where it is gone."""
    try:
        await kube.send("DELETE", CONFIG_MAPS.path(SYSTEM_NAMESPACE, record.name))
    except NotFound:
        return


def _read(raw: dict[str, Any]) -> Record:
    name, data = raw["metadata"]["name"], raw.get("data") or {}
    try:
        about = json.loads(data[_ABOUT])
        nodes = tuple(
            _node_from_json(key.removeprefix(_NODE), text)
            for key, text in sorted(data.items())
            if key.startswith(_NODE)
        )
        return Record(
            str(raw["metadata"]["labels"][DRILL_LABEL]),
            str(about["pool"]),
            float(about["began_at"]),
            float(about["until"]),
            nodes,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ChaosError(
            f"ConfigMap {SYSTEM_NAMESPACE}/{name} is no record of a drill that can be read ({type(error).__name__}: "
            f"{error}); put its nodes right by hand, and delete it"
        ) from None


def _node_to_json(node: NodeRecord) -> str:
    entry = {"notice": node.notice, "removed": node.removed, "before": node.before}
    return json.dumps(entry, separators=(",", ":"), sort_keys=True)


def _node_from_json(name: str, text: str) -> NodeRecord:
    entry = json.loads(text)
    if not isinstance(entry["before"], dict) or not isinstance(entry["removed"], bool):
        raise ValueError(f"node {name} is not described")
    return NodeRecord(name, str(entry["notice"]), entry["before"], entry["removed"])
