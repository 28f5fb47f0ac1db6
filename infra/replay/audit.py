"""Reads the API server's audit log into the few facts that prove what happened: who wrote what, and when.

It judges nothing (see infra.replay.histories and infra.replay.gate). Only answered, successful writes count, and no dry
runs. Rotated files are read before the current one. A line that is no event is counted, because evidence with holes
must say so; the last line of the current file may still be in the writing and is then ignored.

A writer that is killed before the answer is logged with 504, whether its write happened or not. Of the agent's such
writes only what they asked for is told; whether it happened shows in what others see next.

A write counts as the agent's only if its service account sent it: an impersonator is not the agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from infra.replay.errors import EvidenceError
from runtime.clock import parse_time
from stacks.labels import AGENT_NAME, FLAVOR_LABEL, GATE_NAME, QUEUE_LABEL, SYSTEM_NAMESPACE, VERDICT_ANNOTATION

AGENT_USER: Final = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{AGENT_NAME}"
"""The agent's name in the audit log."""

_QUEUE_POINTER: Final = "/metadata/labels/" + QUEUE_LABEL.replace("~", "~0").replace("/", "~1")
_WORKLOADS: Final = ("kueue.x-k8s.io", "workloads")
_JOBS: Final = ("batch", "jobs")
_PODS: Final = ("", "pods")
_UNANSWERED: Final = 504

Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Write:
    """What every fact has: when the server received the request, in real seconds, and who sent it."""

    at: float
    user: str
    by_agent: bool
    namespace: str


@dataclass(frozen=True, slots=True)
class PodCreated(Write):
    """A pod was created. `stem` is its name, or the part of it before the server's suffix."""

    stem: str
    job: str | None
    job_uid: str | None
    flavor: str | None


@dataclass(frozen=True, slots=True)
class PodBound(Write):
    """A pod was bound to a node."""

    pod: str
    node: str


@dataclass(frozen=True, slots=True)
class JobQueue(Write):
    """A write that says which queue a Job belongs to; `created` where it made the Job."""

    job: str
    queue: str
    created: bool


@dataclass(frozen=True, slots=True)
class WorkloadWritten(Write):
    """A Workload after a write. `says_ready`: the request itself set our check to Ready."""

    version: int
    workload: Raw
    says_ready: bool


@dataclass(frozen=True, slots=True)
class ReadyAsked(Write):
    """The agent asked for Ready on exactly this version of a Workload and was gone before the answer."""

    name: str
    version: int


