"""The closing summary as text for people, with the command that verifies each line, and as JSON for programs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from infra.replay.delays import Delay
from infra.replay.gate import Violation
from infra.replay.jobs import REPLAY_LABEL
from infra.replay.order import LASTING_SECONDS, Missed
from infra.replay.summary import AT_ONCE_SECONDS, Spend, Summary
from infra.replay.tally import quantile
from stacks.labels import FLAVOR_LABEL, GPU_RESOURCE, VERDICT_ANNOTATION
from stacks.quantities import format_duration, format_usd

_EXAMPLES = 3


def to_dict(summary: Summary) -> dict[str, Any]:
    """The summary as JSON values; amounts of money are text."""
    return {name: _plain(value) for name, value in dataclasses.asdict(summary).items()} | {"exact": summary.exact}


def lines(summary: Summary) -> list[str]:
    """The summary for a person: each claim, and below it the command that shows it."""
    groups = {
        f"Replay {summary.run_id}": _jobs,
        "Waits, in fleet time": _waits,
        "Money": _money,
        f"Exactness, from {summary.evidence.audit_lines:,} lines of the audit log": _exactness,
        "Notes": _notes,
    }
    said = {heading: list(group(summary)) for heading, group in groups.items()}
    return [
        line for heading, texts in said.items() if texts for line in ("", heading, *(f"  {text}" for text in texts))
    ]


def _jobs(summary: Summary) -> Iterator[str]:
    placed = summary.placed
    where = ", ".join(f"{flavor} {count}" for flavor, count in placed.by_flavor.items()) or "none"
    yield (
        f"{placed.total} jobs in {summary.real_seconds:.0f} s "
        f"({_fleet(summary.real_seconds * summary.speed)} of fleet time)"
    )
    yield f"jobs: {placed.local} ran locally, {placed.cloud} in the cloud ({where})"
    yield _verify(
        f"kubectl get workloads -A -o custom-columns='{_columns('flavor', 'finished')}' | grep {summary.run_id}"
    )
    ends = f"{placed.succeeded} succeeded, {placed.failed} failed, {placed.running} running, {placed.pending} pending"
    yield f"ends: {ends}{f', {placed.stopped} stopped' if placed.stopped else ''}"
    yield _verify(f"kubectl get jobs -A -l {REPLAY_LABEL}={summary.run_id}")
    yield f"at once: {summary.started_at_once} jobs started locally within {AT_ONCE_SECONDS:g} s (real) of arrival"
    for name, count in summary.stayed_local.items():
        yield f"class {name} never goes to the cloud: {count} of its jobs did"


def _waits(summary: Summary) -> Iterator[str]:
    for waits in summary.waits:
        mean, p95 = _fleet(waits.mean_seconds), _fleet(waits.p95_seconds)
        yield f"class {waits.job_class}: mean {mean}, p95 {p95} ({waits.jobs} jobs)"
    yield _verify(f"kubectl get workloads -A -o custom-columns='{_columns('class', 'created', 'admitted')}'")


def _money(summary: Summary) -> Iterator[str]:
    for spend in summary.spend:
        yield _spend(spend)
    yield _verify(
        f"kubectl get workloads -A -o custom-columns='{_columns('flavor', 'gpus', 'admitted', 'finished_at')}'"
    )
    yield f"    ledger: {summary.evidence.ledger}"
    for held in summary.held:
        at = datetime.fromtimestamp(held.first_at, UTC).strftime("%H:%M:%S")
        yield (
            f"budget reached and held: team {held.team}, first at {at} UTC, {held.jobs} jobs held "
            f"({held.ran_locally} ran locally later, {held.ran_in_cloud} in the cloud once money was free)"
        )
    if not summary.held:
        yield "budget reached and held: no job was held by a budget"
    yield _verify("kubectl get events -A --field-selector reason=BurstHeldByBudget")
    verdict = VERDICT_ANNOTATION.replace(".", r"\.")
    yield _verify(
        f"kubectl get workloads -A -o custom-columns='NAME:.metadata.name,VERDICT:.metadata.annotations.{verdict}'"
    )


def _spend(spend: Spend) -> str:
    who = "fleet" if spend.team is None else f"team {spend.team}"
    limit = "no budget of its own" if spend.limit_usd is None else f"budget {format_usd(spend.limit_usd)}"
    still = f", {spend.open_attempts} attempts still open" if spend.open_attempts else ""
    return (
        f"spend of {who}: {format_usd(spend.ledger_usd)} by the ledger, {format_usd(spend.recomputed_usd)} from the "
        f"Workloads' conditions (difference {_signed(spend.difference_usd)}{still}); "
        f"most ever spent + committed {format_usd(spend.highest_usd)}, {limit}"
    )


def _exactness(summary: Summary) -> Iterator[str]:
    exactness, gate = summary.exactness, summary.exactness.gate
    yield f"cloud starts: {gate.pods} pods of {gate.jobs} jobs"
    yield from _violations("misroutes, cloud starts on another flavor than the job was released to", gate.misroutes)
    yield from _violations("cloud starts without a verdict of the agent", gate.untold)
    yield from _violations("cloud starts not passed by the gate", gate.unproven)
    yield from _violations("answers of the gate that are not the agent's", gate.forged)
    selector = FLAVOR_LABEL.replace(".", r"\.")
    yield _verify(f"kubectl get pods -A -o custom-columns='NAME:.metadata.name,FLAVOR:.spec.nodeSelector.{selector}'")
    yield f"    audit log: {summary.evidence.audit_log}"
    moves = exactness.moves
    yield (
        f"moves by the agent: {moves.releases} released, {moves.retargets} to another flavor, {moves.recalls} recalled"
        f"; by others: {moves.by_others}"
    )
    yield from _missed("cloud starts while the job would have fitted locally", exactness.missed_local)
    yield from _missed("older jobs of the same team and priority passed over", exactness.inversions)
    alike, unfair = sum(one.alike for one in exactness.inversions), sum(one.unfair for one in exactness.inversions)
    yield f"of these, of the same class and size: {alike}; where Kueue had both in its queues for a second: {unfair}"
    yield f"older jobs of the same class and size passed over: {exactness.inverted_share:.1%} of all reservations"
    yield _verify("kubectl get workloads -A --sort-by=.metadata.creationTimestamp")
    yield _delays("eligible to running while quota is free", [one for one in exactness.delays if one.quota_free])
    crowded = [one for one in exactness.delays if not one.quota_free]
    if crowded:
        yield _delays("eligible to running where quota was short", crowded)
    yield _verify("kubectl get events -A --field-selector reason=ReleasedToBurst")
    yield _delays("added by the gate, reserved to Ready", exactness.gate_delays)
    yield from _etas(summary)


def _violations(what: str, found: Sequence[Violation]) -> Iterator[str]:
    yield f"{what}: {len(found)} (must be 0)"
    for violation in found[:_EXAMPLES]:
        yield f"    {violation.namespace}/{violation.subject}: {violation.reason}"


def _delays(what: str, found: Sequence[Delay]) -> str:
    seconds = sorted(one.seconds for one in found)
    p50, p95 = quantile(seconds, 0.5), quantile(seconds, 0.95)
    return f"{what}, {len(seconds)} jobs: p50 {p50:.2f} s, p95 {p95:.2f} s (real)"


def _etas(summary: Summary) -> Iterator[str]:
    errors = sorted(abs(one.error_seconds) for one in summary.exactness.eta_errors)
    if errors:
        late = sum(one.error_seconds > 0 for one in summary.exactness.eta_errors)
        yield (
            f"first forecast against start, {len(errors)} jobs, fleet time: off by {_fleet(quantile(errors, 0.5))} "
            f"(median), {_fleet(quantile(errors, 0.9))} (p90); {late} started later than forecast"
        )


def _missed(what: str, found: Sequence[Missed]) -> Iterator[str]:
    lasting = [one for one in found if one.lasted_seconds >= LASTING_SECONDS]
    yield f"{what}: {len(found)}, of which for {LASTING_SECONDS:g} s (real) or more: {len(lasting)}"
    for one in lasting[:_EXAMPLES]:
        other = f" before {one.other}" if one.other else ""
        yield f"    {one.namespace}/{one.job}{other} ({one.lasted_seconds:.1f} s)"


def _notes(summary: Summary) -> Iterator[str]:
    if not summary.complete:
        yield "not complete: some jobs had not ended when this was written"
    if summary.evidence.audit_unreadable:
        yield f"the evidence has holes: {summary.evidence.audit_unreadable} lines of the audit log cannot be read"
    for name in summary.evidence.ledger_unreadable[:_EXAMPLES]:
        yield f"the evidence has holes: {name} of the ledger cannot be read"
    yield from summary.notes


_COLUMNS: dict[str, str] = {
    "flavor": rf"FLAVOR:.status.admission.podSetAssignments[0].flavors.{GPU_RESOURCE}".replace("a.c", r"a\.c"),
    "gpus": rf"GPUS:.status.admission.podSetAssignments[0].resourceUsage.{GPU_RESOURCE}".replace("a.c", r"a\.c"),
    "class": "CLASS:.spec.priorityClassRef.name",
    "created": "CREATED:.metadata.creationTimestamp",
    "admitted": 'ADMITTED:.status.conditions[?(@.type=="Admitted")].lastTransitionTime',
    "finished": 'FINISHED:.status.conditions[?(@.type=="Finished")].reason',
    "finished_at": 'FINISHED:.status.conditions[?(@.type=="Finished")].lastTransitionTime',
}


def _columns(*names: str) -> str:
    return ",".join(["NAME:.metadata.name", *(_COLUMNS[name] for name in names)])


def _verify(command: str) -> str:
    return f"    {command}"


def _fleet(seconds: float) -> str:
    return format_duration(timedelta(seconds=round(seconds)))


def _signed(amount: Decimal) -> str:
    return f"-{format_usd(-amount)}" if amount < 0 else format_usd(amount)


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
