"""Whose ledger it is: written once by the first agent that uses it, and checked by every later one."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from runtime.cost.topups import shown
from runtime.errors import CorruptEntry, StoreDown
from runtime.store import names
from runtime.store.bucket import Bucket


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose ledger it is: the cluster, by the UID of its namespace kube-system, and how fast its time runs.

    Two clusters, or two speeds, on one ledger would end each other's attempts.
    """

    cluster: str
    replay_speed: float


async def claim(bucket: Bucket, mine: Owner) -> None:
    """Write down whose ledger this is, or see that it is ours.

    Raises:
        StoreDown: when it is another's, or cannot be read or written.
    """
    if not await bucket.create(names.OWNER, json.dumps(asdict(mine), sort_keys=True).encode()):
        content = await bucket.read(names.OWNER)
        try:
            theirs = json.loads(content)
        except (ValueError, RecursionError):
            theirs = content
        if theirs != asdict(mine):
            raise StoreDown(
                f"{names.OWNER} names {shown(theirs)} as its owner, and this agent is {asdict(mine)}; give this stack "
                "a ledger of its own, or move owner.json away if the old owner will never run again"
            )


async def read_owner(bucket: Bucket) -> Owner | None:
    """Whose ledger it is; None where nobody has claimed it yet.

    Raises:
        CorruptEntry: when what stands there names no owner.
        StoreDown: when it cannot be read.
    """
    if names.OWNER not in {item.path async for item in bucket.list(names.ROOT)}:
        return None
    content = await bucket.read(names.OWNER)
    try:
        found = json.loads(content)
        if found.keys() == {"cluster", "replay_speed"}:
            return Owner(str(found["cluster"]), float(found["replay_speed"]))
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass
    raise CorruptEntry(f"{names.OWNER}: names no owner: {shown(content[:60])}")
