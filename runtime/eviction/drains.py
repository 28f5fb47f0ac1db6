"""Planned work on a node: whoever has it asks that the node be emptied by a time, and learns when it is.

A request is one taint on the Node, so it can be made, seen and taken back by hand, and outlives every agent:

    gpufleet.dev/drain=driver-upgrade.1790000000.1790001800:NoSchedule

that is the kind, when it was asked for and, if there is one, the deadline, in seconds since the epoch. The taint keeps
new jobs away by itself; the agent takes it for a certain notice (`drains_of`), so jobs leave by the same sequence as
from a node that a provider takes. It stays until it is taken back; before the jobs were stopped, that calls everything
off. Administrators and the agent have a taint each, so neither ends what the other began.

This module stops nothing, and does not know who leads: an agent that calls it must. `holders` asks the API server
itself, since a cache may be behind; a pod that cannot be read counts as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from runtime.errors import Conflict, NotFound
from runtime.eviction.notice import LATEST_TIME, LONGEST_ID, Certainty, Notice, NoticeKind
from runtime.kube import NODES, PODS, Kube
from runtime.routing.requests import holds_gpus
from stacks.labels import AGENT_DRAIN_TAINT, DRAIN_REASON_ANNOTATION, DRAIN_TAINT

Raw = Mapping[str, Any]

KINDS: Final = (NoticeKind.MAINTENANCE, NoticeKind.UPGRADE, NoticeKind.REPAIR, NoticeKind.LAYOUT)
"""What a node is emptied for. The other kinds mean that somebody takes it away."""

_SOURCES: Final = {DRAIN_TAINT: "drain", AGENT_DRAIN_TAINT: "drain-by-agent"}
_EFFECT: Final = "NoSchedule"
_ENDED: Final = ("Succeeded", "Failed")
_TRIES: Final = 5
"""Kubelets and controllers write nodes every few seconds; five conflicts in a row are no accident."""


@dataclass(frozen=True, slots=True)
class Drain:
    """A request to empty a node; times in real seconds since the epoch, kept to the second."""

    kind: NoticeKind
    asked_at: float
    deadline: float | None = None

    @property
    def value(self) -> str:
        """The value of the taint."""
        times = (self.asked_at, self.deadline)
        return ".".join([self.kind.value, *(str(int(at)) for at in times if at is not None)])


def drains_of(raw_node: Raw, now: float) -> tuple[Notice, ...]:
    """The notices that follow from requests on a Node, as it was read at a time.

    A value that nobody can read is a warning only: new jobs stay away, and none is stopped. No value at all is a
    request without a deadline, for maintenance.
    """
    found = []
    for taint in (raw_node.get("spec") or {}).get("taints") or ():
        source = _SOURCES.get(str(taint.get("key")))
        if source is None:
            continue
        value = str(taint.get("value") or "")
        drain = _drain(value) if value else Drain(NoticeKind.MAINTENANCE, now)
        certainty = Certainty.LIKELY if drain is None else Certainty.CERTAIN
        drain = drain or Drain(NoticeKind.MAINTENANCE, now)
        name = f"{source}-{drain.value}" if value and certainty is Certainty.CERTAIN else source
        reason = str(((raw_node.get("metadata") or {}).get("annotations") or {}).get(DRAIN_REASON_ANNOTATION, ""))
        detail = reason if source == _SOURCES[DRAIN_TAINT] else ""
        found.append(Notice(name[:LONGEST_ID], drain.kind, source, certainty, drain.asked_at, drain.deadline, detail))
    return tuple(found)


async def ask(kube: Kube, node: str, drain: Drain, *, key: str = AGENT_DRAIN_TAINT, reason: str | None = None) -> None:
    """Ask that a node be emptied; what was asked under this key before is replaced.

    Raises:
        NotFound: there is no such node.
        Conflict: it changes faster than it can be patched.
    """
    taint = {"key": key, "value": drain.value, "effect": _EFFECT}
    await _patch(kube, node, key, taint, reason)


async def take_back(kube: Kube, node: str, *, key: str = AGENT_DRAIN_TAINT) -> bool:
    """Take the request back; says whether there was one.

    Raises:
        NotFound: there is no such node.
        Conflict: it changes faster than it can be patched.
    """
    return await _patch(kube, node, key, None, None)


async def holders(kube: Kube, node: str) -> list[str]:
    """The pods that hold GPUs of the node, or parts of them, as NAMESPACE/NAME; none when the node is empty.

    It does not matter whose they are, but pods of DaemonSets belong to the node.
    """
    raws = await kube.list(PODS, fields=f"spec.nodeName={node}")
    return sorted(f"{raw['metadata'].get('namespace')}/{raw['metadata']['name']}" for raw in raws if _holds(raw))


async def _patch(kube: Kube, name: str, key: str, taint: Raw | None, reason: str | None) -> bool:
    for last in (False,) * (_TRIES - 1) + (True,):
        found = await kube.list(NODES, fields=f"metadata.name={name}")
        if not found:
            raise NotFound(f"there is no node {name}")
        metadata, taints = found[0]["metadata"], (found[0].get("spec") or {}).get("taints") or []
        others: Sequence[Raw] = [one for one in taints if one.get("key") != key]
        if taint is None and len(others) == len(taints):
            return False
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "spec": {"taints": [*others, *([taint] if taint else [])] or None},
        }
        if key == DRAIN_TAINT:
            body["metadata"]["annotations"] = {DRAIN_REASON_ANNOTATION: reason or None}
        try:
            await kube.merge(NODES, None, name, body)
        except Conflict:
            if last:
                raise
        else:
            break
    return True


def _drain(value: str) -> Drain | None:
    kind, *times = value.split(".")
    if kind not in KINDS or len(times) not in (1, 2) or not all(_is_time(text) for text in times):
        return None
    asked_at, *deadlines = (float(text) for text in times)
    return Drain(NoticeKind(kind), asked_at, deadlines[0] if deadlines else None)


def _is_time(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= len(str(int(LATEST_TIME))) and float(text) < LATEST_TIME


def _holds(raw: Raw) -> bool:
    """Whether a pod has not ended and asks for GPUs or parts of them, or for something nobody can read."""
    owners = raw["metadata"].get("ownerReferences") or ()
    if (raw.get("status") or {}).get("phase") in _ENDED or any(one.get("kind") == "DaemonSet" for one in owners):
        return False
    try:
        return holds_gpus(raw.get("spec") or {})
    except (ValueError, TypeError, AttributeError):
        return True
