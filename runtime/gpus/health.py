"""Whether the GPUs of a node are fit for jobs, by what they say of themselves and what was reported of them. Pure.

Failed means that no new job should come, degraded that one may come and somebody should look. Neither ends a job: a
fault that hits one does so by itself, and what runs on the other GPUs of the node goes on.

XIDs that an application causes (13, 31, 43, 45, 68, 109, as NVIDIA's device plugin sorts them) are no fault of a GPU;
nor is any other that is not in the table, which is counted and nothing more.

Invariants: a fault stands until the machine was started anew, or the driver has said for a while that nothing need be
done; a GPU that gives no figure is not called ill for that; one verdict for the node, that of its worst finding.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runtime.gpus.reader import EventKind, GpuEvent, Health


class State(StrEnum):
    """How a GPU is; in the order from good to bad."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    FAILED = "failed"


_RANK: Final = {state: rank for rank, state in enumerate(State)}

XIDS: Final[Mapping[int, tuple[State, str]]] = {
    48: (State.FAILED, "uncorrectable error of memory"),
    63: (State.DEGRADED, "a row of memory is to be replaced at the next reset"),
    64: (State.FAILED, "a row of memory could not be replaced"),
    74: (State.DEGRADED, "error of NVLink"),
    79: (State.FAILED, "fell off the bus"),
    94: (State.DEGRADED, "uncorrectable error of memory, contained: it ended one application"),
    95: (State.FAILED, "uncorrectable error of memory, not contained"),
    119: (State.FAILED, "its own processor (GSP) does not answer"),
    120: (State.FAILED, "its own processor (GSP) failed"),
    140: (State.FAILED, "error of memory that it did not recover from"),
}
"""Faults of a GPU by XID: NVIDIA, "XID Errors", with what each asks for: a reset or repair, or a look at leisure."""

_RECOVERY_FAILED: Final = ("gpu-reset", "node-reboot", "drain-and-reset", "bus-reset", "system-reboot")

SETTLED_SECONDS: Final = 60.0
"""How long after a fault the driver's word counts that nothing need be done: it may be the later of the two."""

HOT_READINGS: Final = 3
"""Readings in a row with the clocks cut: one alone is a peak."""


@dataclass(frozen=True, slots=True)
class Fault:
    """An XID of the table that was reported."""

    uuid: str
    xid: int
    at: float
    """Seconds since the epoch, of the first time."""
    boot: str
    """The boot of the machine in which that was (/proc/sys/kernel/random/boot_id)."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong with one GPU."""

    uuid: str
    state: State
    reason: str
    """One word, as Kubernetes wants it for conditions."""
    text: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the GPUs of a node are together."""

    state: State
    reason: str
    message: str
    findings: tuple[Finding, ...] = ()

    def of(self, uuid: str) -> State:
        """How one of them is."""
        states = (finding.state for finding in self.findings if finding.uuid == uuid)
        return max(states, key=_RANK.__getitem__, default=State.HEALTHY)


def faults_of(events: Iterable[GpuEvent], now: float, boot: str) -> Iterator[Fault]:
    """The faults among what was reported."""
    for event in events:
        if event.kind is EventKind.XID and event.number in XIDS:
            yield Fault(event.uuid, event.number, now, boot)


def standing(faults: Iterable[Fault], healths: Sequence[Health], now: float, boot: str) -> tuple[Fault, ...]:
    """The faults that still stand: each XID of a GPU once, since its first time."""
    well = {health.uuid for health in healths if health.recovery == "none"}
    found: dict[tuple[str, int], Fault] = {}
    for fault in sorted(faults, key=lambda fault: (fault.at, fault.uuid, fault.xid)):
        over = fault.boot != boot or (fault.uuid in well and now - fault.at >= SETTLED_SECONDS)
        if not over:
            found.setdefault((fault.uuid, fault.xid), fault)
    return tuple(found.values())


def judge(healths: Sequence[Health], faults: Sequence[Fault], hot: Mapping[str, int]) -> Verdict:
    """The verdict, by what each GPU says, the faults that stand, and for how many readings in a row it was cut down."""
    findings = [finding for health in healths for finding in _findings(health, hot.get(health.uuid, 0))]
    findings += [Finding(fault.uuid, XIDS[fault.xid][0], f"Xid{fault.xid}", XIDS[fault.xid][1]) for fault in faults]
    findings.sort(key=lambda finding: (-_RANK[finding.state], finding.uuid, finding.reason))
    if not findings:
        return Verdict(State.HEALTHY, "Healthy", f"{len(healths)} GPUs without a fault")
    worst = findings[0]
    message = "; ".join(f"{finding.uuid or 'a GPU'}: {finding.text} ({finding.reason})" for finding in findings)
    return Verdict(worst.state, worst.reason, message, tuple(findings))


def _findings(health: Health, hot: int) -> Iterator[Finding]:
    def finding(state: State, reason: str, text: str) -> Finding:
        return Finding(health.uuid, state, reason, text)

    if health.lost:
        yield finding(State.FAILED, "GpuLost", "does not answer")
    if health.reset_required:
        yield finding(State.FAILED, "ResetRequired", "demands a reset")
    if health.recovery in _RECOVERY_FAILED:
        yield finding(State.FAILED, "RecoveryAction", f"the driver asks for {health.recovery}")
    elif health.recovery not in (None, "none"):
        yield finding(State.DEGRADED, "RecoveryAction", f"the driver asks for {health.recovery}")
    if health.remap_failed:
        yield finding(State.FAILED, "RowRemapFailed", "a row of memory could not be replaced")
    if health.remap_pending:
        yield finding(State.DEGRADED, "RowRemapPending", "a row of memory is to be replaced at the next reset")
    if hot >= HOT_READINGS:
        reason = "ThermalSlowdown" if health.thermal_slowdown else "PowerBrake"
        why = "for its temperature" if health.thermal_slowdown else "by the power supply"
        yield finding(State.DEGRADED, reason, f"clocks are cut {why}")
