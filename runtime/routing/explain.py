"""Verdicts in words for people, and as the short JSON that the Workload's annotation carries.

The words are made from the recorded facts alone, so a verdict read back from a cluster says the same as a fresh one.
Nothing here judges; a verdict with missing or foreign facts still gets a sentence, because people edit annotations.

Invariant: the JSON is at most `LONGEST_JSON_BYTES` long, and its code survives even if its facts do not fit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Final

from runtime.routing.policy import count_gpus
from runtime.routing.verdict import Code, Facts, Verdict
from stacks.quantities import format_duration, format_usd

LONGEST_JSON_BYTES: Final = 1_024
"""Of the 256 KiB that Kubernetes allows for all annotations of an object; thousands of Workloads carry one of ours."""

LONGEST_ID: Final = 64
"""Characters kept of a decision's id."""

UNKNOWN: Final = "an unknown"
"""Stands for a fact that the verdict does not carry."""


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """A verdict as read from a Workload: when it was given, in fleet time, and by which decision."""

    verdict: Verdict
    decision_id: str
    at: float


def sentence(verdict: Verdict) -> str:
    """One sentence that says why the job is where it is, with numbers and units."""
    return _SENTENCES[verdict.code](_Words(verdict.facts))


def verdict_to_json(verdict: Verdict, decision_id: str, at: float) -> str:
    """The text of the annotation. Facts that do not fit are dropped, the longest first."""
    facts = {name: value for name, value in sorted(verdict.facts.items()) if not _is_odd(value)}
    entry = {"code": verdict.code.value, "at": round(at, 3), "decision": decision_id[:LONGEST_ID], "facts": facts}
    while (
        len(text := json.dumps(entry, ensure_ascii=True, separators=(",", ":"), allow_nan=False)) > LONGEST_JSON_BYTES
    ):
        del facts[max(facts, key=lambda name: len(name) + len(str(facts[name])))]
    return text


def verdict_from_json(text: str | None) -> RecordedVerdict | None:
    """Read the annotation; None for anything that is not a verdict of ours."""
    if not text or len(text) > LONGEST_JSON_BYTES:
        return None
    try:
        entry = json.loads(text)
        code = Code(entry["code"])
        facts, decision_id, at = entry["facts"], entry["decision"], entry["at"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    if not isinstance(facts, dict) or not isinstance(decision_id, str) or isinstance(at, str) or _is_odd(at):
        return None
    known = {name: value for name, value in facts.items() if not _is_odd(value)}
    return RecordedVerdict(Verdict(code, known), decision_id, at)


def _is_odd(value: object) -> bool:
    """Whether a value is no fact: not a string, and not a number that JSON and people can read."""
    if isinstance(value, str):
        return False
    return isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value)


class _Words:
    """Reads facts as phrases, whatever the facts are."""

    def __init__(self, facts: Facts) -> None:
        self._facts: Mapping[str, object] = facts

    def has(self, name: str) -> bool:
        return name in self._facts

    def text(self, name: str) -> str:
        value = self._facts.get(name)
        return UNKNOWN if value is None else str(value)

    def _number(self, name: str) -> float | None:
        value = self._facts.get(name)
        return None if isinstance(value, str) or _is_odd(value) else float(str(value))

    def duration(self, name: str) -> str:
        seconds = self._number(name)
        if seconds is None or abs(seconds) > timedelta.max.total_seconds() / 2:
            return f"{UNKNOWN} time"
        # Seconds stop mattering to a reader after an hour.
        grain = 60 if abs(seconds) >= 3_600 else 1
        return format_duration(timedelta(seconds=round(seconds / grain) * grain))

    def usd(self, name: str) -> str:
        amount = self._number(name)
        return f"{UNKNOWN} amount" if amount is None or abs(amount) > 1e15 else format_usd(Decimal(str(amount)))

    def gpus(self, name: str = "gpus") -> str:
        number = self._number(name)
        return f"{UNKNOWN} number of GPUs" if number is None else count_gpus(int(number))


