"""Verdicts in words for people, and as the short JSON that the Workload's annotation carries.

The words are made from the recorded facts alone, so a verdict read back from a cluster says the same as a fresh one.
Nothing here judges; a verdict with missing or foreign facts still gets a sentence, because people edit annotations.

Invariant: the JSON is at most `LONGEST_JSON_BYTES` long, and its code survives even if its facts do not fit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from runtime.eviction.notice import NoticeKind
from runtime.routing.verdict import ASKED, Code, Verdict
from runtime.routing.words import UNKNOWN, Words, is_odd

LONGEST_JSON_BYTES: Final = 1_024
"""Of the 256 KiB that Kubernetes allows for all annotations of an object; thousands of Workloads carry one of ours."""

LONGEST_ID: Final = 64
"""Characters kept of a decision's id."""


@dataclass(frozen=True, slots=True)
class RecordedVerdict:
    """A verdict as read from a Workload: when it was given, in fleet time, and by which decision."""

    verdict: Verdict
    decision_id: str
    at: float


def sentence(verdict: Verdict) -> str:
    """One sentence that says why the job is where it is, with numbers and units."""
    return _SENTENCES[verdict.code](Words(verdict.facts))


def verdict_to_json(verdict: Verdict, decision_id: str, at: float) -> str:
    """The text of the annotation. Facts that do not fit are dropped, the longest first."""
    facts = {name: value for name, value in sorted(verdict.facts.items()) if not is_odd(value)}
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
    if not isinstance(facts, dict) or not isinstance(decision_id, str) or isinstance(at, str) or is_odd(at):
        return None
    known = {name: value for name, value in facts.items() if not is_odd(value)}
    return RecordedVerdict(Verdict(code, known), decision_id, at)


def _waiting(words: Words) -> str:
    return f"waits for local GPUs, then may go to the cloud: has waited {_of_limit(words)}"


def _of_limit(words: Words) -> str:
    return f"{words.duration('waited_s')} of at most {words.duration('limit_s')} ({words.text('limit_source')})"


def _budget(words: Words) -> str:
    period = words.text("period")
    return (
        f"may go to the cloud, but would break the budget of the {words.text('scope')}: it needs up to "
        f"{words.usd('needed_usd')} and {words.usd('left_usd')} of {words.usd('limit_usd')} is left for "
        f"{_PERIODS.get(period, period)}"
    )


def _team_limit(words: Words) -> str:
    return (
        f"may go to the cloud, but team {words.text('team')} holds {words.gpus('held_gpus')} there of at most "
        f"{words.gpus('limit_gpus')}, and the job needs {words.gpus()}"
    )


def _cloud_full(words: Words) -> str:
    return (
        f"may go to the cloud, but no cloud flavor has {words.gpus()} free (the most free is {words.gpus('free_gpus')})"
    )


def _too_large(words: Words) -> str:
    if words.has("pod_gpus"):
        return (
            f"stays local: one of its pods asks for {words.gpus('pod_gpus')}, and the largest cloud node has "
            f"{words.gpus('node_gpus')}"
        )
    return f"stays local: it asks for {words.gpus()}, and the largest cloud flavor has {words.gpus('largest_gpus')}"


def _stays_local(words: Words) -> str:
    return f"stays local: class {words.text('class')} never goes to the cloud"


def _no_limit(words: Words) -> str:
    return (
        "stays local: a hard budget applies and nothing limits its run time; set the label "
        "kueue.x-k8s.io/max-exec-time-seconds on the job"
    )


def _ledger_down(words: Words) -> str:
    return "stays out of the cloud for now: the ledger cannot be read or written, so no money may be spent"


def _never_fits(words: Words) -> str:
    cause = words.text("cause")
    known = cause in _REFUSALS and Code(cause) is not Code.NEVER_FITS
    reason = _because(words).removeprefix("stays local: ") if known else "the cloud cannot either"
    return f"refused: local GPUs can never hold its {words.gpus()} for this team, and {reason}"


def _no_market(words: Words) -> str:
    model = f" with {words.text('gpu')} GPUs" if words.has("gpu") else ""
    return f"stays local: no cloud flavor{model} is of a market that class {words.text('class')} allows"


def _policy_never(words: Words) -> str:
    return f"stays local: the burst policy of team {words.text('team')} is never"


def _window(words: Words) -> str:
    return f"waits for the window of class {words.text('class')}, which opens at {words.moment('opens_at')}"


def _data(words: Words) -> str:
    return (
        f"stays local: copying its data takes {words.duration('staging_s')}, and at most {words.duration('limit_s')} "
        "is worth waiting for"
    )


def _project(words: Words) -> str:
    project = words.text("project")
    if words.text("known") == "1":
        return f"stays local: project {project} is not for team {words.text('team')}"
    return f"stays local: it names project {project}, which the fleet file does not have"


def _nodes_do_not_come(words: Words) -> str:
    return (
        f"may go to the cloud, but pods on {words.text('flavor')} did not become ready lately; it is tried again in "
        f"{words.duration('cooling_s')}"
    )


def _twin_down(words: Words) -> str:
    return f"may go to the cloud, but its team's queue for {words.text('flavor')} is missing or not active"


def _kept_local(words: Words) -> str:
    return (
        f"stays local until {words.moment('until')}: an administrator took it out of the cloud ({words.text('reason')})"
    )


def _taken_back(words: Words) -> str:
    return (
        "was released, and somebody moved it back to its team's queue each time: does a GitOps tool own its queue "
        f"label? It is left alone for {words.duration('pause_s')}"
    )


