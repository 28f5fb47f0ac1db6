"""Two ranks of torch.distributed on the CPU: python ranks_program.py RANK WORLD MEETING DIRECTORY STEPS STOP

Saves sharded state, is told to stop at step STOP on the last rank only, and prints what each rank resumed from.
"""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from runtime import training
from runtime.training import distributed


def main(rank: int, world: int, meeting: str, directory: str, steps: int, stop: int) -> None:
    """One rank."""
    torch = import_module("torch")
    import_module("torch.distributed").init_process_group(
        "gloo", init_method=f"file://{meeting}", rank=rank, world_size=world
    )
    weights: dict[str, Any] = {"weights": torch.zeros(8)}
    ranks = distributed.torch_ranks()

    def save(saving: training.Saving) -> None:
        distributed.save_sharded(saving, weights)
        distributed.save_torch(saving, {"rank": rank, "random": distributed.random_state()})

    def load(checkpoint: training.Checkpoint) -> int:
        distributed.load_sharded(checkpoint, weights)
        rest = distributed.load_torch(checkpoint, ranks=ranks)
        distributed.restore_random_state(rest["random"])
        return int(rest["rank"])

    with training.session(directory, ranks=ranks) as session:
        own = session.resume(-1, load)
        print(own, session.done, weights["weights"].sum().item(), flush=True)
        for step in range(session.done, steps):
            weights["weights"] += 1
            if rank == world - 1 and step + 1 == stop:
                os.kill(os.getpid(), signal.SIGTERM)
            session.step(step + 1, save)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
