"""What is wrong with the fleet at one moment and needs a person, or heals by itself and should be known of.

An alarm is a state, not an event: it stands as long as its cause does, is counted in `gpufleet_alarms` by kind, and is
logged when it appears and when it goes. docs/runbook.md has an entry for each kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runtime.cost.standing import Summary
from runtime.routing.decision import Decision
from runtime.routing.snapshot import Job, Snapshot, Stage
from runtime.routing.targets import cooling
from stacks.agent_config import AgentConfig
from stacks.quantities import format_usd

INACTIVE_GRACE_SECONDS: Final = 10.0
"""Real seconds that Kueue may take to see that our check is answered; 0.5 to 2 s were measured."""


class AlarmKind(StrEnum):
    """Every alarm there is."""

    CHECK_MISSING = "check-missing"
    """Our AdmissionCheck does not exist: nothing can start in the cloud."""

    CHECK_INACTIVE = "check-inactive"
    """Kueue does not take our AdmissionCheck for answered, although the agent said so."""

    TWIN_BROKEN = "twin-broken"
    """A burst twin is missing or not active: its flavor cannot be used."""

    FLAVOR_MISSING = "flavor-missing"
    """A cloud flavor is gone from Kueue."""

    LABEL_REVERTED = "label-reverted"
    """Somebody else moves released jobs back, for instance a GitOps tool."""

    CONFIGURATION_REFUSED = "configuration-refused"
    """The agent's ConfigMap changed into something that cannot be used; the former one stands."""

    BUDGET_OVERDRAWN = "budget-overdrawn"
    """A budget was lowered below what is spent and committed already."""

    STRAY = "stray"
    """A job ran in the cloud without being in the ledger; it was written into it."""

    NODES_DO_NOT_COME = "nodes-do-not-come"
    """Pods on a cloud flavor did not become ready lately."""

    LAYOUT_FAILED = "layout-failed"
    """A MIG layout failed on a node, which is in service with its former one."""

    LAYOUT_STUCK = "layout-stuck"
    """A node is out of service, because neither the new MIG layout nor the former one came to be."""

    LAYOUT_HELD = "layout-held"
    """A node could not be emptied for another MIG layout."""

    LAYOUT_UNREADABLE = "layout-unreadable"
    """What was remembered on a node of a change of its MIG layout cannot be read."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """One thing that is wrong: `subject` names it (a queue, a flavor, a scope), `text` says it to a person."""

    kind: AlarmKind
    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class CheckState:
    """Our AdmissionCheck as it was seen: whether it exists, and for how long it has not been active."""

    exists: bool
    inactive_seconds: float = 0.0


def cluster_alarms(
    seen: Snapshot, config: AgentConfig, now: float, *, check: CheckState, missing_flavors: Iterable[str]
) -> Iterator[Alarm]:
    """What stands in the way of bursting in the cluster as it is seen now."""
    if config.burst_order and not check.exists:
        text = f"AdmissionCheck {config.gate} does not exist: no job can start in the cloud; run `pulumi up`"
        yield Alarm(AlarmKind.CHECK_MISSING, config.gate, text)
    elif check.inactive_seconds > INACTIVE_GRACE_SECONDS:
        text = f"AdmissionCheck {config.gate} has not been active for {check.inactive_seconds:.0f} s"
        yield Alarm(AlarmKind.CHECK_INACTIVE, config.gate, text)
    for queue in sorted(seen.broken_queues):
        text = f"burst twin {queue} is missing or not active: no job goes there; kubectl describe localqueue {queue}"
        yield Alarm(AlarmKind.TWIN_BROKEN, queue, text)
    for flavor in sorted(missing_flavors):
        text = f"ResourceFlavor {flavor} does not exist: nothing can run there; run `pulumi up`"
        yield Alarm(AlarmKind.FLAVOR_MISSING, flavor, text)
    for flavor, seconds in sorted(cooling(seen.books, config, now).items()):
        text = f"pods on {flavor} did not become ready; who saw it sends nothing there for another {seconds:.0f} s"
        yield Alarm(AlarmKind.NODES_DO_NOT_COME, flavor, text)
    yield from _label_alarms(seen.jobs)


def _label_alarms(jobs: Iterable[Job]) -> Iterator[Alarm]:
    reverted = Counter(job.team for job in jobs if job.returns and job.stage is Stage.QUEUED)
    for team, count in sorted(reverted.items()):
        text = f"{count} released jobs of team {team} were moved back by somebody else, for instance a GitOps tool"
        yield Alarm(AlarmKind.LABEL_REVERTED, team, text)


def money_alarms(found: Summary) -> Iterator[Alarm]:
    """Hard budgets beyond their limit: only a limit that was lowered, or a top-up that expired, does that."""
    for scope, summary in found.scopes():
        for period, standing in summary.standings():
            if summary.kind == "hard" and standing.overshoot:
                over = format_usd(standing.overshoot)
                text = f"the {period}'s budget of the {scope} is overdrawn by {over}: nothing new starts on it"
                yield Alarm(AlarmKind.BUDGET_OVERDRAWN, f"{scope} {period}", text)


def stray_alarms(decision: Decision) -> Iterator[Alarm]:
    """Jobs that this decision found running unpaid."""
    for action in decision.adoptions:
        text = (
            f"{action.job.namespace}/{action.job.owner_name} ran on {action.opening.flavor} without the ledger knowing"
        )
        yield Alarm(AlarmKind.STRAY, action.job.uid, text)
