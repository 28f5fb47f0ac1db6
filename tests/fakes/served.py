"""The fake cluster behind a real port, for an agent in a process of its own: its memory is then nobody else's.

Plain HTTP on loopback, one request at a time on each connection, watches as they come. No TLS and no authentication:
both are the real API server's to prove (tests/e2e).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx2
import yaml

from tests.fakes.cluster import FakeCluster

_END: Final = b"\r\n\r\n"


class ServedCluster:
    """Use in an `async with` block; `url` is where it listens."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self._server: asyncio.Server | None = None
        self.url = ""

    async def __aenter__(self) -> ServedCluster:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self._cluster.end_watches()

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for it."""
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
            "users": [{"name": "fake", "user": {"token": "none"}}],
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "current-context": "fake",
        }
        path.write_text(yaml.safe_dump(content))
        return path

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await self._exchange(await reader.readuntil(_END), reader, writer)
        writer.close()

    async def _exchange(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, *rest = head.decode().removesuffix("\r\n\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        response = self._cluster._answer(httpx2.Request(method, self.url + target, headers=headers, content=body))
        if "watch=true" not in target or response.is_error:
            await response.aread()
            writer.write(
                f"HTTP/1.1 {response.status_code} OK\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(response.content)}\r\n\r\n".encode()
                + response.content
            )
            await writer.drain()
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        async for part in response.aiter_raw():
            writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
