"""What tests ask of an agent's process: its pages, and how much memory it takes."""

from __future__ import annotations

import http.client
import os
from pathlib import Path


def get(port: int, path: str, host: str = "127.0.0.1") -> tuple[int, str]:
    """Status and text of a page."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def resident_mebibytes(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20
