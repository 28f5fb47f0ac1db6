"""What the tests of the training helper share: ranks as threads, a bucket in memory, a training loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from runtime import training
from runtime.training.checkpoint import directory_name
from runtime.training.errors import Conflict
from runtime.training.ranks import Ranks
from runtime.training.store import Checkpoints
from runtime.training.together import Saved, save_together

Result = TypeVar("Result")


def saved(checkpoints: Checkpoints, step: int, **files: bytes) -> Saved:
    """Save these files as the checkpoint of a step."""

    def save(saving: training.Saving) -> None:
        for name, data in files.items():
            saving.write(name, data)

    return save_together(checkpoints, step, save)


def a_store(root: Path, *steps: int, **retention: Any) -> Checkpoints:
    """A store with a small checkpoint for each of these steps."""
    checkpoints = Checkpoints(root, training.Retention(**retention))
    checkpoints.prepare()
    for step in steps:
        saved(checkpoints, step, state=f"state {step}".encode())
    return checkpoints


def visible(root: Path) -> list[str]:
    """Names in a store that are not hidden, `latest` last."""
    found = sorted(path.name for path in root.iterdir() if not path.name.startswith("."))
    return sorted(found, key=lambda name: name == "latest")


def leftovers(root: Path) -> list[str]:
    """Hidden names in a store, but for its lock."""
    return sorted(path.name for path in root.iterdir() if path.name.startswith(".") and path.name != ".lock")


def names(*steps: int) -> list[str]:
    return [directory_name(step) for step in steps]


def together(world: int, work: Callable[[Ranks], Result]) -> list[Result | BaseException]:
    """Run `work` as each rank, in threads; what each returned or raised."""
    barrier = threading.Barrier(world)
    values = [0] * world
    results: list[Any] = [None] * world

    def agree_as(rank: int) -> Callable[[int], int]:
        def agree(value: int) -> int:
            values[rank] = value
            barrier.wait(timeout=60)
            largest = max(values)
            barrier.wait(timeout=60)
            return largest

        return agree

    def run(rank: int) -> None:
        try:
            results[rank] = work(Ranks(rank, world, agree_as(rank)))
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class MemoryBucket:
    """A bucket with conditional writes, as S3, GCS and Azure have them."""

    url = "memory://bucket"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: list[str] = []
        self.before_put: Callable[[str], None] = lambda key: None

    def get(self, key: str) -> tuple[bytes, str]:
        data = self.objects[key]
        return data, self._version(data)

    def put(self, key: str, data: bytes, version: str) -> None:
        self.before_put(key)
        current = self.objects.get(key)
        if version != ("" if current is None else self._version(current)):
            raise Conflict(f"{key} has changed")
        self.objects[key] = data

    def upload(self, key: str, path: Path) -> None:
        self.uploads.append(key)
        self.objects[key] = path.read_bytes()

    def download(self, key: str, path: Path) -> None:
        path.write_bytes(self.objects[key])

    def keys(self, prefix: str) -> Iterable[str]:
        return [key for key in list(self.objects) if key.startswith(prefix)]

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)

    def _version(self, data: bytes) -> str:
        return f"etag-{hash(data)}"