def _waiting(words: _Words) -> str:
    return f"waits for local GPUs, then may go to the cloud: has waited {_of_limit(words)}"


def _of_limit(words: _Words) -> str:
    return f"{words.duration('waited_s')} of at most {words.duration('limit_s')} ({words.text('limit_source')})"


def _budget(words: _Words) -> str:
    period = words.text("period")
    when = {"day": "today", "month": "this month", "later day": "any later day", "later month": "any later month"}
    return (
        f"may go to the cloud, but would break the budget of the {words.text('scope')}: it needs up to "
        f"{words.usd('needed_usd')} and {words.usd('left_usd')} of {words.usd('limit_usd')} is left for "
        f"{when.get(period, period)}"
    )


def _team_limit(words: _Words) -> str:
    return (
        f"may go to the cloud, but team {words.text('team')} holds {words.gpus('held_gpus')} there of at most "
        f"{words.gpus('limit_gpus')}, and the job needs {words.gpus()}"
    )


def _cloud_full(words: _Words) -> str:
    return (
        f"may go to the cloud, but no cloud flavor has {words.gpus()} free (the most free is {words.gpus('free_gpus')})"
    )


def _too_large(words: _Words) -> str:
    if words.has("pod_gpus"):
        return (
            f"stays local: one of its pods asks for {words.gpus('pod_gpus')}, and the largest cloud node has "
            f"{words.gpus('node_gpus')}"
        )
    return f"stays local: it asks for {words.gpus()}, and the largest cloud flavor has {words.gpus('largest_gpus')}"


def _stays_local(words: _Words) -> str:
    return f"stays local: class {words.text('class')} never goes to the cloud"


def _no_limit(words: _Words) -> str:
    return (
        "stays local: a hard budget applies and nothing limits its run time; set the label "
        "kueue.x-k8s.io/max-exec-time-seconds on the job"
    )


def _ledger_down(words: _Words) -> str:
    return "stays out of the cloud for now: the ledger cannot be read or written, so no money may be spent"


def _released(words: _Words) -> str:
    return f"may use local or cloud GPUs, whichever are free first: waited {_of_limit(words)}"


def _cleared(words: _Words) -> str:
    return (
        f"runs in the cloud: {words.gpus()} of {words.text('flavor')} at {words.usd('usd_per_gpu_hour')} per GPU-hour; "
        f"{words.usd('committed_usd')} committed for {words.duration('committed_s')}"
    )


def _recalled(words: _Words) -> str:
    cause = words.text("cause")
    if cause in _REFUSALS:
        return f"goes back to its team's queue: it {_SENTENCES[Code(cause)](words)}"
    return f"goes back to its team's queue: {_CAUSES.get(cause, cause)}"


_REFUSALS: Final = frozenset(
    code.value
    for code in (Code.BUDGET, Code.TEAM_LIMIT, Code.CLASS_STAYS_LOCAL, Code.NO_RUNTIME_LIMIT, Code.LEDGER_DOWN)
)
_CAUSES: Final = {
    "under-way": "a recall that was begun earlier goes on",
    "attempt-closed": "this reservation was already paid and closed, the next one is decided anew",
    "not-as-paid": "its flavor, size or longest run time changed since its money was committed",
    "not-in-fleet": "its team or flavor is no longer in the fleet file",
    UNKNOWN: "the cause was not recorded",
}
_SENTENCES: Final[Mapping[Code, Callable[[_Words], str]]] = {
    Code.WAITING: _waiting,
    Code.CLASS_STAYS_LOCAL: _stays_local,
    Code.NO_RUNTIME_LIMIT: _no_limit,
    Code.BUDGET: _budget,
    Code.CLOUD_FULL: _cloud_full,
    Code.TEAM_LIMIT: _team_limit,
    Code.TOO_LARGE: _too_large,
    Code.LEDGER_DOWN: _ledger_down,
    Code.RELEASED: _released,
    Code.CLEARED: _cleared,
    Code.RECALLED: _recalled,
}
