"""Nodes as a drill finds, marks and leaves them: which are taken, what is written on one, and what takes it back.

Pure: it reads Node objects as the API server sent them, and makes patches. What it writes is what the node agent writes
(runtime.node), in one patch that holds only for the version it was made from.

Invariant: whatever others wrote on a node stays: their notices, their taints, and that they cordoned it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from infra.chaos.terms import SOURCE, ChaosError, DrillTerms
from infra.local.kwok import SIMULATED_LABEL
from runtime.eviction.notice import Notice, notices_from_json, notices_to_json, worst
from runtime.eviction.sources.nodes import notices_of
from stacks.labels import CORDONED_ANNOTATION, EVICTING_TAINT, NOTICES_ANNOTATION, POOL_LABEL
from stacks.suggest import did_you_mean

Raw = Mapping[str, Any]

_OUR_TAINT: Final = {"key": EVICTING_TAINT, "effect": "NoSchedule"}
_SEPARATORS: Final = re.compile(r"[\s,]+")  # ids of notices hold neither
_GIVEN_BY_SERVER: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
_SAID_BY_KUBELET: Final = ("conditions", "images", "volumesInUse", "volumesAttached")


@dataclass(frozen=True, slots=True)
class Target:
    """A node that a drill takes, as it was before; `gpu_pods` are those that ran there."""

    name: str
    before: Raw
    gpu_pods: int

    @property
    def simulated(self) -> bool:
        """Whether there is no machine behind it."""
        return _labels(self.before).get(SIMULATED_LABEL) == "true"

    @property
    def cordoned(self) -> bool:
        """Whether somebody else keeps new pods away."""
        return bool((self.before.get("spec") or {}).get("unschedulable"))


def choose(nodes: Sequence[Raw], gpu_pods: Mapping[str, int], terms: DrillTerms, now: float) -> list[Target]:
    """The nodes to take: those with most running GPU pods first, equals in an order that the seed gives.

    Raises:
        ChaosError: there are fewer, and why.
    """
    pool = [node for node in nodes if _labels(node).get(POOL_LABEL) == terms.pool]
    if not pool:
        known = {_labels(node)[POOL_LABEL] for node in nodes if POOL_LABEL in _labels(node)}
        hint = did_you_mean(terms.pool, known) if known else f"; no node has the label {POOL_LABEL}"
        raise ChaosError(f"no node belongs to a pool {terms.pool}{hint}")
    ready = [node for node in pool if _is_ready(node)]
    free = [node for node in ready if not notices_of(node, now)]
    if len(free) < terms.nodes:
        without = f"{len(pool) - len(ready)} are not Ready, {len(ready) - len(free)} have a notice already"
        raise ChaosError(
            f"pool {terms.pool} has {len(free)} Ready nodes without a notice, fewer than --nodes {terms.nodes} "
            f"({len(pool)} in all; {without}); ask for fewer, or wait until they are free"
        )
    free.sort(key=_name)
    Random(terms.seed).shuffle(free)
    free.sort(key=lambda node: -gpu_pods.get(_name(node), 0))
    return [Target(_name(node), node, gpu_pods.get(_name(node), 0)) for node in free[: terms.nodes]]


def refuse_to_lose(targets: Iterable[Target]) -> None:
    """Refuse to delete Nodes whose deletion takes the machine along.

    Raises:
        ChaosError: naming the first.
    """
    for target in targets:
        if finalizers := target.before["metadata"].get("finalizers"):
            raise ChaosError(
                f"node {target.name} has the finalizer {finalizers[0]}: whoever set it would end the machine for good "
                "if the Node were deleted, and it could not be put back; leave --lose-nodes out"
            )


def noticed(node: Raw, notice: Notice) -> dict[str, Any]:
    """The patch that says a notice: annotation, taint and no new pods, and the record that we cordoned it."""
    spec = node.get("spec") or {}
    annotations: dict[str, str | None] = {
        NOTICES_ANNOTATION: notices_to_json([*_notices(node), notice]),
    }
    if not spec.get("unschedulable"):
        annotations[CORDONED_ANNOTATION] = notice.id
    taint = {**_OUR_TAINT, "value": worst([*_notices(node), notice]).kind.value}
    return _patch(node, annotations, [*_foreign_taints(node), taint], {"unschedulable": True})


def taken_back(node: Raw, ids: Collection[str]) -> dict[str, Any] | None:
    """The patch that takes these notices back, and what was set for them alone; None where nothing of it stands."""
    notices = _notices(node)
    left = [notice for notice in notices if not (notice.source == SOURCE and notice.id in ids)]
    recorded = _recorded(node)
    if len(left) == len(notices) and not recorded & set(ids):
        return None
    if left:
        taint = {**_OUR_TAINT, "value": worst(left).kind.value}
        record = recorded - set(ids) or {notice.id for notice in left} if recorded else set()
        annotations = {NOTICES_ANNOTATION: notices_to_json(left), CORDONED_ANNOTATION: ",".join(sorted(record)) or None}
        return _patch(node, annotations, [*_foreign_taints(node), taint], {})
    uncordons = {"unschedulable": None} if recorded else {}
    return _patch(node, {NOTICES_ANNOTATION: None, CORDONED_ANNOTATION: None}, _foreign_taints(node), uncordons)


def as_created(node: Raw) -> dict[str, Any]:
    """The object to create a node from that was deleted: all of it but what the API server and the kubelet write."""
    metadata = {name: value for name, value in node["metadata"].items() if name not in _GIVEN_BY_SERVER}
    status = {name: value for name, value in (node.get("status") or {}).items() if name not in _SAID_BY_KUBELET}
    spec = dict(node.get("spec") or {})
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status}


def drill_notices(node: Raw) -> list[str]:
    """The ids of all notices of drills on a node."""
    return [notice.id for notice in _notices(node) if notice.source == SOURCE]


def _notices(node: Raw) -> tuple[Notice, ...]:
    """What stands on a node.

    Raises:
        ChaosError: it cannot be read, so it is somebody else's, and nothing may be written over it.
    """
    text = _annotations(node).get(NOTICES_ANNOTATION)
    if text is None:
        return ()
    try:
        return notices_from_json(str(text))
    except ValueError as error:
        raise ChaosError(
            f"node {_name(node)}: its annotation {NOTICES_ANNOTATION} cannot be read ({error}); find out who wrote it, "
            "and remove it"
        ) from None


def _patch(
    node: Raw, annotations: Mapping[str, str | None], taints: Sequence[Raw], spec: Mapping[str, bool | None]
) -> dict[str, Any]:
    metadata = {"resourceVersion": node["metadata"]["resourceVersion"], "annotations": dict(annotations)}
    return {"metadata": metadata, "spec": {**spec, "taints": list(taints) or None}}


def _foreign_taints(node: Raw) -> list[Raw]:
    return [taint for taint in (node.get("spec") or {}).get("taints") or () if taint.get("key") != EVICTING_TAINT]


def _recorded(node: Raw) -> set[str]:
    return set(filter(None, _SEPARATORS.split(str(_annotations(node).get(CORDONED_ANNOTATION, "")))))


def _is_ready(node: Raw) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _name(node: Raw) -> str:
    return str(node["metadata"]["name"])


def _labels(node: Raw) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _annotations(node: Raw) -> Mapping[str, str]:
    return node["metadata"].get("annotations") or {}
