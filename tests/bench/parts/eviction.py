"""How fast a notice is acted on, on the embedded control plane, by us and by aws-node-termination-handler in turns.

The same metadata service plays the machine for both, amazon-ec2-metadata-mock, and a machine has only one of them at a
time. A notice begins with the whole second at which the mock is told to give it, and whoever reads it was started at a
random moment, so that it comes at any phase of their looks. Everything is seen through watches, by this process's clock,
which is also the mock's.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from infra.local.procfs import resident_mib
from infra.local.toolchain import resolve
from tests.bench.parts import handler
from tests.bench.parts.ground import Ground, ground, until
from tests.fakes import aemm, nodeagent
from tests.fakes.metadata import SPOT

EVICTIONS: Final = 20
"""Of each."""

IDLE_SECONDS: Final = 30.0
_ACT_SECONDS: Final = 15.0
"""How long one step of an eviction is waited for; none takes more than a few seconds."""

_NOTICE_SECONDS: Final = 120
_LONGEST_PHASE_SECONDS: Final = 2.0
"""Notices begin at any moment between two looks of whoever looks; nobody looks more rarely than this."""

_LEAD_SECONDS: Final = 6.0
"""From the start of the mock to the notice: the longest phase, the start of a process, and its first look after 2 s."""

_NEVER: Final = "--mock-delay-sec=86400"
_NO_WARNING: Final = "--rebalance-delay-sec=86400"


class MissingError(Exception):
    """A step of an eviction did not come, or what would take it cannot run here."""


@dataclass(frozen=True)
class Times:
    """Seconds from the notice, one for each eviction, sorted; `signal` is the first word to the job that it has to go."""

    cordon: list[float]
    signal: list[float]
    requeue: list[float]
    """Empty where nobody does that."""


@dataclass(frozen=True)
class Footprint:
    """A process that has nothing to do."""

    memory_mib: float
    cpu_millicores: float


@dataclass(frozen=True)
class Found:
    """What one of them does in what time, and takes."""

    times: Times
    idle: Footprint


@dataclass(frozen=True)
class _Side:
    """One of the two: how to run it for a node and a metadata service, and what it does, in order."""

    name: str
    run: Callable[[str, str], AbstractContextManager[subprocess.Popen[bytes]]]
    steps: tuple[str, ...]
    puts_back: bool
    """Whether the job goes on afterwards."""


def measure(evictions: int = EVICTIONS, idle_seconds: float = IDLE_SECONDS) -> tuple[Found, Found]:
    """Start a plane, evict in turns, look at both when idle, stop the plane; ours, and the handler's.

    Raises:
        MissingError: one of them cannot run, or a step did not come.
    """
    if reason := handler.why_not():
        raise MissingError(f"{handler.NAME} needs a mount namespace of its own: {reason}")
    rivals = resolve((aemm.TOOL, handler.TOOL), console=Console(stderr=True))
    with tempfile.TemporaryDirectory(prefix="gpufleet-bench-") as directory:
        root = Path(directory)
        with ground(root, *handler.manifests()) as there:
            rounds = _Rounds(there, rivals.path(aemm.TOOL), root)
            sides = _ours(there, root), _theirs(there, rivals.path(handler.TOOL), root)
            found = [[rounds.evict(side) for side in sides] for _ in range(evictions)]
            ours, theirs = (
                Found(_columns([one[at] for one in found]), rounds.idle(side, idle_seconds))
                for at, side in enumerate(sides)
            )
            return ours, theirs


def _ours(there: Ground, root: Path) -> _Side:
    account = nodeagent.write_account(there.kube, there.state, root / "account")

    def run(node: str, url: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        arguments = ("--provider", "aws", "--metadata-url", url, "--log-level", "ERROR")
        return nodeagent.node_agent(node, server=there.kube.server, account=account, arguments=arguments)

    return _Side("the node agent", run, ("cordon of {node}", "request to {pod}", "requeue of {workload}"), True)


def _theirs(there: Ground, binary: Path, root: Path) -> _Side:
    account = nodeagent.write_account(
        there.kube, there.state, root / "theirs", name=handler.NAME, namespace=handler.NAMESPACE
    )

    def run(node: str, url: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        return handler.handler(binary, node, there.kube, account, url)

    return _Side(handler.NAME, run, ("cordon of {node}", "end of {pod}"), False)


def _columns(rows: list[tuple[float, ...]]) -> Times:
    columns = [sorted(column) for column in zip(*rows, strict=True)]
    return Times(columns[0], columns[1], columns[2] if len(columns) > 2 else [])


class _Rounds:
    def __init__(self, there: Ground, mock: Path, root: Path) -> None:
        self._there, self._mock_binary, self._root = there, mock, root
        self._random = random.Random(6)

    def evict(self, side: _Side) -> tuple[float, ...]:
        """Give one node that runs a job a notice; seconds to each step."""
        while True:
            times, in_time = self._evict(side)
            if in_time:
                return times

    def _evict(self, side: _Side) -> tuple[tuple[float, ...], bool]:
        """As `evict`, and whether the first look came before the notice; on a slow machine it may not."""
        watcher = self._there.watcher
        pod, node = self._random.choice(sorted(watcher.placed().items()))
        job, workload = watcher.jobs()[pod], watcher.expect(node, pod)
        began = math.ceil(time.time() + _LEAD_SECONDS)
        flags = (f"--mock-trigger-time={_utc(began)}", f"--time={_utc(began + _NOTICE_SECONDS)}", _NO_WARNING)
        with self._mock(*flags) as machine:
            time.sleep(self._random.uniform(0, _LONGEST_PHASE_SECONDS))
            with side.run(node, machine.url):
                until(f"{side.name} to look", lambda: machine.was_asked(SPOT), _ACT_SECONDS)
                in_time = time.time() < began
                steps = [text.format(node=node, pod=pod, workload=workload) for text in side.steps]
                for step in steps:
                    try:
                        left = began - time.time() + _ACT_SECONDS
                        until(step, lambda step=step: step in watcher.seen, left)  # type: ignore[misc]
                    except TimeoutError:
                        raise MissingError(
                            f"no {step} by {side.name} within {_ACT_SECONDS:g} s of the notice"
                        ) from None
        times = tuple(watcher.seen[step] - began for step in steps)
        self._there.give_back(node)
        if not side.puts_back:
            self._there.replace(job)
        self._there.await_jobs()
        return times, in_time

    def idle(self, side: _Side, seconds: float) -> Footprint:
        """What it takes while nothing happens."""
        node = sorted(self._there.watcher.placed().values())[0]
        with self._mock(_NEVER, _NO_WARNING) as machine, side.run(node, machine.url) as process:
            until(f"{side.name} to look", lambda: machine.was_asked(SPOT), _ACT_SECONDS)
            before = _cpu_seconds(process.pid)
            time.sleep(seconds)
            used = _cpu_seconds(process.pid) - before
            return Footprint(resident_mib(process.pid), 1_000 * used / seconds)

    def _mock(self, *flags: str) -> AbstractContextManager[aemm.Mock]:
        return aemm.ec2_metadata_mock(self._mock_binary, self._root / "mock.log", "spot", *flags)


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
