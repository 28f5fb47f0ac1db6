"""The JSON that an eviction leaves on objects: the marker on a Workload, the request on pods, and their answers.

A key that is not known is ignored, and one that is missing has its default, so what an older or a newer version wrote
can be read; `version` rises only where an older reader would do harm. What is read is bounded first, because pods
answer what they like.

Invariants: a marker that is written can be read, whatever is in it, since a marker that cannot be read makes a stopped
job look as if its owner had stopped it; what does not fit is left out, first the url, then the last of the nodes. Every
error is a ValueError whose text is a sentence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final

from runtime.eviction.notice import NoticeKind
from runtime.eviction.steps import CheckpointRequest
from runtime.eviction.view import Answer, Marker, Phase

VERSION: Final = 1

LONGEST_MARKER_BYTES: Final = 8_192
"""Of the 256 KiB that Kubernetes allows for all annotations of an object."""

LONGEST_ANSWER_BYTES: Final = 4_096
"""As long as a termination message may be."""

LONGEST_TEXT: Final = 1_024
"""Characters of one text: a node's name has at most 253, and an object's address in a store about this many."""

LONGEST_NAME: Final = 253
"""Characters kept of a name, as many as Kubernetes allows."""

MOST_NODES: Final = 64
"""Nodes that a marker names; a larger gang is evicted all the same, since its pods say where it is."""

LATEST_TIME: Final = 253_402_300_800.0
"""The year 10000, where dates as people write them end."""

LARGEST_NUMBER: Final = 1e15
"""Beyond it, numbers of JSON lose whole units in some readers."""

_DEFAULTS: Final = {
    **dict.fromkeys(("request", "flavor", "url"), ""),
    **dict.fromkeys(("attempts", "planned"), 0),
    "certain": True,
    "accounted": False,
}
_TIMES: Final = (
    *("deadline", "asked_at", "stopped_at", "gone_at"),
    *("answer_at", "noticed_at", "requeued_at", "works_since"),
)


def marker_to_json(marker: Marker) -> str:
    """The text of the annotation. What is at its default is left out."""
    nodes = sorted({_name(node) for node in marker.nodes})[:MOST_NODES]
    values: dict[str, object] = {
        "version": VERSION,
        "phase": marker.phase.value,
        "notice": _name(marker.notice),
        "kind": marker.kind.value,
        "nodes": nodes,
        "request": _name(marker.request),
        "flavor": _name(marker.flavor),
        "url": marker.url if len(json.dumps(marker.url)) <= LONGEST_TEXT else "",
        "step": marker.step if marker.step is not None and 0 <= marker.step <= LARGEST_NUMBER else None,
        "attempts": max(0, marker.attempts),
        "planned": max(0, marker.planned),
        "lost_gpu_seconds": _bounded(marker.lost_gpu_seconds, LARGEST_NUMBER) or 0.0,
        "owed_gpu_seconds": _bounded(marker.owed_gpu_seconds, LARGEST_NUMBER) or 0.0,
        "certain": marker.certain,
        "accounted": marker.accounted,
        **{name: _bounded(getattr(marker, name), LATEST_TIME) for name in _TIMES},
    }
    kept = {name: value for name, value in values.items() if value != _DEFAULTS.get(name)}
    while len(text := _compact(kept)) > LONGEST_MARKER_BYTES and nodes:
        nodes.pop()
    return text


def marker_from_json(text: str) -> Marker:
    """Read the annotation.

    Raises:
        ValueError: when it is none, or was written by a version that this one must not act upon.
    """
    entry = _object(text, LONGEST_MARKER_BYTES, "an eviction marker")
    nodes = entry.get("nodes", [])
    if not isinstance(nodes, list) or len(nodes) > MOST_NODES:
        raise ValueError(f"the nodes of an eviction marker must be a list of at most {MOST_NODES} names")
    times = {name: _time(entry, name) for name in _TIMES}
    return Marker(
        phase=_phase(entry),
        notice=_text(entry, "notice"),
        kind=_kind(entry),
        nodes=tuple(sorted({_text({"nodes": name}, "nodes") for name in nodes})),
        request=_text(entry, "request"),
        step=_count(entry, "step"),
        url=_text(entry, "url"),
        flavor=_text(entry, "flavor"),
        attempts=_count(entry, "attempts") or 0,
        planned=_count(entry, "planned") or 0,
        lost_gpu_seconds=_number(entry, "lost_gpu_seconds", LARGEST_NUMBER) or 0.0,
        owed_gpu_seconds=_number(entry, "owed_gpu_seconds", LARGEST_NUMBER) or 0.0,
        certain=_truth(entry, "certain", default=True),
        accounted=_truth(entry, "accounted", default=False),
        **times,
    )


def request_to_json(request: CheckpointRequest) -> str:
    """What pods are shown, and what their hooks are sent: version 1 of the contract in docs/checkpointing.md."""
    deadline = None if request.deadline is None else round(request.deadline, 3)
    reason, certain = request.kind.value, request.certain
    return _compact(
        {"version": VERSION, "request": request.id, "deadline": deadline, "reason": reason, "certain": certain}
    )


def asked_in(text: str) -> str:
    """The id in a request that a pod was shown; empty for anything else, so that it is shown one again."""
    try:
        return _text(_object(text, LONGEST_ANSWER_BYTES, "a request to save"), "request")
    except ValueError:
        return ""


def answer_from_json(text: str) -> Answer:
    """Read what a pod answered.

    Raises:
        ValueError: when it is no answer, or says nothing that can be believed.
    """
    entry = _object(text, LONGEST_ANSWER_BYTES, "an answer of a pod")
    at = _time(entry, "at")
    if at is None:
        raise ValueError("an answer of a pod must say when it saved: 'at', in seconds since the epoch")
    return Answer(_text(entry, "request"), _count(entry, "step"), _text(entry, "url"), at)


def answer_to_json(answer: Answer) -> str:
    """What a hook answered, in the form in which it is kept on its pod."""
    step, url, at = answer.step, answer.url, round(answer.at, 3)
    return _compact({"version": VERSION, "request": answer.request, "step": step, "url": url, "at": at})


def _object(text: str, longest: int, what: str) -> dict[str, Any]:
    if len(text) > longest or len(text.encode(errors="replace")) > longest:
        raise ValueError(f"{what} has more than {longest} bytes; nothing of it is read")
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{what} must be a JSON object; this is not JSON: {_short(text)} ({error})") from None
    if not isinstance(entry, dict):
        raise ValueError(f"{what} must be a JSON object, not {_short(text)}")
    version = entry.get("version", VERSION)
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise ValueError(f"the version of {what} must be a whole number from 1, not {_short(version)}")
    if version > VERSION:
        raise ValueError(f"{what} is of version {_short(version)}; this agent reads up to {VERSION}: upgrade it")
    return entry


def _phase(entry: Mapping[str, Any]) -> Phase:
    value = entry.get("phase")
    try:
        return Phase(value if isinstance(value, str) else "")
    except ValueError:
        known = ", ".join(Phase)
        raise ValueError(f"the phase of an eviction marker is {_short(value)}, not one of {known}") from None


def _kind(entry: Mapping[str, Any]) -> NoticeKind:
    value = entry.get("kind")
    try:
        return NoticeKind(value if isinstance(value, str) else "")
    except ValueError:
        known = ", ".join(NoticeKind)
        raise ValueError(f"the kind of an eviction marker is {_short(value)}, not one of {known}") from None


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name, "")
    value = "" if value is None else value
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        raise ValueError(f"{name!r} must be a text of at most {LONGEST_TEXT} characters, not {_short(value)}")
    return value


def _truth(entry: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = entry.get(name, default)
    if not isinstance(value, bool):
        raise ValueError(f"{name!r} must be true or false, not {_short(value)}")
    return value


def _number(entry: Mapping[str, Any], name: str, largest: float) -> float | None:
    value = entry.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= largest:
        raise ValueError(f"{name!r} must be a number from 0 to {largest:.0f}, not {_short(value)}")
    return float(value)


def _time(entry: Mapping[str, Any], name: str) -> float | None:
    return _number(entry, name, LATEST_TIME)


def _count(entry: Mapping[str, Any], name: str) -> int | None:
    number = _number(entry, name, LARGEST_NUMBER)
    if number is not None and not number.is_integer():
        raise ValueError(f"{name!r} must be a whole number, not {number}")
    return None if number is None else int(number)


def _bounded(value: float | None, largest: float) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return round(min(max(value, 0.0), largest), 3)


def _name(text: str) -> str:
    """A name as Kubernetes has them: each character one byte, and so many at most."""
    return text.encode("ascii", "replace").decode()[:LONGEST_NAME]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _compact(values: Mapping[str, object]) -> str:
    return json.dumps(values, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