def _released(words: Words) -> str:
    if words.has("lost") and words.text("notice") == NoticeKind.MOVE:
        return f"may use GPUs of {words.text('target')} at once: it is moved from {words.text('lost')}{_instead(words)}"
    if words.has("lost"):
        return (
            f"may use GPUs of {words.text('target')} at once: its nodes of {words.text('lost')} were taken away "
            f"({words.text('notice')})"
        )
    where = f" of {words.text('target')}" if words.has("target") else ""
    return f"may use local or cloud GPUs{where}, whichever are free first: waited {_of_limit(words)}"


def _cleared(words: Words) -> str:
    waited = f"; waited {words.duration('waited_s')} of {words.duration('limit_s')}" if words.has("waited_s") else ""
    estimate = f"; est. {words.usd('expected_usd')}" if words.has("expected_usd") else ""
    if estimate and words.has("left_usd"):
        period = words.text("period")
        estimate += f" of {words.usd('left_usd')} left {_PERIODS.get(period, period)} ({words.text('scope')})"
    return (
        f"runs in the cloud: {words.gpus()} of {words.text('flavor')} at {words.usd('usd_per_gpu_hour')} per GPU-hour; "
        f"{words.usd('committed_usd')} committed for {words.duration('committed_s')}{waited}{estimate}"
    )


def _recalled(words: Words) -> str:
    cause = words.text("cause")
    if cause == ASKED:
        return f"goes back to its team's queue: an administrator asks for it ({words.text('reason')})"
    if cause in _REFUSALS:
        return f"goes back to its team's queue: it {_SENTENCES[Code(cause)](words)}"
    return f"goes back to its team's queue: {_CAUSES.get(cause, cause)}"


def _requeued(words: Words) -> str:
    cause = words.text("cause")
    why = f"; it {_because(words)}" if cause in _REFUSALS else ""
    if words.text("notice") == NoticeKind.MOVE:
        return f"is back in its own queue with its place: it was moved from {words.text('lost')}{_instead(words)}{why}"
    return (
        f"is back in its own queue with its place: its nodes of {words.text('lost')} were taken away "
        f"({words.text('notice')}){why}"
    )


def _moving(words: Words) -> str:
    return f"goes on on {words.text('target')} as soon as it has saved: an administrator moves it"


def _move_waits(words: Words) -> str:
    return (
        f"runs on where it is, and goes on on {_wanted(words)} as soon as it may, tried until {words.moment('until')}: "
        f"it {_because(words)}"
    )


def _move_refused(words: Words) -> str:
    cause = words.text("cause")
    why = f"it {_because(words)}" if cause in _REFUSALS else _NOT_MOVED.get(cause, cause)
    problem = f" ({words.text('problem')})" if words.has("problem") else ""
    return f"was not moved to {_wanted(words)}: {why}{problem}; it runs on where it is"


def _wanted(words: Words) -> str:
    return words.text("to") if words.has("to") else "another cloud flavor"


def _instead(words: Words) -> str:
    return f" ({words.text('wanted')} was not free any more)" if words.has("wanted") else ""


def _because(words: Words) -> str:
    """The sentence of the verdict that is the cause of another one."""
    cause = words.text("cause")
    return _SENTENCES[Code(cause)](words) if cause in _REFUSALS else cause


_PERIODS: Final = {
    "day": "today",
    "week": "this week",
    "month": "this month",
    "later day": "any later day",
    "later week": "any later week",
    "later month": "any later month",
}
_CAUSES: Final = {
    "under-way": "a recall that was begun earlier goes on",
    "attempt-closed": "this reservation was already paid and closed, the next one is decided anew",
    "not-as-paid": "its flavor, size or longest run time changed since its money was committed",
    "not-in-fleet": "its team or flavor is no longer in the fleet file",
    "misrouted": "it holds quota of another flavor than the one it was released to",
    "local-free": "local GPUs became free while it stood at the gate",
    UNKNOWN: "the cause was not recorded",
}
_NOT_MOVED: Final = {
    "expired": "the time for it is over",
    "withdrawn": "the wish was taken back",
    "there-already": "it runs there already",
    "no-other": "there is no other cloud flavor",
    "runs-locally": "it runs on local GPUs",
    "no-such-target": "the fleet has no cloud flavor or market of that name",
    "unreadable": "the wish cannot be read",
    UNKNOWN: "the cause was not recorded",
}
_REFUSALS: Final = frozenset(Code) - {Code.RECALLED, Code.REQUEUED, Code.MOVING, Code.MOVE_WAITS, Code.MOVE_REFUSED}
"""Codes that may be the cause of another verdict; the others have a cause themselves."""

_SENTENCES: Final[Mapping[Code, Callable[[Words], str]]] = {
    Code.WAITING: _waiting,
    Code.CLASS_STAYS_LOCAL: _stays_local,
    Code.NO_RUNTIME_LIMIT: _no_limit,
    Code.BUDGET: _budget,
    Code.CLOUD_FULL: _cloud_full,
    Code.TEAM_LIMIT: _team_limit,
    Code.TOO_LARGE: _too_large,
    Code.NEVER_FITS: _never_fits,
    Code.NO_MARKET: _no_market,
    Code.POLICY_NEVER: _policy_never,
    Code.WINDOW: _window,
    Code.DATA: _data,
    Code.PROJECT: _project,
    Code.NODES_DO_NOT_COME: _nodes_do_not_come,
    Code.TWIN_DOWN: _twin_down,
    Code.KEPT_LOCAL: _kept_local,
    Code.TAKEN_BACK: _taken_back,
    Code.LEDGER_DOWN: _ledger_down,
    Code.RELEASED: _released,
    Code.CLEARED: _cleared,
    Code.REQUEUED: _requeued,
    Code.RECALLED: _recalled,
    Code.MOVING: _moving,
    Code.MOVE_WAITS: _move_waits,
    Code.MOVE_REFUSED: _move_refused,
}
