"""Free loopback ports, remembered so that a restart keeps addresses (and kubeconfigs) valid.

A port is free at the moment of the look only: another process may take it before its owner listens. The caller sees
that as a failed start and asks again with `forget`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable

from infra.files import write_atomically
from infra.local.state import State, read_json

LOOPBACK = "127.0.0.1"
_PORTS_FILE = "ports.json"


def is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now (a socket in TIME_WAIT does not count as taken)."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def free_ports(count: int) -> list[int]:
    """Return `count` different free ports, chosen by the kernel."""
    probes = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def claim(state: State, names: Iterable[str]) -> dict[str, int]:
    """Return a free port per name: the remembered one where it is still free, else a new one that is remembered."""
    known = remembered(state)
    names = list(names)
    kept = {name: known[name] for name in names if name in known and is_free(known[name])}
    missing = [name for name in names if name not in kept]
    chosen = {**kept, **dict(zip(missing, free_ports(len(missing)), strict=True))}
    if missing:
        write_atomically(state.root / _PORTS_FILE, json.dumps({**known, **chosen}, indent=1))
    return chosen


def remembered(state: State) -> dict[str, int]:
    """Return all remembered ports by name."""
    known = read_json(state.root / _PORTS_FILE)
    if not isinstance(known, dict):
        return {}
    return {name: port for name, port in known.items() if isinstance(port, int) and 0 < port < 65536}


def forget(state: State) -> None:
    """Drop all remembered ports, so that the next `claim` chooses new ones."""
    (state.root / _PORTS_FILE).unlink(missing_ok=True)