@dataclass(frozen=True, slots=True)
class VerdictAsked(Write):
    """The agent asked to write a verdict on a Workload and was gone before the answer."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkloadDeleted(Write):
    """Somebody deleted a Workload."""

    name: str


Fact = PodCreated | PodBound | JobQueue | WorkloadWritten | ReadyAsked | VerdictAsked | WorkloadDeleted


@dataclass(slots=True)
class AuditReport:
    """How much was read; `unreadable` lines are holes in the evidence."""

    lines: int = 0
    unreadable: int = 0


def read_audit(log: Path, report: AuditReport) -> Iterator[Fact]:
    """Yield the facts of a log and of its rotated files, in the order they were written.

    Raises:
        EvidenceError: when the log cannot be read.
    """
    rotated = sorted(path for path in log.parent.glob(f"{log.stem}-*{log.suffix}") if path != log)
    for path in (*rotated, log):
        try:
            with path.open(encoding="utf-8", errors="replace") as lines:
                yield from facts(lines, report)
        except OSError as error:
            raise EvidenceError(
                f"{path}: cannot be read ({error.strerror or error}); without the audit log nothing can be proved"
            ) from error


def facts(lines: Iterable[str], report: AuditReport) -> Iterator[Fact]:
    """Yield the facts of audit lines."""
    for line in lines:
        if not line.strip():
            continue
        report.lines += 1
        try:
            event = json.loads(line)
            found = _fact(event)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            if line.endswith("\n"):
                report.unreadable += 1
            continue
        if found is not None:
            yield found


def _fact(event: Raw) -> Fact | None:
    code = event["responseStatus"]["code"]
    if event["stage"] != "ResponseComplete" or not (200 <= code < 300 or code == _UNANSWERED):
        return None
    if "dryRun" in parse_qs(urlsplit(event.get("requestURI") or "").query):
        return None
    reference = event.get("objectRef") or {}
    kind = (reference.get("apiGroup") or "", reference.get("resource"))
    verb, subresource = event["verb"], reference.get("subresource") or ""
    user = event["user"]["username"]
    at, namespace = parse_time(event["requestReceivedTimestamp"]), reference.get("namespace") or ""
    write = (at, user, user == AGENT_USER and not event.get("impersonatedUser"), namespace)
    name = reference.get("name") or ""
    if code == _UNANSWERED:
        return _unanswered(write, (*kind, subresource), name, event.get("requestObject"))
    if kind == _PODS and verb == "create":
        request = event["requestObject"]
        if subresource == "binding":
            return PodBound(*write, name, request["target"]["name"])
        return _pod(write, request, name) if not subresource else None
    if kind == _JOBS and not subresource and verb in ("create", "update", "patch"):
        return _job(write, verb, name, event.get("requestObject"))
    if kind == _WORKLOADS and verb == "delete" and not subresource:
        return WorkloadDeleted(*write, name)
    if kind == _WORKLOADS and verb in ("create", "update", "patch"):
        workload = event["responseObject"]
        if workload["kind"] == "PartialObjectMetadata":
            return None  # the garbage collector's; it changes and asks for metadata alone
        says_ready = "Ready" in _states((event.get("requestObject") or {}).get("status"))
        return WorkloadWritten(*write, int(workload["metadata"]["resourceVersion"]), workload, says_ready)
    return None


def _unanswered(write: tuple[float, str, bool, str], kind: tuple[Any, ...], name: str, request: Any) -> Fact | None:
    if not write[2]:
        return None
    if kind == (*_JOBS, ""):
        return _job(write, "patch", name, request)
    if kind == (*_WORKLOADS, "status") and "Ready" in _states((request or {}).get("status")):
        return ReadyAsked(*write, name, int(request["metadata"]["resourceVersion"]))
    if kind == (*_WORKLOADS, "") and VERDICT_ANNOTATION in _annotations(request):
        return VerdictAsked(*write, name)
    return None


def _pod(write: tuple[float, str, bool, str], pod: Raw, name: str) -> PodCreated:
    metadata = pod["metadata"]
    owner: Raw = next((one for one in metadata.get("ownerReferences") or [] if one.get("kind") == "Job"), {})
    flavor = (pod["spec"].get("nodeSelector") or {}).get(FLAVOR_LABEL)
    stem = name or metadata.get("name") or metadata.get("generateName") or ""
    return PodCreated(*write, stem, owner.get("name"), owner.get("uid"), flavor)


def _job(write: tuple[float, str, bool, str], verb: str, name: str, request: Any) -> JobQueue | None:
    queue = _queue(request)
    name = name or (request["metadata"]["name"] if isinstance(request, Mapping) else "")
    return JobQueue(*write, name, queue, verb == "create") if queue is not None else None


def _queue(request: Any) -> str | None:
    """The queue that a request sets: in an object, a merge patch or a JSON patch; None where it says nothing."""
    if isinstance(request, Mapping):
        labels = (request.get("metadata") or {}).get("labels") or {}
        return labels.get(QUEUE_LABEL)
    if isinstance(request, list):
        values = [step.get("value") for step in request if step.get("path") == _QUEUE_POINTER]
        return values[-1] if values else None
    return None


def _annotations(request: Any) -> Raw:
    return (request.get("metadata") or {}).get("annotations") or {} if isinstance(request, Mapping) else {}


def _states(status: Raw | None) -> list[str]:
    checks = (status or {}).get("admissionChecks") or []
    return [check.get("state", "") for check in checks if check.get("name") == GATE_NAME]


def gate_state(workload: Raw) -> str | None:
    """The state of our check on a Workload, None where it has none."""
    states = _states(workload.get("status"))
    return states[0] if states else None
