"""A synthetic hour of a busy fleet: a calm start, a rush that the local GPUs cannot take, and an ebb.

It imitates no company's trace: it is made so that one short replay shows every answer that the burst rule can give.
docs/traces.md has the same in words.

Arrivals are a Poisson process whose rate is constant within each part of RATE. Sizes, run times, guesses, teams and
classes are drawn independently. Invariants: equal seed, fleet and length give equal jobs; every job ends by itself
before its limit; rates grow with the fleet's local GPUs, so that any fleet sees the same pressure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, TypeVar

from infra.replay.errors import TraceError
from infra.replay.trace import TraceJob
from stacks.fleet import Fleet

Choice = TypeVar("Choice")

MINUTE: Final = 60.0
DEFAULT_LENGTH_SECONDS: Final = 55 * MINUTE
DEFAULT_SEED: Final = 8

# (share of the length, jobs per minute on 16 local GPUs). A job holds 13 GPU-minutes on average: the rush asks for
# about twice what is there, calm and ebb for half of it. Together about 70 jobs in 55 minutes.
_RATE: Final = ((0.18, 0.7), (0.46, 2.05), (0.36, 0.55))
_RATE_GPUS: Final = 16.0

# Mostly small, as in the Philly trace (93 % ask for one GPU), but with the large ones that make a queue.
_SIZES: Final = {1: 0.44, 2: 0.26, 4: 0.20, 8: 0.10}

# Log-normal, as run times of training jobs are: the median and the spread of its logarithm. Cut at both ends, below so
# that a compressed job outlives the control plane's delays, above so that a replay ends.
_RUN_MEDIAN: Final = 5 * MINUTE
_RUN_SIGMA: Final = 0.7
_RUN_BOUNDS: Final = (3 * MINUTE, 14 * MINUTE)

# What owners say, as a factor of the truth; most guess high. One in six says nothing.
_GUESS: Final = (0.9, 1.5)
_SILENT: Final = 1 / 6

# The limit: half as much again as was said or is true, and ten minutes, because a compressed replay turns each second
# that the real control plane needs between admission and start into a minute of fleet time.
_MAX_FACTOR: Final = 1.5
_MAX_SLACK: Final = 10 * MINUTE

# Shares of classes: the default one is the bulk, those that never burst are a fifth, the others share the rest.
_DEFAULT_CLASS_SHARE: Final = 0.64
_NEVER_CLASS_SHARE: Final = 0.20
_OTHER_CLASS_SHARE: Final = 0.16


def synthetic(
    fleet: Fleet, *, seed: int = DEFAULT_SEED, length_seconds: float = DEFAULT_LENGTH_SECONDS
) -> list[TraceJob]:
    """The jobs in the order of their arrival, within `length_seconds` of fleet time.

    Raises:
        TraceError: when the length is not positive, or the fleet has no local GPU to size the load by.
    """
    if not 0 < length_seconds < math.inf:
        raise TraceError(f"length: must be more than 0 seconds (got {length_seconds:g})")
    local_gpus = sum(flavor.gpus for flavor in fleet.flavors.values() if not flavor.cloud)
    if not local_gpus:
        raise TraceError("the fleet has no on-prem pool; a synthetic trace is sized by the local GPUs")
    random = Random(seed)  # seeded on purpose: reproducible, not secret
    teams = {name: math.sqrt(max(1, sum(team.quota.values()))) for name, team in sorted(fleet.teams.items())}
    classes = _class_shares(fleet)
    arrivals = _arrivals(random, length_seconds, local_gpus / _RATE_GPUS)
    return [_job(random, index, submit, teams, classes) for index, submit in enumerate(arrivals, start=1)]


def _job(
    random: Random, index: int, submit: float, teams: Mapping[str, float], classes: Mapping[str, float]
) -> TraceJob:
    run = min(max(random.lognormvariate(math.log(_RUN_MEDIAN), _RUN_SIGMA), _RUN_BOUNDS[0]), _RUN_BOUNDS[1])
    guess = run * random.uniform(*_GUESS)
    expected = None if random.random() < _SILENT else round(guess)
    return TraceJob(
        name=f"job-{index}",
        team=_draw(random, teams),
        job_class=_draw(random, classes),
        gpus=_draw(random, _SIZES),
        submit_seconds=round(submit, 1),
        run_seconds=round(run),
        expected_seconds=expected,
        max_seconds=math.ceil((max(run, expected or 0) * _MAX_FACTOR + _MAX_SLACK) / MINUTE) * MINUTE,
    )


def _arrivals(random: Random, length: float, scale: float) -> Iterator[float]:
    begin = 0.0
    for share, per_minute in _RATE:
        end = begin + share * length
        moment = begin
        while (moment := moment + random.expovariate(per_minute * scale / MINUTE)) < end:
            yield moment
        begin = end


def _class_shares(fleet: Fleet) -> dict[str, float]:
    groups: dict[float, list[str]] = {_DEFAULT_CLASS_SHARE: [], _NEVER_CLASS_SHARE: [], _OTHER_CLASS_SHARE: []}
    for name, job_class in sorted(fleet.classes.items()):
        never = job_class.burst == "never"
        share = _DEFAULT_CLASS_SHARE if job_class.default else _NEVER_CLASS_SHARE if never else _OTHER_CLASS_SHARE
        groups[share].append(name)
    return {name: share / len(names) for share, names in groups.items() for name in names}


def _draw(random: Random, shares: Mapping[Choice, float]) -> Choice:
    return random.choices(list(shares), list(shares.values()))[0]
