"""What Kueue's own configuration must say so that jobs with GPUs are admitted as nodes offer them.

Quotas cover every device by the name that nodes give it (`stacks.devices`), `nvidia.com/gpu` for slices of strategy
single, so nothing is transformed: a transformed request would be admitted for what no node offers. Network cards are
shared by many pods and are no quota; Kueue admits no pod that asks for a resource which no quota covers, unless its
configuration leaves that resource out.
"""

from __future__ import annotations

from typing import Any, Final

from stacks.fleet import Fleet

_CARDS: Final = "rdma/"


def resources(fleet: Fleet) -> dict[str, Any]:
    """The section `resources` of Kueue's Configuration; empty where the defaults do."""
    shared = any(pool.rdma is not None for pool in fleet.onprem_pools.values())
    return {"excludeResourcePrefixes": [_CARDS]} if shared else {}
