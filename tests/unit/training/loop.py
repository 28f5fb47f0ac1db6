"""A real training loop in plain Python, run as a program: logistic regression by stochastic gradient descent.

    python loop.py DIRECTORY RESULT STEPS

Every step draws a batch from a random generator of its own and changes all weights, so a step that is lost, done twice
or done from another state changes the result in its last bit. The weights and the generator are the whole state.
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from runtime import training

FEATURES: Final = 12
ROWS: Final = 400
BATCH: Final = 16
FROZEN: Final = bytes(range(256)) * 64
"""Stands for an embedding that training does not change."""


@dataclass
class Model:
    """What training changes."""

    weights: list[float] = field(default_factory=lambda: [0.0] * (FEATURES + 1))
    generator: random.Random = field(default_factory=lambda: random.Random(20))


def some_data() -> list[tuple[list[float], int]]:
    """Rows that a plane divides, but for some noise."""
    chance = random.Random(7)
    plane = [chance.gauss(0, 1) for _ in range(FEATURES + 1)]
    rows = []
    for _ in range(ROWS):
        features = [chance.gauss(0, 1) for _ in range(FEATURES)] + [1.0]
        score = sum(w * x for w, x in zip(plane, features, strict=True)) + chance.gauss(0, 0.3)
        rows.append((features, int(score > 0)))
    return rows


def train_one_step(model: Model, rows: list[tuple[list[float], int]]) -> None:
    """One batch."""
    slope = [0.0] * (FEATURES + 1)
    for features, label in model.generator.choices(rows, k=BATCH):
        score = sum(w * x for w, x in zip(model.weights, features, strict=True))
        error = 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, score)))) - label
        slope = [s + error * x for s, x in zip(slope, features, strict=True)]
    rate = 0.05 * model.generator.uniform(0.5, 1.5)
    model.weights = [w - rate * s / BATCH for w, s in zip(model.weights, slope, strict=True)]


def main(directory: str, result: str, steps: int) -> None:
    """Train, and write the weights in full precision."""
    rows = some_data()
    with training.session(directory, every_seconds=0.02) as session:
        model = session.resume(Model())

        def save(saving: training.Saving) -> None:
            saving.pickle(model)
            saving.write("embedding", FROZEN)

        for step in range(session.done, steps):
            train_one_step(model, rows)
            session.step(step + 1, save)
        Path(result).write_text(repr((steps, model.weights, model.generator.random())))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
