"""The ledger's entries in an object store: the only importer of the object-store client.

Layout: `v1/<YYYY-MM>/<workload uid>.<attempt>.open.json` and `….close.json`, both in the month of the opening in fleet
time. Objects are created once, by conditional put, and never changed; whoever comes second reads what stands there.
What an entry holds is runtime.cost.entries' business.

The copy in memory holds the current and the previous month, every attempt without a closing, and what was closed in
the last two months. All names are listed at the start and after every failure, later only those of live months.

Money fails closed. Any doubt about the store makes `books` None, so that no money moves:

- store unreachable, or a write without a clear answer: until the next complete read;
- an opening that cannot be read: as long as it can count in a budget, that is until its month and the next are over.
  It is named in the log and counted in a metric. Put it back from a copy or, if its job never ran in the cloud, move
  it out of `v1/`; the next read sees it. Object stores write whole objects, so this takes a damaged disk or a hand;
- a closing that cannot be read: nothing stops; its attempt keeps counting as open, which is never too little.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import ObjectStore, from_url

from runtime import metrics
from runtime.clock import Clock
from runtime.cost.entries import EntryError, closing_from_dict, closing_to_dict, opening_from_dict, opening_to_dict
from runtime.cost.ledger import Attempt, Books, Closing, Opening
from runtime.errors import CorruptEntry, SettingsError, StoreDown

_ROOT: Final = "v1"
_OWNER: Final = f"{_ROOT}/owner.json"
_NAME: Final = re.compile(rf"{_ROOT}/(\d{{4}}-\d{{2}})/([^/]+)\.(\d+)\.(open|close)\.json")
_SCHEMES: Final = ("file", "memory", "s3", "gs", "az")
_PARALLEL_READS: Final = 32
_CLIENT_OPTIONS: Final[Any] = {"timeout": "10s", "connect_timeout": "3s"}
_RETRIES: Final[Any] = {"max_retries": 2, "retry_timeout": timedelta(seconds=15)}

RECENT_SECONDS: Final = 62 * 86_400
"""Two months at their longest: an attempt that was closed longer ago touches no month that counts."""

log = logging.getLogger(__name__)
Entry = TypeVar("Entry", Opening, Closing)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose ledger it is: the cluster, by the UID of its namespace kube-system, and how fast its time runs.

    Two clusters, or two speeds, on one ledger would end each other's attempts.
    """

    cluster: str
    replay_speed: float


@dataclass(frozen=True, slots=True)
class _Name:
    """Where an entry stands, and when it was written (real time)."""

    path: str
    month: str
    attempt: Attempt
    written_at: float


@dataclass(slots=True)
class _Listing:
    """What the store holds, by name alone."""

    openings: dict[Attempt, _Name]
    closings: dict[Attempt, _Name]


def check_url(url: str) -> str:
    """Return the URL if a ledger can be kept there.

    Raises:
        SettingsError: when its scheme is none of those that can create an object conditionally.
    """
    if urlsplit(url).scheme not in _SCHEMES:
        raise SettingsError(f"ledger {url!r}: must be a URL with one of the schemes {', '.join(_SCHEMES)}")
    return url


