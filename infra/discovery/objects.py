"""What was read from a cluster, and how to look into it without trusting it.

It interprets nothing. Invariant: the accessors never raise, whatever an object holds: what is absent or malformed reads
as empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stacks.quantities import parse_kube_quantity

Raw = Mapping[str, Any]
"""One object as the API server sent it."""

_LONGEST_REMARK: Final = 500
"""Characters of a comment: what comes from a cluster may be of any length."""


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """The objects of one cluster that say what GPUs it has and who may use them."""

    nodes: tuple[Raw, ...] = ()
    namespaces: tuple[Raw, ...] = ()
    cluster_queues: tuple[Raw, ...] = ()
    local_queues: tuple[Raw, ...] = ()
    resource_flavors: tuple[Raw, ...] = ()
    priority_classes: tuple[Raw, ...] = ()
    cohorts: tuple[Raw, ...] = ()
    node_pools: tuple[Raw, ...] = ()
    """Karpenter's."""
    agent_config: str | None = None
    """The configuration of a gpufleet agent that is there already."""
    agent_deployment: Raw | None = None
    notes: tuple[str, ...] = ()
    """What could not be read, and why."""


def at(raw: object, *path: str) -> Any:
    """The value at a path of keys; None where any part is missing."""
    for key in path:
        if not isinstance(raw, Mapping):
            return None
        raw = raw.get(key)
    return raw


def text_at(raw: object, *path: str) -> str:
    """The text at a path; empty where there is none."""
    value = at(raw, *path)
    return value if isinstance(value, str) else ""


def list_at(raw: object, *path: str) -> list[Any]:
    """The list at a path; empty where there is none."""
    value = at(raw, *path)
    return value if isinstance(value, list) else []


def name_of(raw: object) -> str:
    """The object's name."""
    return text_at(raw, "metadata", "name")


def labels_of(raw: object) -> dict[str, str]:
    """The labels of an object that are text, as all are that an API server let in."""
    labels = at(raw, "metadata", "labels")
    items = labels.items() if isinstance(labels, Mapping) else ()
    return {key: value for key, value in items if isinstance(value, str)}


def whole(quantity: object) -> int:
    """A Kubernetes quantity as a whole number, rounded down; 0 where it is none."""
    try:
        return int(parse_kube_quantity(quantity).amount)
    except ValueError:
        return 0


def count_label(labels: Mapping[str, str], key: str) -> int:
    """A label that counts something; 0 where it does not."""
    value = labels.get(key, "")
    return int(value) if value.isascii() and value.isdigit() and len(value) <= len(str(2**31)) else 0


def remark(text: str) -> str:
    """Text from anywhere as one line that a YAML comment can hold."""
    plain = "".join(one if one.isprintable() and one.isascii() else "?" for one in text)
    return plain if len(plain) <= _LONGEST_REMARK else f"{plain[:_LONGEST_REMARK]}..."


def some(names: list[str], most: int = 3) -> str:
    """A list of names for a comment: the first few, and how many more."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return remark(", ".join(names[:most])) + more
