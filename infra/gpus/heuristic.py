"""Packs without a solver: first fit with the larger instances first, then emptying GPUs one by one; and a lower bound.

It proves nothing by itself. The bound does: no packing needs fewer GPUs, so what lies between is the most that is lost.

Invariants: deterministic; a packing meets the whole demand; it is never worse than first fit alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import mul
from typing import Final

from infra.gpus.model import Column, Counts, Model, State
from stacks.catalogue import MigProfile
from stacks.mig import require_profiles

_STEPS: Final = (2.0, 1.25, 1.05)  # by which weights of the bound are changed, from coarse to fine
_ROUNDING: Final = 1e-9
_MOST_EMPTIED: Final = 100  # GPUs that are tried to be emptied; of thousands the gain is below one in hundreds

Packing = Counter[tuple[int, int]]
"""How many GPUs of a state become a column: by index of the state in the model, and of the column in the state."""


@dataclass(slots=True)
class _Bin:
    """A GPU in the making."""

    state: int
    counts: list[int]
    fixed: bool


@dataclass(slots=True)
class _Bins:
    """GPUs in the making; what is known not to fit is not tried again, as GPUs only get fuller."""

    model: Model
    bins: list[_Bin] = field(default_factory=list)
    opened: Counter[int] = field(default_factory=Counter)
    first: Counter[int] = field(default_factory=Counter)
    known: dict[tuple[int, Counts], bool] = field(default_factory=dict)

    def put(self, profile: int) -> None:
        """First fit, else a GPU more."""
        while self.first[profile] < len(self.bins):
            if self.takes(self.bins[self.first[profile]], profile):
                return
            self.first[profile] += 1
        for index, state in enumerate(self.model.states):
            left = math.inf if state.gpus is None else len(state.gpus) - self.opened[index]
            new = _Bin(index, [0] * len(self.model.names), fixed=False)
            if not state.live and left > 0 and self.takes(new, profile):
                self.opened[index] += 1
                self.bins.append(new)
                return

    def takes(self, one: _Bin, profile: int) -> bool:
        """Add an instance if there is room."""
        one.counts[profile] += 1
        if not self.fits(one.state, tuple(one.counts)):
            one.counts[profile] -= 1
            return False
        return True

    def fits(self, state: int, counts: Counts) -> bool:
        """Whether some column of the state has all of these."""
        key = (state, counts)
        if key not in self.known:
            self.known[key] = any(_holds(column, counts) for column in self.model.states[state].columns)
        return self.known[key]


def first_fit(model: Model) -> Packing:
    """First fit, the larger instances first: what one would do by hand."""
    return _packing(model, _first_fit(model))


def heuristic(model: Model) -> Packing:
    """First fit, then emptying GPUs whose instances find room on others."""
    bins = _first_fit(model)
    _empty(bins)
    return _packing(model, bins)


def gpus_of(packing: Packing) -> int:
    """GPUs that a packing uses."""
    return packing.total()


def lower_bound(model: Model) -> int:
    """GPUs that every packing uses at least.

    Any weights of profiles give a bound: no GPU gains more weight than its heaviest column brings, so the weight of the
    demand needs so many. The weights are improved until that hardly helps: they are the dual of the linear program.
    """
    profiles = _profiles(model)
    starts = [
        [float(profile.size) for profile in profiles],
        [float(profile.slices) for profile in profiles],
        [1 / profile.max_count for profile in profiles],
        *([float(at == index) for at in range(len(profiles))] for index, wanted in enumerate(model.demand) if wanted),
    ]
    return max(math.ceil(_improved(model, weights) - _ROUNDING) for weights in starts)


def _improved(model: Model, weights: list[float]) -> float:
    """The bound of these weights, after changing one at a time while that helps."""
    best = _bound(model, weights)
    for step in _STEPS:
        better = True
        while better:
            better = False
            for at, weight in enumerate(weights):
                for changed in (weight * step, weight / step):
                    weights[at] = changed
                    found = _bound(model, weights)
                    if found > best + _ROUNDING:
                        best, better, weight = found, True, changed
                    else:
                        weights[at] = weight
    return best


def _bound(model: Model, weights: Sequence[float]) -> float:
    """GPUs that have live instances, and those that the rest of the demand's weight needs."""

    def weight(counts: Sequence[int]) -> float:
        return sum(count * each for count, each in zip(counts, weights, strict=True))

    left, standing = weight(model.demand), 0
    for state in model.states:
        if state.live and state.gpus:
            standing += len(state.gpus)
            left -= len(state.gpus) * max(weight(column.counts) for column in state.columns)
    heaviest = max((weight(column.counts) for column in model.states[-1].columns), default=0.0)
    return standing + (max(0.0, left) / heaviest if heaviest else 0.0)


def _first_fit(model: Model) -> _Bins:
    bins = _Bins(model)
    for index, state in enumerate(model.states):
        for _ in (state.gpus or ()) if state.live else ():
            held = Counter(instance.profile for instance in state.live)
            bins.bins.append(_Bin(index, [held[name] for name in model.names], fixed=True))
    for at in _larger_first(model):
        for _ in range(model.demand[at] - sum(one.counts[at] for one in bins.bins)):
            bins.put(at)
    return bins


def _empty(bins: _Bins) -> None:
    """Give up GPUs, the emptiest first, whose instances all find room on others."""
    sizes = [profile.size for profile in _profiles(bins.model)]
    order = _larger_first(bins.model)
    by_load = sorted((one for one in bins.bins if not one.fixed), key=lambda one: sum(map(mul, one.counts, sizes)))
    for one in by_load[:_MOST_EMPTIED]:
        moved: list[tuple[_Bin, int]] = []
        for at in [each for each in order for _ in range(one.counts[each])]:
            taker = next((other for other in bins.bins if other is not one and bins.takes(other, at)), None)
            if taker is None:
                break
            moved.append((taker, at))
        if len(moved) == sum(one.counts):
            bins.bins.remove(one)
        else:
            for taker, at in moved:
                taker.counts[at] -= 1


def _larger_first(model: Model) -> list[int]:
    profiles = _profiles(model)
    return sorted(range(len(profiles)), key=lambda at: (-profiles[at].size, -profiles[at].slices, profiles[at].name))


def _profiles(model: Model) -> list[MigProfile]:
    geometry = require_profiles(model.gpu, model.names)
    return [geometry.profiles[name] for name in model.names]


def _packing(model: Model, bins: _Bins) -> Packing:
    """Each GPU becomes the best column that has what it needs: most SMs, least stranded memory, no change."""
    packing: Packing = Counter()
    for one in bins.bins:
        state = model.states[one.state]
        able = [at for at, column in enumerate(state.columns) if _holds(column, tuple(one.counts))]
        packing[one.state, min(able, key=lambda at: _rank(state, state.columns[at]))] += 1
    return packing


def _rank(state: State, column: Column) -> tuple[int, int, bool, Counts]:
    return -column.sms, column.stranded, state.changes(column), column.counts


def _holds(column: Column, counts: Counts) -> bool:
    return all(mine >= its for mine, its in zip(column.counts, counts, strict=True))
