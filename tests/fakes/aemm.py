"""AWS' own mock of the instance metadata service, amazon-ec2-metadata-mock, as a process on loopback.

It requires the tokens of IMDSv2. What it is to say, and when, are its arguments, for it cannot be told while it runs; a
provider that changes its mind is a mock that ends and another on its port.
"""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from infra.local.ports import LOOPBACK, free_ports

TOOL: Final = "ec2-metadata-mock"
_ARGUMENTS: Final = ("--imdsv2", "--mock-ip-count=-1", f"--hostname={LOOPBACK}")
"""A negative count is none: to count addresses it writes a map without a lock, which ends it now and then."""

_PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True)
class Mock:
    """One that listens."""

    port: int
    log_file: Path

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    def was_asked(self, path: str, times: int = 1) -> bool:
        """Whether somebody asked for this path so often, with a token; for what it does not mock it wants none."""
        request = re.compile(rf"(&\{{GET |CatchAllHandler: +){re.escape(path)}\s")
        return len(request.findall(self.log_file.read_text(errors="replace"))) >= times


@contextmanager
def ec2_metadata_mock(binary: Path, log_file: Path, *arguments: str, port: int = 0) -> Iterator[Mock]:
    """Run it on this port or a free one; `arguments` are a command of its own with flags, e.g. ("spot", "-a", "stop")."""
    with log_file.open("wb") as log:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            chosen = port or free_ports(1)[0]
            process = subprocess.Popen(
                [str(binary), *_ARGUMENTS, f"--port={chosen}", *arguments],
                cwd=log_file.parent,
                env={"HOME": str(log_file.parent)},  # it reads a configuration from there, if there is one
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            try:
                if _listens(process, chosen, deadline):
                    yield Mock(chosen, log_file)
                    return
            finally:
                process.kill()
                process.wait()
            if time.monotonic() > deadline:  # until then the port may have been somebody's for a moment
                raise RuntimeError(f"{TOOL} does not listen on port {chosen}: {log_file.read_text()[-2_000:]}")
            time.sleep(0.2)


def _listens(process: subprocess.Popen[bytes], port: int, deadline: float) -> bool:
    """Wait until it listens; False when it has ended, or time is up."""
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection((LOOPBACK, port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return True
    return False
