"""The language host as the engine meets it: a process that is started, asked to run something, and interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

REPOSITORY = Path(__file__).parents[3]
PROGRAM = """
import os, time
os.write(1, f"{os.getpid()} {os.getpgid(0)}".encode())  # in one piece, unlike print
time.sleep(60)
"""


def gone(process: int) -> bool:
    """Whether no process of this number is left."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


@contextlib.contextmanager
def ended(host: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the host when the test is over, however it went."""
    try:
        yield
    finally:
        host.kill()


def test_an_interrupt_of_the_hosts_group_does_not_reach_the_program_and_yet_ends_it(tmp_path: Path) -> None:
    """The engine ends a plugin so; a program that saw the interrupt would print it over the error that matters."""
    (tmp_path / "__main__.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "infra.local.plugins.language_host", "127.0.0.1:1"]
    host = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, text=True
    )
    with host, ended(host):
        assert host.stdout is not None
        assert host.stderr is not None
        with grpc.insecure_channel(f"127.0.0.1:{host.stdout.readline().strip()}") as channel:
            info = language_pb2.ProgramInfo(root_directory=str(tmp_path), program_directory=str(tmp_path))
            request = language_pb2.RunPluginRequest(kind="tool", pwd=str(tmp_path), info=info)
            answers = language_pb2_grpc.LanguageRuntimeStub(channel).RunPlugin(request, timeout=30)
            process, group = (int(number) for number in next(iter(answers)).stdout.split())
            assert group == process != os.getpgid(host.pid)
            os.killpg(os.getpgid(host.pid), signal.SIGINT)
            assert host.wait(timeout=10) == 0
        assert host.stderr.read() == ""
    waited = threading.Event()
    for _ in range(50):
        if gone(process):
            return
        waited.wait(0.1)
    raise AssertionError("the program outlived its host")
