"""How long jobs ran before, so that the next one's run time need not be guessed.

A job resembles others of its team with the same name but for what counts them: `train-17` and `train-18`, `eval-x7k2p`.
Where too few of those ended, jobs of its team and class give a quantile that most stay below. Only jobs that succeeded
count, the latest few of each kind. Nothing here reads a clock or remembers by itself: the agent builds a History from
the finished Workloads that it sees.

Invariants: at most `KEPT` run times by stem and by class are used; the answer does not depend on the order in which
equally recent jobs come.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

KEPT: Final = 50
"""Run times kept of each stem, and of each team and class: jobs change, and old ones mislead."""

FEWEST: Final = 3
"""Fewer run times than this are chance."""

QUANTILE: Final = 0.75
"""Of a class's run times: too short an estimate sends a job to the cloud too early, too long a one makes it wait."""

_LONGEST_STEM: Final = 63
_COUNTED: Final = re.compile(r"(?:[-_.](?>(?:\d+|(?=[a-z0-9]*\d)[a-z0-9]{5,10}|[0-9a-f]{8,})(?=[-_.]|$)))+$")
"""Each part is read in one way only: a name of parts that are read in several would take half a millisecond."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One job that succeeded: `seconds` from its last start to its end at `ended_at`, in fleet time."""

    uid: str
    team: str
    name: str
    job_class: str
    seconds: float
    ended_at: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A run time and where it comes from, e.g. `the median of 5 runs of train`."""

    seconds: float
    source: str


@dataclass(frozen=True, slots=True)
class History:
    """Estimates by team and stem, and by team and class."""

    by_stem: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)
    by_class: Mapping[tuple[str, str], Estimate] = field(default_factory=dict)

    def estimate(self, team: str, name: str, job_class: str) -> Estimate | None:
        """What jobs like this one took; None where too few are known."""
        return self.by_stem.get((team, stem(name))) or self.by_class.get((team, job_class))


NO_HISTORY: Final = History()


@lru_cache(maxsize=32_768)  # twice the jobs that the design knows, each asked about in every decision
def stem(name: str) -> str:
    """The name without what counts or distinguishes runs of the same job."""
    return _COUNTED.sub("", name[:_LONGEST_STEM]) or name[:_LONGEST_STEM]


def history_of(runs: Iterable[Ran]) -> History:
    """Summarise the latest runs."""
    stems: dict[tuple[str, str], list[Ran]] = defaultdict(list)
    classes: dict[tuple[str, str], list[Ran]] = defaultdict(list)
    for run in sorted(runs, key=lambda run: (-run.ended_at, run.uid)):
        for found, key in ((stems, (run.team, stem(run.name))), (classes, (run.team, run.job_class))):
            if len(found[key]) < KEPT:
                found[key].append(run)
    return History(
        {
            key: Estimate(_quantile(found, 0.5), f"the median of {len(found)} runs of {key[1]}")
            for key, found in stems.items()
            if len(found) >= FEWEST
        },
        {
            key: Estimate(_quantile(found, QUANTILE), f"{QUANTILE:.0%} of {len(found)} runs of its team and class")
            for key, found in classes.items()
            if len(found) >= FEWEST
        },
    )


def _quantile(runs: list[Ran], share: float) -> float:
    ordered = sorted(run.seconds for run in runs)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
