"""The forms for PyTorch: how its ranks agree, its files, its sharded checkpoints, its random generators.

torch is imported when one of these is called, never by the rest of the helper.
"""

from __future__ import annotations

import random
from importlib import import_module
from typing import Any, Final

from .checkpoint import Checkpoint
from .errors import SaveFailed
from .ranks import ALONE, Ranks
from .saving import Saving

TORCH_NAME: Final = "state.pt"


def torch_ranks(group: Any = None) -> Ranks:
    """This process's place in torch.distributed, or alone where that was not initialised.

    An agreement is one all-reduce of one integer, on the GPU with NCCL. A group with gloo keeps it off the GPU:
    `torch_ranks(torch.distributed.new_group(backend="gloo"))`.
    """
    torch, distributed = import_module("torch"), import_module("torch.distributed")
    if not (distributed.is_available() and distributed.is_initialized()) or distributed.get_world_size(group) == 1:
        return ALONE
    on_gpu = distributed.get_backend(group) == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")

    def agree(value: int) -> int:
        tensor = torch.tensor(value, dtype=torch.int64, device=device)
        distributed.all_reduce(tensor, distributed.ReduceOp.MAX, group=group)
        return int(tensor.item())

    return Ranks(distributed.get_rank(group), distributed.get_world_size(group), agree)


def save_torch(saving: Saving, state: Any, name: str = TORCH_NAME) -> None:
    """torch.save under this rank's own path."""
    torch = import_module("torch")
    try:
        torch.save(state, saving.path / name)
    except RuntimeError as error:  # what torch makes of a full disk
        raise SaveFailed(f"{name}: torch could not write it: {error}") from error


def load_torch(checkpoint: Checkpoint, name: str = TORCH_NAME, ranks: Ranks = ALONE, **options: Any) -> Any:
    """torch.load of this rank's own file; `options` are torch's. Without any it runs no code from the file."""
    torch = import_module("torch")
    return torch.load(checkpoint.own(ranks) / name, **{"weights_only": True, **options})


def save_sharded(saving: Saving, state: dict[str, Any]) -> None:
    """torch.distributed.checkpoint: each rank writes its shards. It may be loaded with another number of ranks."""
    sharded = import_module("torch.distributed.checkpoint")
    try:
        sharded.save(state, checkpoint_id=saving.shared)
    except (RuntimeError, sharded.CheckpointException) as error:
        raise SaveFailed(f"torch.distributed.checkpoint could not save: {error}") from error


def load_sharded(checkpoint: Checkpoint, state: dict[str, Any]) -> None:
    """Load into `state`, in place."""
    sharded = import_module("torch.distributed.checkpoint")
    sharded.load(state, checkpoint_id=checkpoint.shared)


def random_state() -> dict[str, Any]:
    """State of Python's and torch's generators, on the CPU and every GPU, in types that torch.load trusts."""
    torch = import_module("torch")
    version, numbers, gauss = random.getstate()
    python = {"version": version, "numbers": list(numbers), "gauss": gauss}
    gpu = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"python": python, "torch": torch.get_rng_state(), "gpu": gpu}


def restore_random_state(state: dict[str, Any]) -> None:
    """Go on drawing where `random_state` was taken. GPUs beyond those that were saved keep their seed."""
    torch = import_module("torch")
    python = state["python"]
    random.setstate((python["version"], tuple(python["numbers"]), python["gauss"]))
    torch.set_rng_state(state["torch"].cpu())
    for device, generator in enumerate(state["gpu"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(generator.cpu(), device)