class Store:
    """The ledger of one fleet. Entries of different attempts may be written at once; nothing may while it is read."""

    def __init__(self, url: str, clock: Clock, owner: Owner) -> None:
        self._url = check_url(url)
        self._clock = clock
        self._owner = owner
        self._client: ObjectStore | None = None
        self._openings: dict[Attempt, Opening] = {}
        self._closings: dict[Attempt, Closing] = {}
        self._complete = False
        self._blocking: tuple[str, ...] = ()

    @property
    def books(self) -> Books | None:
        """The ledger as last read and since written, or None while in doubt."""
        if not self._complete or self._blocking:
            return None
        return Books(openings=dict(self._openings), closings=dict(self._closings))

    async def refresh(self) -> None:
        """Read what is there and not yet known.

        Raises:
            StoreDown: when the store cannot be read or is another's; `books` is None until a later refresh succeeds.
        """
        live = _live_months(self._clock.now())
        everything = not self._complete
        if everything:
            await self._claim()
        async with self._doubt("reading the ledger"):
            listing = await self._list(None if everything else live | self._open_months())
            wanted = {attempt for attempt, name in listing.openings.items() if self._counts(name, listing, live)}
            if everything:
                self._openings.clear()
                self._closings.clear()
            unread_openings = await self._read(_pick(listing.openings, wanted, self._openings), self._openings)
            unread_closings = await self._read(_pick(listing.closings, wanted, self._closings), self._closings)
        self._forget(live)
        self._blocking = tuple(name.path for name in unread_openings if name.month in live)
        self._complete = True
        metrics.corrupt_entries.set(len(unread_openings) + len(unread_closings))
        metrics.ledger_up.set(not self._blocking)
        if self._blocking:
            log.error(
                "openings cannot be read, no money may move: put them back, or move them out of v1/ "
                "if their jobs never ran in the cloud",
                extra={"entries": self._blocking},
            )

    async def _claim(self) -> None:
        """Write down whose ledger this is, or see that it is ours."""
        async with self._doubt("claiming the ledger"):
            mine = asdict(self._owner)
            try:
                await self._connected().put_async(_OWNER, json.dumps(mine, sort_keys=True).encode(), mode="create")
            except AlreadyExistsError:
                theirs = json.loads(await self._content(_OWNER))
                if theirs != mine:
                    raise ValueError(
                        f"{_OWNER} names {theirs} as its owner, and this agent is {mine}; give this stack a ledger of "
                        "its own, or move owner.json away if the old owner will never run again"
                    ) from None

    async def open(self, opening: Opening) -> Opening:
        """Commit the money of one attempt, once; returns the opening that stands, which an earlier try may have made.

        Raises:
            StoreDown: when it is not known to be committed.
            CorruptEntry: when an earlier try stands there and cannot be read.
        """
        if known := self._openings.get(opening.attempt):
            return known
        self._must_be_sure()
        path = _path(opening.attempt, opening.opened_at, "open")
        stands = await self._create(path, opening_to_dict(opening), opening_from_dict)
        self._openings[opening.attempt] = opening if stands is None else stands
        return self._openings[opening.attempt]

    async def close(self, closing: Closing) -> Closing:
        """Record the end of an attempt, once; returns the closing that stands.

        Raises:
            StoreDown: when it is not known to be recorded, or its opening is not known.
            CorruptEntry: when an earlier try stands there and cannot be read.
        """
        if known := self._closings.get(closing.attempt):
            return known
        self._must_be_sure()
        opening = self._openings.get(closing.attempt)
        if opening is None:
            raise StoreDown(f"closing {closing.attempt}: its opening has not been read")
        path = _path(closing.attempt, opening.opened_at, "close")
        stands = await self._create(path, closing_to_dict(closing), closing_from_dict)
        self._closings[closing.attempt] = closing if stands is None else stands
        return self._closings[closing.attempt]

    def _must_be_sure(self) -> None:
        """Fail at once while in doubt: each write would wait for the same lost store, and some may have happened."""
        if not self._complete:
            raise StoreDown("the ledger is in doubt since an earlier failure; it is read again first")

    async def _create(self, path: str, entry: dict[str, Any], parse: Callable[[object], Entry]) -> Entry | None:
        content = json.dumps(entry, separators=(",", ":"), sort_keys=True).encode()
        async with self._doubt(f"writing {path}"):
            try:
                await self._connected().put_async(path, content, mode="create")
            except AlreadyExistsError:
                stands = await self._content(path)
            else:
                return None
        return _parse(path, stands, parse)

    async def _list(self, months: Iterable[str] | None) -> _Listing:
        listing = _Listing({}, {})
        for prefix in [_ROOT] if months is None else [f"{_ROOT}/{month}" for month in sorted(months)]:
            async for chunk in self._connected().list(prefix):
                for item in chunk:
                    if match := _NAME.fullmatch(item["path"]):
                        month, uid, second, kind = match.groups()
                        attempt = Attempt(uid, int(second))
                        name = _Name(item["path"], month, attempt, item["last_modified"].timestamp())
                        (listing.openings if kind == "open" else listing.closings)[attempt] = name
        return listing

    def _counts(self, name: _Name, listing: _Listing, live: set[str]) -> bool:
        closed = listing.closings.get(name.attempt)
        oldest = self._clock.real_now() - RECENT_SECONDS
        return name.month in live or closed is None or closed.written_at >= oldest

    async def _read(self, names: list[_Name], into: dict[Attempt, Entry]) -> list[_Name]:
        """Read entries into the copy; returns those that cannot be read."""
        parse: Any = opening_from_dict if into is self._openings else closing_from_dict
        unread = []
        for start in range(0, len(names), _PARALLEL_READS):
            batch = names[start : start + _PARALLEL_READS]
            contents = await asyncio.gather(*(self._content(name.path) for name in batch))
            for name, content in zip(batch, contents, strict=True):
                try:
                    entry = _parse(name.path, content, parse)
                    if entry.attempt != name.attempt:
                        raise CorruptEntry(f"{name.path}: holds another attempt, {entry.attempt}")
                    into[name.attempt] = entry
                except CorruptEntry as error:
                    unread.append(name)
                    log.error("an entry of the ledger cannot be read", extra={"error": str(error)})
        return unread

    async def _content(self, path: str) -> bytes:
        result = await self._connected().get_async(path)
        return bytes(await result.bytes_async())

    def _open_months(self) -> set[str]:
        unclosed = self._openings.keys() - self._closings.keys()
        return {_month(self._openings[attempt].opened_at) for attempt in unclosed}

    def _forget(self, live: set[str]) -> None:
        """Drop what ended before the live months."""
        for attempt, closing in list(self._closings.items()):
            opening = self._openings.get(attempt)
            if _month(closing.ended_at) not in live and closing.ended_at < self._clock.now():
                del self._closings[attempt]
                if opening is not None:
                    del self._openings[attempt]

    def _connected(self) -> ObjectStore:
        if self._client is None:
            if urlsplit(self._url).scheme == "file":
                self._client = from_url(self._url, mkdir=True)
            elif urlsplit(self._url).scheme == "memory":
                self._client = from_url(self._url)
            else:
                self._client = from_url(self._url, client_options=_CLIENT_OPTIONS, retry_config=_RETRIES)
        return self._client

    @asynccontextmanager
    async def _doubt(self, doing: str) -> AsyncIterator[None]:
        """Whatever goes wrong inside leaves the copy in doubt."""
        try:
            yield
        except (BaseError, OSError, ValueError) as error:
            self._complete = False
            metrics.ledger_up.set(0)
            raise StoreDown(f"{doing}: {type(error).__name__}: {str(error).partition(chr(10))[0]}") from error


def _parse(path: str, content: bytes, parse: Callable[[object], Entry]) -> Entry:
    try:
        return parse(json.loads(content))
    except (EntryError, ValueError, RecursionError) as error:
        raise CorruptEntry(f"{path}: {error}") from error


def _pick(names: dict[Attempt, _Name], wanted: set[Attempt], known: dict[Attempt, Any]) -> list[_Name]:
    return [name for attempt, name in names.items() if attempt in wanted and attempt not in known]


def _path(attempt: Attempt, opened_at: float, kind: str) -> str:
    return f"{_ROOT}/{_month(opened_at)}/{attempt.workload_uid}.{attempt.reserved_at}.{kind}.json"


def _month(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m")


def _live_months(now: float) -> set[str]:
    first = datetime.fromtimestamp(now, UTC).replace(day=1)
    return {first.strftime("%Y-%m"), (first - timedelta(days=1)).strftime("%Y-%m")}
