"""Reads recorded spot traces: which nodes there were, from when to when.

Two forms are known, plain or gzipped, and told apart by their content: lines of `MILLISECONDS,add|remove,NODE` without
a header (Bamboo, Oobleck), and JSON with `data`, a number of nodes for each tick, and `metadata.gap_seconds`, the
length of a tick (SkyPilot). A trace of numbers does not say which node went: the one that was there longest is taken.

Invariant: each node of a result was added once and, if at all, removed once and later.
"""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from infra.replay.errors import TraceError
from infra.replay.rows import shown

MOST_BYTES: Final = 64 * 2**20
"""Of a trace when unpacked; those that are known have less than one MiB."""

MOST_NODES: Final = 1_000
"""At once: more is a column that was taken for another."""

MOST_LIVES: Final = 100_000
"""In all; the recorded traces have up to some thousands."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_MS_PER_SECOND: Final = 1_000.0
_LONGEST_MS: Final = 10 * 365 * 86_400 * 1_000  # ten years: beyond it a unit is wrong


@dataclass(frozen=True, slots=True)
class NodeLife:
    """One node: seconds from the start of the trace; `gone_at` is None where it outlives the trace."""

    name: str
    added_at: float
    gone_at: float | None


@dataclass(frozen=True, slots=True)
class SpotTrace:
    """Every node of a trace, in the order in which they came, and when the trace ends."""

    name: str
    nodes: tuple[NodeLife, ...]
    ends_at: float

    @property
    def removals(self) -> int:
        """How many nodes were taken away."""
        return sum(node.gone_at is not None for node in self.nodes)

    @property
    def most_nodes(self) -> int:
        """The largest number of nodes at one time."""
        changes = [(node.added_at, 1) for node in self.nodes]
        changes += [(node.gone_at, -1) for node in self.nodes if node.gone_at is not None]
        most = there = 0
        for _, change in sorted(changes):
            there += change
            most = max(most, there)
        return most

    def until(self, seconds: float) -> SpotTrace:
        """The trace up to this moment."""
        nodes = tuple(
            NodeLife(node.name, node.added_at, None if node.gone_at is None or node.gone_at > seconds else node.gone_at)
            for node in self.nodes
            if node.added_at < seconds
        )
        return SpotTrace(self.name, nodes, min(seconds, self.ends_at))


def read_spot_trace(path: Path) -> SpotTrace:
    """Read a trace.

    Raises:
        TraceError: when it cannot be read, is of neither form, or contradicts itself.
    """
    text = _text(path)
    nodes, ends_at = _from_counts(path, text) if text.lstrip()[:1] == "{" else _from_events(path, text)
    if not nodes:
        raise TraceError(f"{path}: no node was ever added")
    return SpotTrace(path.name, tuple(nodes), ends_at)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as raw:
            packed = raw.peek(2)[:2] == _GZIP_MAGIC
            content = (gzip.GzipFile(fileobj=raw) if packed else raw).read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise TraceError(f"{path}: has more than {MOST_BYTES // 2**20} MiB; a spot trace is far smaller")
        return content.decode()
    except UnicodeDecodeError:
        raise TraceError(f"{path}: is not UTF-8 text") from None
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _from_events(path: Path, text: str) -> tuple[list[NodeLife], float]:
    alive: dict[str, float] = {}
    lives: list[NodeLife] = []
    now, uses = 0.0, dict[str, int]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        at, event, name = _event(path, number, line)
        if at < now:
            raise TraceError(f"{path}:{number}: the time goes back, from {now:g} s to {at:g} s; sort the lines by time")
        now = at
        if (event == "add") == (name in alive):
            was = "was added before and not removed" if event == "add" else "is not there"
            raise TraceError(f"{path}:{number}: cannot {event} {shown(name)}: it {was}")
        if event == "add":
            if len(alive) == MOST_NODES or len(lives) == MOST_LIVES:
                most = f"{MOST_NODES:,} nodes at once, or {MOST_LIVES:,} in all"
                raise TraceError(f"{path}:{number}: more than {most}; cut the trace")
            alive[name] = at
        else:
            lives.append(_life(name, uses, alive.pop(name), at))
    lives += [_life(name, uses, added, None) for name, added in alive.items()]
    return sorted(lives, key=lambda life: life.added_at), now


def _event(path: Path, number: int, line: str) -> tuple[float, str, str]:
    cells = [cell.strip() for cell in line.split(",")]
    right = len(cells) == 3 and cells[1] in ("add", "remove") and cells[2]
    if not right or not (cells[0].isascii() and cells[0].isdigit()) or len(cells[0]) > len(str(_LONGEST_MS)):
        raise TraceError(
            f"{path}:{number}: {shown(line)} is not MILLISECONDS,add|remove,NODE (as in Oobleck's traces); "
            "the other form that is known is SkyPilot's JSON of numbers of nodes"
        )
    return int(cells[0]) / _MS_PER_SECOND, cells[1], cells[2]


def _life(name: str, uses: dict[str, int], added: float, gone: float | None) -> NodeLife:
    """A node's life; a name that comes again is another machine."""
    uses[name] = uses.get(name, 0) + 1
    return NodeLife(name if uses[name] == 1 else f"{name}.{uses[name]}", added, gone)


def _from_counts(path: Path, text: str) -> tuple[list[NodeLife], float]:
    tick, counts = _counts(path, text)
    alive: list[tuple[str, float]] = []
    lives: list[NodeLife] = []
    made = 0
    for number, count in enumerate(counts):
        now = number * tick
        while len(alive) > count:
            name, added = alive.pop(0)
            lives.append(NodeLife(name, added, now))
        for _ in range(count - len(alive)):
            made += 1
            if made > MOST_LIVES:
                raise TraceError(f"{path}: data[{number}]: more than {MOST_LIVES:,} nodes came and went; cut the trace")
            alive.append((f"node{made}", now))
    lives += [NodeLife(name, added, None) for name, added in alive]
    return sorted(lives, key=lambda life: life.added_at), len(counts) * tick


def _counts(path: Path, text: str) -> tuple[float, Sequence[int]]:
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path}: begins like JSON, but is none: {error}") from None
    metadata, counts = content.get("metadata"), content.get("data")
    tick = metadata.get("gap_seconds") if isinstance(metadata, dict) else None
    if isinstance(tick, bool) or not isinstance(tick, int | float) or not (math.isfinite(tick) and tick > 0):
        raise TraceError(f"{path}: metadata.gap_seconds must be a number of seconds above 0 (got {shown(str(tick))})")
    if not isinstance(counts, list):
        raise TraceError(f"{path}: data must be a list with the number of nodes at each tick")
    for number, count in enumerate(counts):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_NODES:
            what = shown(str(count))
            raise TraceError(f"{path}: data[{number}] must be a whole number from 0 to {MOST_NODES:,} (got {what})")
    return float(tick), counts
