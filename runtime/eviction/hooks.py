"""Asks pods over HTTP to save, and returns what they answer.

A pod says by an annotation that it listens; the request goes to the pod's own address, without any credential, follows
no redirect and reads a bounded answer, which nobody unpacks. A pod that could not be reached or is busy is called again
after a pause that grows, while its answer is wanted and for ten minutes at most; one that answers anything else is not.
The contract allows the same request twice (docs/checkpointing.md), and a restarted agent makes it again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import httpx2

from runtime.eviction.marker import LONGEST_ANSWER_BYTES, answer_from_json, request_to_json
from runtime.eviction.steps import CheckpointRequest
from runtime.eviction.view import Answer, PodView

CONNECT_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 600.0
"""A save that takes longer is answered in another way, or not at all; nor is a pod called again after this long."""

FIRST_PAUSE_SECONDS: Final = 0.5
LONGEST_PAUSE_SECONDS: Final = 8.0
"""Between calls of one pod: a process that only starts to listen has several tries even within a notice of 30 s."""

MOST_CALLS: Final = 256
"""Calls at once: a gang of as many pods; the others wait their turn."""

_BUSY: Final = (408, 429)
"""Of the answers that name a mistake of the caller's, those that time mends."""

log = logging.getLogger(__name__)


class _NotNowError(Exception):
    """The pod said that it cannot answer at the moment."""


@dataclass(slots=True)
class _Call:
    """One request to one pod. `again_at` is when it may be made next: at once if it never was, None if not again."""

    until: float
    again_at: float | None
    failures: int = 0
    task: asyncio.Task[None] | None = None


class Hooks:
    """Calls that are under way; `answered` is told of each answer, and says whether that was the end of it."""

    def __init__(
        self,
        answered: Callable[[PodView, Answer], Awaitable[bool]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._answered = answered
        self._monotonic = monotonic
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(LONGEST_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=MOST_CALLS, max_keepalive_connections=0),
            follow_redirects=False,
            trust_env=False,
            verify=False,  # hooks speak plain HTTP: to read every certificate of the system would stop the loop
        )
        self._limit = asyncio.Semaphore(MOST_CALLS)
        self._calls: dict[tuple[str, str], _Call] = {}

    def call(self, pod: PodView, request: CheckpointRequest) -> None:
        """Ask the pod, unless it is being asked or has answered; said again and again while its answer is wanted."""
        now = self._monotonic()
        call = self._calls.setdefault((pod.uid, request.id), _Call(now + LONGEST_SECONDS, again_at=now))
        if call.again_at is not None and now >= call.again_at:
            call.again_at = None
            call.task = asyncio.create_task(self._ask(pod, request, call))

    def keep_only(self, pods: set[str]) -> None:
        """Forget pods that are gone; a call that is under way to one ends."""
        for key in [key for key in self._calls if key[0] not in pods]:
            _cancel(self._calls.pop(key))

    async def close(self) -> None:
        """End every call."""
        tasks = [task for call in self._calls.values() if (task := _cancel(call)) is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.aclose()

    async def _ask(self, pod: PodView, request: CheckpointRequest, call: _Call) -> None:
        fields = {"namespace": pod.namespace, "pod": pod.name, "request": request.id}
        try:
            async with self._limit, asyncio.timeout(LONGEST_SECONDS):
                answer = await self._post(pod.hook, request_to_json(request))
        except (httpx2.HTTPError, httpx2.StreamError, OSError, _NotNowError) as error:
            pause = min(FIRST_PAUSE_SECONDS * 2.0**call.failures, LONGEST_PAUSE_SECONDS)
            again_at = self._monotonic() + pause
            call.again_at = again_at if again_at < call.until else None
            level = logging.WARNING if not call.failures or call.again_at is None else logging.DEBUG
            call.failures += 1
            told = {**fields, "error": str(error) or repr(error), "again": call.again_at is not None}
            log.log(level, "a pod's hook gave no answer", extra=told)
            return
        except (httpx2.InvalidURL, ValueError) as error:
            log.warning("a pod's hook gave no answer", extra={**fields, "error": str(error), "again": False})
            return
        log.info("a pod has saved", extra={**fields, "step": answer.step})
        if not await self._answered(pod, answer):
            self._calls.pop((pod.uid, request.id), None)

    async def _post(self, url: str, body: str) -> Answer:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        async with self._client.stream("POST", url, content=body, headers=headers) as response:
            if response.is_server_error or response.status_code in _BUSY:
                raise _NotNowError(f"it answered {response.status_code}")
            if not response.is_success:
                raise ValueError(f"it answered {response.status_code}; 200 and the checkpoint are expected")
            text = bytearray()
            async for chunk in response.aiter_raw():
                text += chunk
                if len(text) > LONGEST_ANSWER_BYTES:
                    raise ValueError(f"it answered more than {LONGEST_ANSWER_BYTES} bytes")
        return answer_from_json(text.decode(errors="replace"))


def _cancel(call: _Call) -> asyncio.Task[None] | None:
    if call.task is not None:
        call.task.cancel()
    return call.task
