"""The closing summary of a replay as plain values: what ran where, who waited, what it cost, how exact it all was.

infra.replay.tally makes it, infra.replay.report writes it down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from infra.replay.delays import Delay, EtaError
from infra.replay.gate import GateProof
from infra.replay.order import Missed

AT_ONCE_SECONDS = 2.0
"""Real seconds from creation to admission that count as at once: Kueue batches requeues at about a second."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the jobs of the replay ended up. `by_flavor` counts each job that was admitted once, where it ran last."""

    total: int
    by_flavor: Mapping[str, int]
    local: int
    cloud: int
    pending: int
    stopped: int
    running: int
    succeeded: int
    failed: int


@dataclass(frozen=True, slots=True)
class Waits:
    """Fleet seconds from creation to first admission, of the jobs of one class that were admitted."""

    job_class: str
    jobs: int
    mean_seconds: float
    p95_seconds: float


@dataclass(frozen=True, slots=True)
class Spend:
    """What one team (None: the fleet) spent. `recomputed_usd` is from the Workloads' conditions, for this replay alone.

    `highest_usd` is the most that was ever spent and committed together in the budget's month, earlier runs included.
    """

    team: str | None
    ledger_usd: Decimal
    recomputed_usd: Decimal
    open_attempts: int
    highest_usd: Decimal
    limit_usd: Decimal | None

    @property
    def difference_usd(self) -> Decimal:
        """What the ledger has beyond the recomputed sum."""
        return self.ledger_usd - self.recomputed_usd


@dataclass(frozen=True, slots=True)
class Held:
    """A team whose jobs a budget held: the first time (real), how many, and how many of them ran locally after all."""

    team: str
    first_at: float
    jobs: int
    ran_locally: int
    ran_in_cloud: int


@dataclass(frozen=True, slots=True)
class Moves:
    """How often jobs changed queue: released to a twin, moved between twins, taken back; or moved by somebody else."""

    releases: int = 0
    retargets: int = 0
    recalls: int = 0
    by_others: int = 0


@dataclass(frozen=True, slots=True)
class Exactness:
    """How exact the burst rule was; see infra.replay.gate, infra.replay.order and infra.replay.delays for each rule.

    `inverted_share` is that of reservations which unfairly passed over an older job (infra.replay.order.Missed).
    """

    gate: GateProof
    moves: Moves
    missed_local: tuple[Missed, ...]
    inversions: tuple[Missed, ...]
    inverted_share: float
    delays: tuple[Delay, ...]
    gate_delays: tuple[Delay, ...]
    eta_errors: tuple[EtaError, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the summary rests on, and its holes."""

    audit_log: str
    audit_lines: int
    audit_unreadable: int
    ledger: str
    ledger_unreadable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """Everything the closing summary says. `complete` is False where jobs were still under way when it was made."""

    run_id: str
    speed: float
    started_at: float
    real_seconds: float
    complete: bool
    placed: Placed
    stayed_local: Mapping[str, int]
    started_at_once: int
    waits: tuple[Waits, ...]
    spend: tuple[Spend, ...]
    held: tuple[Held, ...]
    exactness: Exactness
    evidence: Evidence
    notes: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether every cloud start passed the gate, was routed and told of, and the evidence has no hole."""
        evidence = self.evidence
        return self.exactness.gate.holds and not (evidence.audit_unreadable or evidence.ledger_unreadable)
