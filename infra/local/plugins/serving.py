"""How every embedded plugin starts: import the wire protocol, announce the port, live as long as the engine.

It holds no plugin logic. Invariants: one line with the port is the first thing on standard output (the engine
reads nothing else from it), and the process ends within about a second of its parent, because an engine that is
killed does not stop its plugins.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import grpc

PARENT_CHECK_SECONDS = 1.0

# Pulumi's own limit for a message (sdk/python/lib/pulumi/runtime/_grpc_settings.py); gRPC's default is 4 MiB.
MAX_MESSAGE_BYTES = 400 * 1024 * 1024

# A resource that waits for a condition holds a thread; the engine runs 4 steps per core at once by default.
WORKER_THREADS = 64


def import_protocol_only() -> None:
    """Let `pulumi.runtime.proto` be imported without the SDK around it.

    `pulumi/__init__.py` pulls in the whole SDK (0.14 s of 0.25 s, three plugin processes per command), of which a
    plugin needs the generated messages only. Without an installed SDK this does nothing, and the import that
    follows says what is missing.
    """
    found = importlib.util.find_spec("pulumi")
    if found is None or found.origin is None or "pulumi" in sys.modules:
        return
    root = Path(found.origin).parent
    for name, folder in (("pulumi", root), ("pulumi.runtime", root / "runtime")):
        module = types.ModuleType(name)
        module.__path__ = [str(folder)]
        sys.modules[name] = module


def exit_with_parent() -> None:
    """Send this process SIGTERM once the process that started it is gone."""
    parent = os.getppid()

    def watch() -> None:
        never = threading.Event()
        while os.getppid() == parent:
            never.wait(PARENT_CHECK_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def serve(register: Callable[[grpc.Server], None]) -> None:
    """Run a gRPC server on a free loopback port until the engine is done with it.

    Args:
        register: adds the plugin's service to the server.
    """
    exit_with_parent()
    options = [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ]
    server = grpc.server(futures.ThreadPoolExecutor(WORKER_THREADS), options=options)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(f"{port}\n")
        sys.stdout.flush()
    server.wait_for_termination()
