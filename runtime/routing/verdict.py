"""Why a job is where it is: a code for machines, facts for the record, one sentence for people.

A verdict is written on the Workload when its code changes, so that `gpufleet explain` and `kubectl` show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Code(StrEnum):
    """Every verdict there is."""

    WAITING = "waiting"
    """Waits for local GPUs; its time for the cloud has not come."""

    CLASS_STAYS_LOCAL = "class-stays-local"
    """Its class never goes to the cloud."""

    NO_RUNTIME_LIMIT = "no-runtime-limit"
    """A hard budget applies, and the job has no enforced longest run time to commit money for."""

    BUDGET = "budget"
    """It may go, but would break a budget."""

    CLOUD_FULL = "cloud-full"
    """It may go, but no cloud flavor has room for it now."""

    TEAM_LIMIT = "team-limit"
    """It may go, but its team holds as many cloud GPUs as it may."""

    TOO_LARGE = "too-large"
    """It asks for more GPUs than any cloud flavor ever has; it waits for local ones."""

    NEVER_FITS = "never-fits"
    """Neither local nor cloud GPUs can ever hold it, as the fleet file stands: refused."""

    NO_MARKET = "no-market"
    """No cloud flavor is of a market that its class allows, or of the GPU model that it insists on."""

    POLICY_NEVER = "policy-never"
    """Its burst policy is never."""

    WINDOW = "window"
    """Its class starts only in a window of time, and that is closed."""

    DATA = "data"
    """Its data would take longer to copy than is worth waiting for."""

    PROJECT = "project"
    """It names a project that the fleet file does not have, or that is not its team's."""

    NODES_DO_NOT_COME = "nodes-do-not-come"
    """It may go, but pods on every cloud flavor that has room for it did not become ready lately."""

    TWIN_DOWN = "twin-down"
    """It may go, but the burst twins it could stand in are missing or not active."""

    KEPT_LOCAL = "kept-local"
    """An administrator took it out of the cloud; it stays local for a while."""

    TAKEN_BACK = "taken-back"
    """It was released, and somebody else moved it back to its team's queue again and again."""

    LEDGER_DOWN = "ledger-down"
    """The ledger cannot be read or written, so no money may move."""

    RELEASED = "released"
    """Sent to the burst twin: runs where Kueue finds room first."""

    CLEARED = "cleared"
    """Passed the gate; the money is committed."""

    REQUEUED = "requeued"
    """Its nodes were taken away, and it is back in its own queue."""

    RECALLED = "recalled"
    """On its way back to its team's queue."""

    MOVING = "moving"
    """An administrator wants it on another cloud flavor, and that is free: it is asked to save, then stopped."""

    MOVE_WAITS = "move-waits"
    """An administrator wants it on another cloud flavor that it may not have now; it runs on meanwhile."""

    MOVE_REFUSED = "move-refused"
    """It was not moved, and is not to be any more; it runs on where it is."""


ASKED: Final = "asked"
"""Cause of a recall that an administrator wants."""

Facts = Mapping[str, str | int | float]
"""Plain numbers and strings by name, with the unit in the name."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """One judgement of one job. `facts` are plain numbers and strings, with their units in the names."""

    code: Code
    facts: Facts


def recalled(cause: str, facts: Facts) -> Verdict:
    """The verdict of a job that goes back: the cause is a word of its own, or the code of what refuses it now."""
    return Verdict(Code.RECALLED, {"cause": cause, **facts})
