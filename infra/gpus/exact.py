"""Packs with HiGHS and proves it, one goal after another: GPUs, SMs, stranded memory, reconfigurations.

The unknowns are how many GPUs of each state become each of its columns. Each goal is an integer program of its own in
which the goals before it keep their values; the figures are small integers, so no weights have to be balanced.

Invariants: a packing that is returned meets the whole demand; `Packed.bound` is a lower bound on GPUs whether or not
the time sufficed; HiGHS runs on one thread from one seed, so equal questions have equal answers.
"""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from infra.gpus.heuristic import Packing
from infra.gpus.model import Column, Model, State

_SECONDS: Final = 20.0  # for each goal; demands of hundreds of instances take hundredths
_GAP: Final = 0.99  # objectives are whole numbers: a gap below one is a proof
_ROUNDING: Final = 1e-6
_ADDED: Final = 2  # what a GPU more counts among changes: one that is there is laid out anew before another is added


class NoSolverError(Exception):
    """HiGHS is not installed."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A packing, and what is proven of it."""

    packing: Packing
    bound: int
    """GPUs that every packing uses at least."""

    optimal: bool
    """Whether every goal is proven."""


@dataclass(frozen=True, slots=True)
class _Solution:
    values: tuple[int, ...]
    bound: float
    proven: bool


def solve(model: Model) -> Packed | None:
    """The best packing; None where HiGHS found none in its time.

    Raises:
        NoSolverError: HiGHS is not installed.
    """
    unknowns = [(at, index) for at, state in enumerate(model.states) for index in range(len(state.columns))]
    if not any(model.demand) and not any(state.live for state in model.states):
        return Packed(Counter(), 0, optimal=True)
    pairs = [(model.states[at], model.states[at].columns[index]) for at, index in unknowns]
    goals = (
        [1 for _ in pairs],
        [-column.sms for _, column in pairs],
        [column.stranded for _, column in pairs],
        [_ADDED if state.gpus is None else int(state.changes(column)) for state, column in pairs],
    )
    program = _Program(model, pairs)
    best: _Solution | None = None
    bound, proven = 0, True
    for goal in goals:
        found = program.minimise(goal)
        if found is None:
            proven = False
            break
        if best is None:
            bound = math.ceil(found.bound - _ROUNDING)
        best, proven = found, proven and found.proven
        if not proven:
            break
        program.keep(goal, sum(cost * value for cost, value in zip(goal, found.values, strict=True)))
    if best is None:
        return None
    packing = Counter({key: value for key, value in zip(unknowns, best.values, strict=True) if value})
    return Packed(packing, bound, proven)


class _Program:
    """The integer program: rows of the model, and of the goals that are reached."""

    def __init__(self, model: Model, pairs: Sequence[tuple[State, Column]]) -> None:
        try:
            self._highs: Any = importlib.import_module("highspy")
        except ImportError as error:
            raise NoSolverError(str(error)) from None
        self._size = len(pairs)
        self._rows: list[tuple[float, Sequence[int], float]] = []
        for at, wanted in enumerate(model.demand):
            if wanted:
                self._rows.append((wanted, [column.counts[at] for _, column in pairs], math.inf))
        for state in model.states:
            if state.gpus is not None:
                number = len(state.gpus)
                self._rows.append((number if state.live else 0, [int(of is state) for of, _ in pairs], number))

    def keep(self, goal: Sequence[int], value: int) -> None:
        """Let no later goal cost this one anything."""
        self._rows.append((-math.inf, goal, value))

    def minimise(self, goal: Sequence[int]) -> _Solution | None:
        """The best values for a goal; None where none were found in the time."""
        highs = self._highs.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("random_seed", 0),
            ("time_limit", _SECONDS),
            ("mip_abs_gap", _GAP),
            ("mip_rel_gap", 0.0),
        ):
            highs.setOptionValue(option, value)
        highs.passModel(self._program(goal))
        highs.run()
        info = highs.getInfo()
        if info.primal_solution_status != self._highs.SolutionStatus.kSolutionStatusFeasible:
            return None
        values = tuple(round(value) for value in highs.getSolution().col_value)
        proven = highs.getModelStatus() == self._highs.HighsModelStatus.kOptimal
        return _Solution(values, info.mip_dual_bound, proven)

    def _program(self, goal: Sequence[int]) -> Any:
        program = self._highs.HighsLp()
        program.num_col_, program.num_row_ = self._size, len(self._rows)
        program.col_cost_ = [float(cost) for cost in goal]
        program.col_lower_ = [0.0] * self._size
        program.col_upper_ = [self._highs.kHighsInf] * self._size
        program.integrality_ = [self._highs.HighsVarType.kInteger] * self._size
        program.row_lower_ = [float(lower) for lower, _, _ in self._rows]
        program.row_upper_ = [float(upper) for _, _, upper in self._rows]
        entries = [[(at, factor) for at, factor in enumerate(row) if factor] for _, row, _ in self._rows]
        starts = [0]
        for row in entries:
            starts.append(starts[-1] + len(row))
        matrix = program.a_matrix_
        matrix.format_ = self._highs.MatrixFormat.kRowwise
        matrix.start_ = starts
        matrix.index_ = [at for row in entries for at, _ in row]
        matrix.value_ = [float(factor) for row in entries for _, factor in row]
        return program
