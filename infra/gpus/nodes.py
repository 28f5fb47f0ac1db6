"""From layouts of GPUs to layouts of nodes, in the form of the stack file: profiles by GPU index.

Nodes of a pool are equal, so a plan for many GPUs becomes as few different nodes as its groups allow: groups are laid
out one after another, and only nodes on a border between groups differ.

Invariants: every GPU of a plan is on one node; GPUs that are left over on the last node are not named, and stay whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from infra.gpus.plan import Plan

NodeLayout = dict[str, list[str]]
"""As the stack file has it: GPU indexes → profiles."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Equal nodes."""

    count: int
    layout: NodeLayout = field(hash=False)
    used: int
    """GPUs of each that are cut."""


def node_layout(gpus: Iterable[Sequence[str]]) -> NodeLayout:
    """Profiles by GPU index, with equal neighbours in one range: `{"0-5": ["3g.40gb", "2x1g.10gb"], "6": [...]}`."""
    layout: NodeLayout = {}
    index = 0
    for profiles, equal in groupby(gpus):
        last = index + len(list(equal)) - 1
        key = str(index) if last == index else f"{index}-{last}"
        layout[key] = [name if times == 1 else f"{times}x{name}" for name, times in Counter(profiles).items()]
        index = last + 1
    return layout


def nodes_of(plan: Plan, gpus_per_node: int) -> list[Nodes]:
    """The nodes that a plan takes, the most numerous first."""
    found: Counter[tuple[tuple[str, ...], ...]] = Counter()
    for node, count in _filled(plan, gpus_per_node):
        found[node] += count
    return [Nodes(count, node_layout(node), len(node)) for node, count in found.most_common()]


def _filled(plan: Plan, gpus_per_node: int) -> Iterator[tuple[tuple[tuple[str, ...], ...], int]]:
    """Nodes one after another; a run of equal ones as one."""
    node: list[tuple[str, ...]] = []
    for group in plan.groups:
        profiles, left = tuple(reversed(group.profiles)), group.count
        while left:
            if not node and left >= gpus_per_node:
                yield (profiles,) * gpus_per_node, left // gpus_per_node
                left %= gpus_per_node
                continue
            taken = min(left, gpus_per_node - len(node))
            node += [profiles] * taken
            left -= taken
            if len(node) == gpus_per_node:
                yield tuple(node), 1
                node = []
    if node:
        yield tuple(node), 1
