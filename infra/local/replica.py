"""One replica of a Deployment as a real local process: start, restart with back-off, probe, end.

It decides nothing about how many there are; `podrunner` does. Each `tick` is short: probes run in threads, and ending
a process is a signal now and a look at later ticks.

Invariant: between a signal and the end of the process no successor is started.
"""

from __future__ import annotations

import concurrent.futures
import datetime
import os
import shutil
import signal
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from infra.local import podvolumes, ports, processes
from infra.local.errors import LocalError, disk_full_is_plain
from infra.local.kubeclient import KubeClient
from infra.local.podspec import PodPlan, ReadinessProbe
from infra.local.state import State

PROCESS_PREFIX = "pod."
# A kubelet waits 10 s to 5 min and forgets after 10 min; here time is short, and a crash loop of one process is cheap.
_FIRST_BACK_OFF_SECONDS = 0.5
_LONGEST_BACK_OFF_SECONDS = 8.0
_STABLE_AFTER_SECONDS = 5.0  # a run of this length forgets earlier failures
_REFRESH_SECONDS = 2.0  # how late a changed ConfigMap may be seen; a kubelet takes up to a minute
_EAGER_PROBE_SECONDS = 1.0  # until ready: a local start should not wait for a ten-second period


class Replica:
    """The life of one replica; the owner calls `tick` about twice a second."""

    def __init__(self, state: State, client: KubeClient, plan: PodPlan, slot: str, python: str) -> None:
        self.plan = plan
        self.message = "starting"
        self.ready = False
        self._state = state
        self._client = client
        self._slot = slot
        self._python = python
        self._record: processes.ProcessRecord | None = None
        self._ports: dict[str, int] = {}
        self._account = podvolumes.ServiceAccountFiles(state, client, plan) if plan.service_account else None
        self._started_at = 0.0
        self._next_start = 0.0
        self._back_off = _FIRST_BACK_OFF_SECONDS
        self._kill_at: float | None = None
        self._failures = 0
        self._next_probe = 0.0
        self._next_refresh = 0.0
        self._probing: concurrent.futures.Future[bool] | None = None

    @property
    def ending(self) -> bool:
        """Whether it was told to end."""
        return self._kill_at is not None

    @property
    def gone(self) -> bool:
        """Whether it was told to end, and has."""
        return self.ending and self._record is None

    def end(self) -> None:
        """Tell it to end: SIGTERM now, SIGKILL after the grace period of its template."""
        if self.ending:
            return
        self._kill_at = time.monotonic() + self.plan.grace_seconds
        self.ready = False
        if self._record is not None:
            _signal(self._record, signal.SIGTERM)

    def clean_up(self) -> None:
        """Remove its directory; its claims stay."""
        shutil.rmtree(podvolumes.pod_directory(self._state, self.plan), ignore_errors=True)

    def tick(self, now: datetime.datetime, executor: concurrent.futures.Executor) -> None:
        """Look at the process once and do what is due."""
        clock = time.monotonic()
        if self._record is not None and not self._record.alive:
            self._note_exit(self._record, clock)
        if self._record is not None:
            if self._kill_at is not None:
                if clock >= self._kill_at:
                    _signal(self._record, signal.SIGKILL)
                return
            self._keep(now, clock, executor)
        elif not self.ending and clock >= self._next_start:
            self._start(now, clock)

    def _start(self, now: datetime.datetime, clock: float) -> None:
        try:
            with disk_full_is_plain(self._state.root):
                self._record = self._spawn(now)
        except LocalError as error:
            self.message = str(error)
            self._delay(clock)
            return
        self._started_at, self.message = clock, "running"
        self._next_probe, self._failures = clock, 0
        self.ready = self.plan.probe is None

    def _spawn(self, now: datetime.datetime) -> processes.ProcessRecord:
        directories = podvolumes.prepare(self._state, self._client, self.plan)
        if self._account:
            self._account.refresh(now)
        if not self._ports:
            names = [name for name, _ in self.plan.ports]
            self._ports = dict(zip(names, ports.free_ports(len(names)), strict=True))
        command, variables = self.plan.localized(directories, self._ports, self._python)
        return processes.spawn(
            self._state,
            f"{PROCESS_PREFIX}{self._slot}",
            [_executable(command[0]), *command[1:]],
            environment={**variables, **self._environment()},
            ports=self._ports,
        )

    def _environment(self) -> dict[str, str]:
        environment = {
            "PATH": f"{Path(self._python).parent}:{os.environ.get('PATH', os.defpath)}",
            "HOME": str(podvolumes.pod_directory(self._state, self.plan)),
            "HOSTNAME": self.plan.name,
        }
        if self._account:
            server = urlsplit(self._client.server)
            environment["KUBERNETES_SERVICE_HOST"] = server.hostname or ""
            environment["KUBERNETES_SERVICE_PORT"] = str(server.port)
            environment[podvolumes.SERVICE_ACCOUNT_VARIABLE] = str(self._account.directory)
        return environment

    def _note_exit(self, record: processes.ProcessRecord, clock: float) -> None:
        code = processes.reap(record.pid) if record.pid is not None else None
        self.message = f"ended with exit code {code}: {processes.log_tail(record, lines=1)}"
        processes.forget(self._state, record.name)
        self._record, self.ready, self._probing = None, False, None
        self._ports = {}  # perhaps a port was the reason
        if clock - self._started_at >= _STABLE_AFTER_SECONDS:
            self._back_off = _FIRST_BACK_OFF_SECONDS
        self._delay(clock)

    def _delay(self, clock: float) -> None:
        self._next_start = clock + self._back_off
        self._back_off = min(2 * self._back_off, _LONGEST_BACK_OFF_SECONDS)

    def _keep(self, now: datetime.datetime, clock: float, executor: concurrent.futures.Executor) -> None:
        if clock >= self._next_refresh:
            self._next_refresh = clock + _REFRESH_SECONDS
            self._refresh(now)
        if self.plan.probe is not None:
            self._probe(self.plan.probe, clock, executor)

    def _refresh(self, now: datetime.datetime) -> None:
        try:
            with disk_full_is_plain(self._state.root):
                podvolumes.refresh(self._state, self._client, self.plan)
                if self._account:
                    self._account.refresh(now)
            self.message = "running"
        except LocalError as error:
            self.message = f"running, but its files cannot be refreshed: {error}"

    def _probe(self, probe: ReadinessProbe, clock: float, executor: concurrent.futures.Executor) -> None:
        if self._probing is not None and self._probing.done():
            self._failures = 0 if self._probing.result() else self._failures + 1
            if self._failures == 0:
                self.ready = True
            elif self._failures >= probe.failure_threshold:
                self.ready = False
            period = probe.period_seconds if self.ready else min(probe.period_seconds, _EAGER_PROBE_SECONDS)
            self._probing, self._next_probe = None, clock + period
        if self._probing is None and clock >= self._next_probe:
            url = f"http://{ports.LOOPBACK}:{self._ports[probe.port]}{probe.path}"
            self._probing = executor.submit(_answers, url, probe.timeout_seconds)


def _answers(url: str, timeout_seconds: float) -> bool:
    try:
        return 200 <= httpx2.get(url, timeout=timeout_seconds, trust_env=False).status_code < 400
    except httpx2.HTTPError:
        return False


def _executable(name: str) -> str:
    return shutil.which(name) or name


def _signal(record: processes.ProcessRecord, number: signal.Signals) -> None:
    if record.pid is not None and record.alive:
        os.kill(record.pid, number)
