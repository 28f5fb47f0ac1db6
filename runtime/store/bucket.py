"""One object store, by its URL: the only importer of the object-store client.

It lists, reads, creates and deletes whole objects; it never changes one. It does not know what they hold. Every error
of the client leaves as StoreDown, but an object that is there already, which is an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from runtime.errors import SettingsError, StoreDown

_SCHEMES: Final = ("file", "memory", "s3", "gs", "az")
_PARALLEL_READS: Final = 32
_CLIENT_OPTIONS: Final[Any] = {"timeout": "10s", "connect_timeout": "3s"}
_RETRIES: Final[Any] = {"max_retries": 2, "retry_timeout": timedelta(seconds=15)}


def check_url(url: str) -> str:
    """Return the URL if a ledger can be kept there.

    Raises:
        SettingsError: when its scheme is none of those that can create an object conditionally.
    """
    if urlsplit(url).scheme not in _SCHEMES:
        raise SettingsError(f"ledger {url!r}: must be a URL with one of the schemes {', '.join(_SCHEMES)}")
    return url


@dataclass(frozen=True, slots=True)
class Item:
    """An object by name, and when it was written (real time)."""

    path: str
    written_at: float


class Bucket:
    """A connection to one store, made when it is first used."""

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._client: ObjectStore | None = None

    def is_missing(self) -> bool:
        """Whether it is a directory on this machine that does not exist: a reader must not create it."""
        parts = urlsplit(self.url)
        return parts.scheme == "file" and not Path(unquote(parts.path)).is_dir()

    async def list(self, prefix: str) -> AsyncIterator[Item]:
        """Every object whose path starts with the prefix's parts, in no order.

        Raises:
            StoreDown: when the store cannot be listed.
        """
        with _wrapped():
            async for chunk in self._connected().list(prefix):
                for item in chunk:
                    yield Item(item["path"], item["last_modified"].timestamp())

    async def read(self, path: str) -> bytes:
        """The content of one object.

        Raises:
            StoreDown: when it is not there or cannot be read.
        """
        with _wrapped():
            result = await self._connected().get_async(path)
            return bytes(await result.bytes_async())

    async def read_many(self, paths: Sequence[str]) -> AsyncIterator[tuple[str, bytes]]:
        """Each path with its content, some of them at a time.

        Raises:
            StoreDown: when one is not there or cannot be read.
        """
        for start in range(0, len(paths), _PARALLEL_READS):
            batch = paths[start : start + _PARALLEL_READS]
            for path, content in zip(batch, await asyncio.gather(*map(self.read, batch)), strict=True):
                yield path, content

    async def create(self, path: str, content: bytes) -> bool:
        """Write an object that is not there yet; False where one is, which stays as it was.

        Raises:
            StoreDown: when it is not known to be written.
        """
        with _wrapped():
            try:
                await self._connected().put_async(path, content, mode="create")
            except AlreadyExistsError:
                return False
        return True

    async def delete(self, paths: Sequence[str]) -> None:
        """Delete objects, those that are gone already included.

        Raises:
            StoreDown: when some may still be there.
        """
        if paths:
            with _wrapped():
                try:
                    await self._connected().delete_async(list(paths))
                except FileNotFoundError:
                    await self._delete_one_by_one(paths)

    async def _delete_one_by_one(self, paths: Sequence[str]) -> None:
        """Some stores stop at one that somebody else deleted first."""
        for path in paths:
            try:
                await self._connected().delete_async(path)
            except FileNotFoundError:
                continue

    def _connected(self) -> ObjectStore:
        if self._client is None:
            scheme = urlsplit(self.url).scheme
            if scheme == "file":
                self._client = from_url(self.url, mkdir=True)
            elif scheme == "memory":
                self._client = from_url(self.url)
            else:
                self._client = from_url(self.url, client_options=_CLIENT_OPTIONS, retry_config=_RETRIES)
        return self._client


@contextmanager
def _wrapped() -> Iterator[None]:
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        raise StoreDown(f"{type(error).__name__}: {str(error).partition(chr(10))[0]}") from error
