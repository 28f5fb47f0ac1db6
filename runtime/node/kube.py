"""The node agent's own Node, read and patched over one kept-alive connection to the API server.

It is not the agent's client: it can do these things only, so that it fits on every node. The token and the
certificate of the authority are read anew for each request and connection, because Kubernetes replaces both.

Invariants: an answer is read whole or refused; every failure is an ApiError.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from runtime.eviction.notice import plain
from runtime.eviction.sources import SourceDown
from runtime.eviction.sources.connection import Connection
from runtime.eviction.sources.parsing import parse_object, shown

Raw = Mapping[str, Any]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")

TIMEOUT_SECONDS: Final = 5.0
LONGEST_ANSWER: Final = 1_572_864
"""The most that etcd stores of one object, 1.5 MiB."""

_CONFLICT: Final = 409
_PATCH_TYPE: Final = "application/merge-patch+json"
_STATUS_PATCH_TYPE: Final = "application/strategic-merge-patch+json"
"""Replaces one condition of the list by its type, where a merge patch would replace the kubelet's as well."""


class ApiError(Exception):
    """The API server did not do it; `status` is its answer, 0 where there was none."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status

    @property
    def conflict(self) -> bool:
        """Whether somebody else wrote the Node in between."""
        return self.status == _CONFLICT


class NodeClient:
    """One Node; for one thread."""

    def __init__(self, server: str, node: str, account: Path = SERVICE_ACCOUNT) -> None:
        """Take the URL of the API server, http only for tests, and the directory with `token` and `ca.crt`.

        Raises:
            ValueError: when the URL cannot be used.
        """
        self._account = account
        self._path = f"/api/v1/nodes/{quote(node, safe='')}"
        self._connection = Connection(server, LONGEST_ANSWER, self._trust)

    def get(self, timeout: float = TIMEOUT_SECONDS) -> Raw:
        """Read the Node.

        Raises:
            ApiError: when it cannot be read.
        """
        return self._send("GET", "", {}, None, timeout)

    def patch(self, change: Raw) -> Raw:
        """Change the Node by a merge patch, which replaces its list of taints.

        Raises:
            ApiError: when it was not changed; also when it was, and the answer was lost.
        """
        return self._send("PATCH", "", {"Content-Type": _PATCH_TYPE}, json.dumps(change).encode(), TIMEOUT_SECONDS)

    def patch_status(self, change: Raw) -> Raw:
        """Change the Node's status by a strategic merge patch, which leaves other conditions as they are.

        Raises:
            ApiError: as for `patch`.
        """
        headers = {"Content-Type": _STATUS_PATCH_TYPE}
        return self._send("PATCH", "/status", headers, json.dumps(change).encode(), TIMEOUT_SECONDS)

    def _send(self, method: str, part: str, headers: dict[str, str], body: bytes | None, timeout: float) -> Raw:
        path = self._path + part
        try:
            token = (self._account / "token").read_text().strip()
            headers |= {"Accept": "application/json", "Authorization": f"Bearer {token}"}
            response = self._connection.request(method, path, headers, body, timeout)
        except (SourceDown, OSError, UnicodeDecodeError) as error:
            raise ApiError(str(error)) from error
        if response.status != 200:
            raise ApiError(f"{method} {path}: {response.status} {_reason(response.text())}", response.status)
        try:
            return parse_object(response.text())
        except ValueError as error:
            raise ApiError(f"{method} {path}: {error}") from error

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self._account / "ca.crt")


def _reason(text: str) -> str:
    """The message of a Status, or the beginning of whatever it is."""
    try:
        return plain(str(parse_object(text)["message"]))
    except (ValueError, KeyError):
        return shown(text)
