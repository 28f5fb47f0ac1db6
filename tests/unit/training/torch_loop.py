"""A real training loop in PyTorch on the CPU, run as a program: python torch_loop.py DIRECTORY RESULT STEPS

A small network with dropout and Adam, so that the weights, the moments of the optimizer and torch's random generator all
have to come back for the result to be the same.
"""

from __future__ import annotations

import hashlib
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from runtime import training
from runtime.training.distributed import load_torch, random_state, restore_random_state, save_torch


def main(directory: str, result: str, steps: int) -> None:
    """Train, and write a checksum of the weights."""
    with training.session(directory, every_seconds=0.1) as session:
        torch = import_module("torch")
        torch.set_num_threads(1)
        torch.manual_seed(7)
        rows = torch.randn(512, 16)
        labels = (rows[:, :4].sum(dim=1) > 0).float()
        network = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)
        )
        optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)

        def save(saving: training.Saving) -> None:
            state = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "random": random_state()}
            save_torch(saving, state)

        state: dict[str, Any] = session.resume({}, load_torch)
        if state:
            network.load_state_dict(state["network"])
            optimizer.load_state_dict(state["optimizer"])
            restore_random_state(state["random"])
        for step in range(session.done, steps):
            chosen = torch.randint(0, len(rows), (32,))
            loss = torch.nn.functional.binary_cross_entropy_with_logits(network(rows[chosen])[:, 0], labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            session.step(step + 1, save)
        weights = b"".join(value.numpy().tobytes() for value in network.state_dict().values())
        Path(result).write_text(f"{steps} {hashlib.sha256(weights).hexdigest()} {torch.rand(1).item()!r}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
