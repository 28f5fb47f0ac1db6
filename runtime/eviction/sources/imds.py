"""A session with AWS' instance metadata service, version 2: a token that several sources of a node share.

It never asks without a token: what answers then could be anything that stands in between, and node groups should
require tokens anyway. The token is kept in memory only, replaced ahead of its end, and once when it is refused.

How it is asked: AWS, "Use the Instance Metadata Service to access instance metadata".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from runtime.eviction.sources import SourceDown
from runtime.eviction.sources.connection import Connection, Response
from runtime.eviction.sources.parsing import shown

TOKEN_TIMEOUT_SECONDS: Final = 2.0
"""IMDS answers within milliseconds, or, beyond its hop limit, never."""

METADATA_URL: Final = "http://169.254.169.254"

_TOKEN_PATH: Final = "/latest/api/token"
_TOKEN_SECONDS: Final = 21_600  # six hours, the most that IMDS gives
_RENEW_SECONDS: Final = 60.0  # a token is replaced this long before it ends
_TOKEN_HEADER: Final = "X-aws-ec2-metadata-token"
_LIFE_HEADER: Final = "X-aws-ec2-metadata-token-ttl-seconds"

_HOP_LIMIT: Final = (
    "the answer to PUT /latest/api/token did not arrive: a pod that is not on the host's network is one hop further "
    "than httpPutResponseHopLimit 1 allows. Set hostNetwork: true for the node agent, or the hop limit of the node "
    "group to 2"
)


class Imds:
    """One session with the metadata service: the token, shared by the sources of a node."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._token = ""
        self._ends_at = 0.0

    def get(self, connection: Connection, path: str) -> Response:
        """Read a path, with a new token where the old one was refused.

        Raises:
            SourceDown: when there is no token, or it is refused.
        """
        token = self._current(connection)
        response = connection.request("GET", path, {_TOKEN_HEADER: token})
        if response.status == 401:
            token = self._renewed(connection, refused=token)
            response = connection.request("GET", path, {_TOKEN_HEADER: token})
        if response.status == 401:
            raise SourceDown(f"GET {path}: a new token was refused at once (401); something else answers in its place")
        return response

    def _current(self, connection: Connection) -> str:
        with self._lock:
            left = self._ends_at - self._monotonic() if self._token else 0.0
            if left > _RENEW_SECONDS:
                return self._token
            try:
                return self._fetch(connection)
            except SourceDown:
                if left > 0:
                    return self._token  # it still serves; to renew it was early
                raise

    def _renewed(self, connection: Connection, refused: str) -> str:
        with self._lock:
            return self._fetch(connection) if self._token == refused else self._token

    def _fetch(self, connection: Connection) -> str:
        asked_at = self._monotonic()
        try:
            headers = {_LIFE_HEADER: str(_TOKEN_SECONDS)}
            response = connection.request("PUT", _TOKEN_PATH, headers, timeout=TOKEN_TIMEOUT_SECONDS)
        except SourceDown as error:
            raise (SourceDown(_HOP_LIMIT) if isinstance(error.__cause__, TimeoutError) else error) from error
        token = response.text().strip()
        if response.status == 403:
            raise SourceDown(f"PUT {_TOKEN_PATH}: 403; the metadata service is off (HttpEndpoint: enabled turns it on)")
        if response.status != 200 or not token.isascii() or not token.isprintable() or not token:
            raise SourceDown(
                f"PUT {_TOKEN_PATH}: {response.status} {shown(token)}; this is not IMDSv2, and what answers without a "
                "token is not believed"
            )
        seconds = response.headers.get(_LIFE_HEADER.lower(), "")
        self._token = token
        self._ends_at = asked_at + (float(seconds) if seconds.isdecimal() and len(seconds) < 7 else _TOKEN_SECONDS)
        return token
