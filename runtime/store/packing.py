"""What the packing of attempts and that of losses have in common: when a day is ripe, and how its file is written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from runtime.errors import CorruptEntry
from runtime.store import names
from runtime.store.bucket import Bucket

REST_SECONDS: Final = 2 * 86_400
"""A day rests so long before it is packed: nobody still writes to it, and people find recent entries one by one."""


def is_ripe(day: str, now: float) -> bool:
    """Whether the day has been over for long enough."""
    return now >= names.day_end(day) + REST_SECONDS


async def write_checked(bucket: Bucket, path: str, content: bytes, reads_back: Callable[[bytes], bool]) -> bool:
    """Write a day's file and read it back; False where somebody else wrote one in the meantime.

    Raises:
        CorruptEntry: when it does not read back; then it is taken away again.
        StoreDown: when the store fails on the way.
    """
    if not await bucket.create(path, content):
        return False
    try:
        same = reads_back(await bucket.read(path))
    except CorruptEntry:
        same = False
    if not same:
        await bucket.delete([path])
        raise CorruptEntry(f"{path}: did not read back as it was written, and was taken away again")
    return True
