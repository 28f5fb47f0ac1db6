"""One job's life as the audit log shows it; infra.replay.histories puts it together."""

from __future__ import annotations

from dataclasses import dataclass, field

from infra.replay.workload import Workload
from runtime.routing.verdict import Code
from stacks.fleet import Fleet
from stacks.labels import burst_queue


@dataclass(slots=True)
class Reservation:
    """One stretch in which a job held quota; `version` and `end_version` order it among all others.

    `freed_version` and `freed_at` are when Kueue gave the quota to others: at the end, or earlier when the Workload was
    made inactive, for which Kueue does not wait until the pods are gone (measured on 0.19).
    `ready_at` is when the agent answered Ready, `forged_by` who else did. `admitted_condition` and `end_condition` are
    the whole seconds that the Workload's status shows.
    """

    flavor: str
    gpus: int
    version: int
    at: float
    end_version: int | None = None
    ended_at: float | None = None
    freed_version: int | None = None
    freed_at: float | None = None
    ready_at: float | None = None
    forged_by: str | None = None
    admitted_at: float | None = None
    admitted_condition: float | None = None
    end_condition: float | None = None


@dataclass(slots=True)
class Change:
    """How a job stood from this version on: whether it could be admitted, and from which queue."""

    version: int
    at: float
    queue: str
    open: bool


@dataclass(slots=True)
class History:
    """One Workload from its creation to the end of the log. `created_at` is its creation time, in whole seconds.

    `wait_limit_seconds` is how long it waits by the agent's word, in fleet time.

    `verdicts` are those the agent wrote, `foreign_verdicts` those that somebody else put there, each with its time.
    """

    uid: str
    namespace: str
    name: str
    team: str
    job: str | None
    job_uid: str | None
    job_class: str
    priority: int
    gpus: int
    created_at: float
    first_seen_at: float
    latest: Workload
    gone: bool = False
    reservations: list[Reservation] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    verdicts: list[tuple[float, Code]] = field(default_factory=list)
    wait_limit_seconds: float | None = None
    foreign_verdicts: list[tuple[float, Code]] = field(default_factory=list)

    @property
    def current(self) -> Reservation | None:
        """The reservation that stands, None where none does."""
        return self.reservations[-1] if self.reservations and self.reservations[-1].end_version is None else None

    @property
    def finished(self) -> bool:
        """Whether the job has ended."""
        return self.latest.finished_at is not None


def twins_of(fleet: Fleet) -> dict[str, str]:
    """The cloud flavor that each burst twin sends to, by the twin's name."""
    return {burst_queue(team, flavor.name): flavor.name for team in fleet.teams for flavor in fleet.burst_flavors}
