"""Fetch official releases, with checksums, or give up quickly.

It never installs what it cannot verify: a tool without a pinned digest and without a published checksum is refused.

Invariants: a host that cannot be reached is asked once per run; nothing but verified content reaches the target name.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from infra.local.errors import ToolchainError
from infra.local.versions import Platform, Tool

MIRROR_VARIABLE = "GPUFLEET_MIRROR"
_TIMEOUT = httpx2.Timeout(30.0, connect=4.0)
_CHUNK_BYTES = 1 << 20
_SHA256 = re.compile(r"\b[0-9a-f]{64}\b")
_CHECKSUM_LIMIT_BYTES = 1 << 20  # a checksum list is a few KiB; more is something else


def unverifiable(tool: Tool, target: Platform) -> str:
    """Return why a tool cannot be downloaded at all, empty where it can be tried."""
    if not tool.url:
        return "no binary is released"
    if not tool.checksums and str(target) not in tool.sha256:
        return "the release has no checksum file, and versions.toml pins no sha256"
    return ""


class Downloader:
    """Fetches for one run of the toolchain.

    $GPUFLEET_MIRROR replaces "https://" in every address, so a mirror is laid out as `<mirror>/<host>/<path>`; it may
    be an http(s) URL or a directory.
    """

    def __init__(
        self, environment: Mapping[str, str] = os.environ, transport: httpx2.BaseTransport | None = None
    ) -> None:
        self._mirror = environment.get(MIRROR_VARIABLE, "").rstrip("/")
        self._unreachable: dict[str, str] = {}
        self._transport = transport

    def fetch(
        self, tool: Tool, target: Platform, directory: Path, report: Callable[[float, float | None], None]
    ) -> Path:
        """Put the verified binary into `directory` and return its path.

        Raises:
            ToolchainError: not offered, not reachable, not verified; the message is the bare reason.
        """
        if reason := unverifiable(tool, target):
            raise ToolchainError(reason)
        expected = tool.sha256.get(str(target), "")
        url = tool.filled(tool.url, target)
        expected = expected or self._published_digest(tool, target, url)
        archive = directory / "download"
        digest = self._save(url, archive, report)
        if digest != expected:
            archive.unlink()
            raise ToolchainError(f"{url}: sha256 is {digest}, but {expected} was expected; refused")
        return _unpack(archive, tool, tool.filled(tool.member, target), directory)

    def _published_digest(self, tool: Tool, target: Platform, url: str) -> str:
        address = tool.filled(tool.checksums, target)
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as temporary:
            path = Path(temporary, "checksums")
            self._save(address, path, lambda *_: None)
            if path.stat().st_size > _CHECKSUM_LIMIT_BYTES:
                raise ToolchainError(f"{address}: not a checksum list ({path.stat().st_size} bytes)")
            lines = path.read_text(errors="replace").splitlines()
        file_name = url.rsplit("/", 1)[1]
        matching = [line for line in lines if file_name in line.replace("*", " ").split()] if len(lines) > 1 else lines
        digests: set[str] = {digest for line in matching for digest in _SHA256.findall(line.lower())}
        if len(digests) != 1:
            raise ToolchainError(f"{address}: has no sha256 of {file_name}")
        return digests.pop()

    def _save(self, url: str, path: Path, report: Callable[[float, float | None], None]) -> str:
        """Write the content of an address to `path` and return its sha256."""
        location = f"{self._mirror}/{url.removeprefix('https://')}" if self._mirror else url
        if "://" not in location:
            return self._copy(Path(location), path)
        host: str = urlsplit(location).netloc
        if host in self._unreachable:
            raise ToolchainError(f"{host} cannot be reached ({self._unreachable[host]})")
        digest = hashlib.sha256()
        try:
            with (
                httpx2.Client(timeout=_TIMEOUT, follow_redirects=True, transport=self._transport) as client,
                client.stream("GET", location) as response,
                path.open("wb") as stream,
            ):
                if response.status_code != 200:
                    raise ToolchainError(f"{location}: HTTP {response.status_code}")
                size = response.headers.get("content-length", "")
                for chunk in response.iter_bytes(_CHUNK_BYTES):
                    digest.update(chunk)
                    stream.write(chunk)
                    report(stream.tell() / 1e6, int(size) / 1e6 if size.isdigit() else None)
        except httpx2.TransportError as error:
            reached = getattr(error, "request", None)
            failed = reached.url.host if reached is not None else host
            reason = str(error) or type(error).__name__
            self._unreachable[host] = reason
            self._unreachable[failed] = reason
            raise ToolchainError(f"{failed} cannot be reached ({reason})") from error
        return digest.hexdigest()

    @staticmethod
    def _copy(source: Path, path: Path) -> str:
        try:
            shutil.copyfile(source, path)
        except FileNotFoundError as error:
            raise ToolchainError(f"{source}: not in the mirror") from error
        with path.open("rb") as stream:
            digest: str = hashlib.file_digest(stream, "sha256").hexdigest()
        return digest


def _unpack(archive: Path, tool: Tool, member: str, directory: Path) -> Path:
    """Turn the download into an executable; of an archive, all files beside the wanted one come along."""
    target = directory / tool.name
    if not member:
        archive.rename(target)
    else:
        try:
            with tarfile.open(archive) as content:
                for entry in content:
                    path = Path(entry.name)
                    if entry.isfile() and path.parent == Path(member).parent:
                        _extract(content, entry, directory / path.name)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise ToolchainError(f"not a readable archive ({error})") from error
        archive.unlink()
    if not target.is_file():
        raise ToolchainError(f"the archive has no {member}")
    target.chmod(0o755)
    return target


def _extract(archive: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(entry)
    if content is not None:
        with content, path.open("wb") as stream:
            shutil.copyfileobj(content, stream)
        path.chmod(0o755 if entry.mode & 0o100 else 0o644)
