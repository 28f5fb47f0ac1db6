"""Waits for an object to reach its conditions, or to be gone, by watching it.

It decides nothing about what to wait for. Invariants: a wait ends at its deadline or at Ctrl-C, whichever is first;
while it lasts the user sees what is awaited and what was seen last; and its error names both.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

from infra.local.plugins.kubernetes.client import KubeClient
from infra.local.plugins.kubernetes.conditions import Condition
from infra.local.plugins.kubernetes.errors import Cancelled, ServerRefused, ServerUnreachable, WaitFailed
from infra.local.plugins.kubernetes.identity import Identity, metadata_of

# A watch is renewed at least this often, which also bounds how long a lost connection goes unnoticed.
WATCH_SECONDS = 60

# A pause before a watch that the server ended at once is renewed.
RENEW_SECONDS = 0.2

# The kind or the version to continue from is gone: the object itself must be read again.
_ASK_AGAIN = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})

Report = Callable[[str], None]


class Waiter:
    """Waits on the objects of one cluster."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    def until(
        self,
        identity: Identity,
        path: str,
        live: Mapping[str, Any],
        conditions: list[Condition],
        timeout_seconds: float,
        report: Report,
    ) -> Mapping[str, Any]:
        """The object once all conditions hold.

        Args:
            identity: names the object in messages.
            path: the object's URL path.
            live: the object as it was last seen.
            conditions: all of them must hold at the same moment.
            timeout_seconds: how long to wait.
            report: takes one line for the user whenever something new was seen.

        Raises:
            WaitFailed: they did not hold in time, or the object was deleted meanwhile.
            Cancelled: Ctrl-C.
        """
        said = ""
        for current in self._versions(path, live, time.monotonic() + timeout_seconds):
            if current is None:
                raise WaitFailed(f"{identity} was deleted while waiting for {conditions[0].text}")
            verdicts = [(condition, condition.judge(current)) for condition in conditions]
            pending = [f"{condition.text} ({verdict.seen})" for condition, verdict in verdicts if not verdict.holds]
            if not pending:
                return current
            if (seen := "; ".join(pending)) != said:
                said = seen
                report(f"waiting for {said}")
        self._raise_if_cancelled(f"{identity}: cancelled while waiting for {said}")
        raise WaitFailed(
            f"{identity} is written, but after {timeout_seconds:g} s it still waits for {said}. "
            "It is kept in the state; the next up waits again"
        )

    def until_gone(
        self, identity: Identity, path: str, live: Mapping[str, Any], timeout_seconds: float, report: Report
    ) -> None:
        """Wait until the object, or the very instance of it that `live` shows, does not exist any more.

        Raises:
            WaitFailed: it is still there; the error names the finalizers that hold it.
            Cancelled: Ctrl-C.
        """
        said = ""
        for current in self._versions(path, live, time.monotonic() + timeout_seconds):
            if current is None or metadata_of(current).get("uid") != metadata_of(live).get("uid"):
                return
            finalizers = ", ".join(metadata_of(current).get("finalizers") or []) or _namespace_remains(current)
            seen = f"finalizers: {finalizers}" if finalizers else "no finalizer is left"
            if seen != said:
                said = seen
                report(f"waiting until it is gone ({said})")
        self._raise_if_cancelled(f"{identity}: cancelled while waiting until it is gone")
        raise WaitFailed(
            f"{identity} is being deleted, but after {timeout_seconds:g} s it is still there ({said}); "
            "is the controller that removes the finalizer running?"
        )

    def _versions(self, path: str, live: Mapping[str, Any], deadline: float) -> Iterator[Mapping[str, Any] | None]:
        """The object, then each newer version of it, None once it is gone; ends at the deadline or at Ctrl-C."""
        current: Mapping[str, Any] | None = live
        while current is not None:
            yield current
            yield from self._changes(path, current, deadline)
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self._client.cancelled.wait(min(RENEW_SECONDS, remaining)):
                return
            current = self._client.find(path)
        yield None

    def _changes(self, path: str, current: Mapping[str, Any], deadline: float) -> Iterator[Mapping[str, Any] | None]:
        metadata = metadata_of(current)
        collection, _, name = path.rpartition("/")
        query = {"fieldSelector": f"metadata.name={name}", "resourceVersion": str(metadata.get("resourceVersion", ""))}
        seconds = max(1, math.ceil(min(WATCH_SECONDS, deadline - time.monotonic())))
        try:
            for event in self._client.watch(collection, query, seconds=seconds):
                if event["type"] == "ERROR":
                    return
                yield None if event["type"] == "DELETED" else event["object"]
                if event["type"] == "DELETED":
                    return
        except ServerRefused as refusal:
            if refusal.status not in _ASK_AGAIN:
                raise
        except (Cancelled, ServerUnreachable):
            return  # the caller asks for the object again, which tells a lost connection from a lost server

    def _raise_if_cancelled(self, message: str) -> None:
        if self._client.cancelled.is_set():
            raise Cancelled(message)


def _namespace_remains(manifest: Mapping[str, Any]) -> str:
    """What still holds a namespace: it has finalizers of its own in its spec, and says why in its conditions."""
    if manifest.get("kind") != "Namespace":
        return ""
    remains = [
        str(condition.get("message"))
        for condition in (manifest.get("status") or {}).get("conditions") or []
        if condition.get("status") == "True"
    ]
    return "; ".join([*((manifest.get("spec") or {}).get("finalizers") or []), *remains])
