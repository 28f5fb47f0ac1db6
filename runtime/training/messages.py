"""What the agent asks of a job, and what the job answers: version 1 of the contract in docs/checkpointing.md.

Reads what others wrote, so every limit is checked before anything is believed. Unknown keys are ignored, so that a
later version can add some.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from .errors import BadRequest

VERSION: Final = 1
MAX_REQUEST_BYTES: Final = 16 * 1_024
"""Far more than a request needs; a hook must not be made to hold more."""

MAX_ID_LENGTH: Final = 253
"""As long as a name in Kubernetes may be."""

MAX_URL_LENGTH: Final = 1_024
"""The longest text that the agent reads in an answer."""


@dataclass(frozen=True, slots=True)
class Request:
    """Save now. `deadline` is in seconds since the epoch, by the clock of who asks; None where nobody knows."""

    id: str
    deadline: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was saved. `request` is empty in a termination message that nobody asked for."""

    request: str
    step: int
    url: str
    at: float

    def to_json(self) -> str:
        """One line of compact JSON; a URL that is too long to be read is left out."""
        url = self.url if len(self.url) <= MAX_URL_LENGTH else ""
        value = {"version": VERSION, "request": self.request, "step": self.step, "url": url, "at": self.at}
        return json.dumps(value, separators=(",", ":"))


def parse_request(text: bytes) -> Request:
    """The request in a file or in the body of a POST.

    Raises:
        BadRequest: it is none, and why.
    """
    if len(text) > MAX_REQUEST_BYTES:
        raise BadRequest(f"a request has {len(text)} bytes; at most {MAX_REQUEST_BYTES} are read")
    value = _mapping(text)
    identity = value.get("request")
    if not isinstance(identity, str) or not 0 < len(identity) <= MAX_ID_LENGTH or not identity.isprintable():
        raise BadRequest(f"'request' is {identity!r}: it must be a text of 1 to {MAX_ID_LENGTH} printable characters")
    deadline, reason = value.get("deadline"), value.get("reason", "")
    if deadline is not None and (isinstance(deadline, bool) or not isinstance(deadline, int | float)):
        raise BadRequest(f"'deadline' is {deadline!r}: it must be seconds since the epoch, or null")
    return Request(identity, None if deadline is None else float(deadline), reason if isinstance(reason, str) else "")


def _mapping(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(
            f'a request is not JSON ({error}); it looks like {{"version": 1, "request": "a-name"}}'
        ) from None
    if not isinstance(value, dict):
        raise BadRequest(f"a request is a JSON {type(value).__name__}; it must be an object with the key 'request'")
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no number of JSON")
