"""Everything this provider can report to its user.

ProviderError
├── KubeconfigError         no usable cluster address or credentials
├── ConditionSyntaxError    an annotation that says what to wait for cannot be read
├── ServerUnreachable       nobody answers at the cluster's address
├── ServerRefused           the API server said no; carries status, reason and causes
├── KindNotServed           the API server does not know the kind
├── ObjectExists            the object is there already, and somebody else made it
├── ObjectMissing           a patch has nothing to change
├── FieldsTaken             somebody else owns what a patch wants to set
├── WaitFailed              a condition did not come in time
├── NotReady                the object is written, but the wait after it failed; carries the object
└── Cancelled               the user pressed Ctrl-C
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any


class ProviderError(Exception):
    """The root: its text is shown to the user as it is."""


class KubeconfigError(ProviderError):
    """No usable cluster address or credentials."""


class ConditionSyntaxError(ProviderError):
    """An annotation that says what to wait for cannot be read."""


class ServerUnreachable(ProviderError):
    """Nobody answers at the cluster's address."""


class ServerRefused(ProviderError):
    """The API server answered with an error `Status` object."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        self.status = status
        self.reason = str(body.get("reason") or "")
        self.causes: list[Mapping[str, Any]] = list((body.get("details") or {}).get("causes") or [])
        super().__init__(str(body.get("message") or f"the API server answered with HTTP {status}"))

    @property
    def is_missing(self) -> bool:
        """The object, its namespace or its kind is not there."""
        return self.status == HTTPStatus.NOT_FOUND

    @property
    def is_invalid(self) -> bool:
        """The object breaks its schema or changes a field that cannot change."""
        return self.status == HTTPStatus.UNPROCESSABLE_ENTITY

    @property
    def ownership_conflicts(self) -> list[str]:
        """One text per field that another field manager owns; empty for other conflicts."""
        return [
            f"{cause.get('field', '')}: {cause.get('message', '')}"
            for cause in self.causes
            if cause.get("reason") == "FieldManagerConflict"
        ]

    @property
    def is_stale_write(self) -> bool:
        """The object changed between the server's read and its write: the same request may simply be sent again."""
        return self.status == HTTPStatus.CONFLICT and self.reason == "Conflict" and not self.ownership_conflicts


class KindNotServed(ProviderError):
    """The API server does not know the kind."""


class ObjectExists(ProviderError):
    """The object is there already, and somebody else made it."""


class ObjectMissing(ProviderError):
    """A patch has nothing to change."""


class FieldsTaken(ProviderError):
    """Somebody else owns what a patch wants to set."""


class WaitFailed(ProviderError):
    """A condition did not come in time."""


class NotReady(ProviderError):
    """The object is written, but the wait after it failed."""

    def __init__(self, error: ProviderError, live: Mapping[str, Any]) -> None:
        self.live = live
        super().__init__(str(error))


class Cancelled(ProviderError):
    """The user pressed Ctrl-C."""
