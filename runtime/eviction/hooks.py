"""Asks pods over HTTP to save, and returns what they answer.

A pod says by an annotation that it listens; the request goes to the pod's own address, without any credential, follows
no redirect and reads a bounded answer, which nobody unpacks. Each pod is called once for each request by one agent,
whatever comes of it; a restarted one calls again with the same request, which the contract allows
(docs/checkpointing.md).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import httpx2

from runtime.eviction.marker import LONGEST_ANSWER_BYTES, answer_from_json, request_to_json
from runtime.eviction.steps import CheckpointRequest
from runtime.eviction.view import Answer, PodView

CONNECT_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 600.0
"""A save that takes longer is answered in another way, or not at all."""

MOST_CALLS: Final = 256
"""Calls at once: a gang of as many pods; the others wait their turn."""

log = logging.getLogger(__name__)


class Hooks:
    """Calls that are under way; `answered` is told of each answer, and says whether that was the end of it."""

    def __init__(self, answered: Callable[[PodView, Answer], Awaitable[bool]]) -> None:
        self._answered = answered
        self._client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(LONGEST_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(max_connections=MOST_CALLS, max_keepalive_connections=0),
            follow_redirects=False,
            trust_env=False,
            verify=False,  # hooks speak plain HTTP: to read every certificate of the system would stop the loop
        )
        self._limit = asyncio.Semaphore(MOST_CALLS)
        self._calls: dict[tuple[str, str], asyncio.Task[None]] = {}

    def call(self, pod: PodView, request: CheckpointRequest) -> None:
        """Begin to ask the pod, unless it was asked the same before."""
        key = (pod.uid, request.id)
        if key not in self._calls:
            self._calls[key] = asyncio.create_task(self._ask(pod, request))

    def keep_only(self, pods: set[str]) -> None:
        """Forget pods that are gone; a call that is under way to one ends."""
        for key in [key for key in self._calls if key[0] not in pods]:
            self._calls.pop(key).cancel()

    async def close(self) -> None:
        """End every call."""
        calls = list(self._calls.values())
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._client.aclose()

    async def _ask(self, pod: PodView, request: CheckpointRequest) -> None:
        fields = {"namespace": pod.namespace, "pod": pod.name, "request": request.id}
        try:
            async with self._limit, asyncio.timeout(LONGEST_SECONDS):
                answer = await self._post(pod.hook, request_to_json(request))
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError, ValueError) as error:
            log.warning("a pod's hook gave no answer", extra={**fields, "error": str(error) or repr(error)})
            return
        log.info("a pod has saved", extra={**fields, "step": answer.step})
        if not await self._answered(pod, answer):
            self._calls.pop((pod.uid, request.id), None)

    async def _post(self, url: str, body: str) -> Answer:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        async with self._client.stream("POST", url, content=body, headers=headers) as response:
            if not response.is_success:
                raise ValueError(f"it answered {response.status_code}; 200 and the checkpoint are expected")
            text = bytearray()
            async for chunk in response.aiter_raw():
                text += chunk
                if len(text) > LONGEST_ANSWER_BYTES:
                    raise ValueError(f"it answered more than {LONGEST_ANSWER_BYTES} bytes")
        return answer_from_json(text.decode(errors="replace"))
