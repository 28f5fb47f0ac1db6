"""Start, watch over and stop one embedded control plane.

It supervises nothing: a process that dies stays dead until the next `start`, which notices and repairs. It makes no
fleet objects; those come from the Pulumi program.

Invariants: `start` ends with everything healthy or with nothing running; both `start` and `stop` can be repeated after
any crash; data in etcd survives all of them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from infra.local import components, kueue, kwok, pki, ports, processes, procfs, readiness
from infra.local.components import Component
from infra.local.errors import LocalError, disk_full_is_plain, require_free_space
from infra.local.kubeclient import KubeClient
from infra.local.progress import Step, step
from infra.local.readiness import PortTakenError, Waiter
from infra.local.state import State
from infra.local.toolchain import Toolchain

_NEEDED_GIB = 1.0  # etcd's quota is 2 GiB at most; a few thousand jobs stay far below 1
_START_ATTEMPTS = 3  # a port can be taken between our look and the server's; twice in a row is no accident
_CONTROLLER_GRACE_SECONDS = 5.0  # controllers keep nothing of their own: killing one loses nothing


@dataclass(frozen=True)
class ComponentStatus:
    """One line of `status`."""

    name: str
    running: bool
    pid: int | None
    memory_mib: float
    ports: Mapping[str, int]
    log: Path


class ControlPlane:
    """The control plane of one state directory. `options` count when it starts; a plane that runs keeps its own."""

    def __init__(self, state: State, tools: Toolchain, options: kueue.KueueOptions = kueue.DEFAULT_OPTIONS) -> None:
        self._state = state
        self._tools = tools
        self._options = options

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig; valid while the plane runs, and after a restart."""
        return self._state.kubeconfig

    def start(self, pools: Sequence[kwok.KwokPool] = (), *, console: Console | None = None) -> float:
        """Bring the plane up with exactly these simulated nodes; return the seconds it took.

        A running plane is kept and only its nodes are changed. What is left of a plane that crashed or was killed is
        stopped first, and the new one continues on the same data.

        Raises:
            LockedError: another command changes this stack.
            DiskSpaceError: too little space, or none left on the way.
            ProcessError: a process did not become healthy; the message has the end of its log.
        """
        console = console or Console(stderr=True)
        kwok.nodes(pools)  # a wrong pool is refused before anything is started
        began = time.monotonic()
        with self._state.lock("starts the control plane"), disk_full_is_plain(self._state.root):
            if self._is_healthy():
                self._complete(pools, console)
            else:
                self._stop_leftovers(console)
                require_free_space(self._state.root, _NEEDED_GIB, "the control plane")
                with step(console, "start control plane") as progress:
                    self._start_anew(pools, console, progress)
        return time.monotonic() - began

    def stop(self) -> None:
        """Stop every process of this state directory, whoever started it; nothing happens where none runs.

        Raises:
            LockedError: another command changes this stack.
            ProcessError: a process survives SIGKILL.
        """
        with self._state.lock("stops the control plane"):
            stop_all(self._state)

    def status(self) -> list[ComponentStatus]:
        """Return one entry per component and per process that the pod runner started."""
        found, known = processes.find(self._state), processes.records(self._state)
        names = [*components.NAMES, *sorted((set(found) | set(known)) - set(components.NAMES))]
        return [self._status_of(name, found.get(name, []), known.get(name)) for name in names]

    def _status_of(self, name: str, pids: Sequence[int], record: processes.ProcessRecord | None) -> ComponentStatus:
        log = Path(record.log) if record else self._state.logs / f"{name}.log"
        memory = sum(procfs.resident_mib(pid) for pid in pids)
        return ComponentStatus(name, bool(pids), pids[0] if pids else None, memory, record.ports if record else {}, log)

    def _is_healthy(self) -> bool:
        known = processes.records(self._state)
        if not all(name in known and known[name].alive for name in components.CORE):
            return False
        try:
            with KubeClient(self.kubeconfig) as client:
                return client.request("GET", "/readyz") == "ok" and kueue.webhooks_answer(client)
        except LocalError:
            return False

    def _stop_leftovers(self, console: Console) -> None:
        running = sorted(processes.find(self._state))
        if running:
            console.print(
                f"found a control plane that is only partly up ({', '.join(running)}); "
                "stopping it and starting again on the same data"
            )
        stop_all(self._state)

    def _start_anew(self, pools: Sequence[kwok.KwokPool], console: Console, progress: Step) -> None:
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                self._start_once(pools, progress)
                return
            except PortTakenError as error:
                stop_all(self._state)
                ports.forget(self._state)
                if attempt == _START_ATTEMPTS:
                    raise
                console.print(f"{str(error).splitlines()[0]}; trying again with other ports")
            except BaseException:
                stop_all(self._state)
                raise

    def _start_once(self, pools: Sequence[kwok.KwokPool], progress: Step) -> None:
        keys = pki.make(self._state.pki)
        chosen = ports.claim(self._state, components.PORT_NAMES)
        components.write_configuration(self._state, keys, chosen, self._options)
        self._state.audit_log.parent.mkdir(exist_ok=True, mode=0o700)
        (self._state.root / "etcd").mkdir(exist_ok=True, mode=0o700)
        parts = components.build(
            self._state, keys, chosen, {name: self._tools.path(name) for name in components.BINARIES}
        )
        wait = Waiter(self._state, progress)
        wait.needed.append(self._spawn(parts["etcd"]))
        wait.until("etcd", lambda: readiness.etcd_is_healthy(keys, chosen["etcd"]))
        wait.needed.append(self._spawn(parts["apiserver"]))
        with KubeClient(self.kubeconfig) as client:
            wait.until("the API server", lambda: client.request("GET", "/readyz") == "ok")
            wait.needed += [self._spawn(parts[name]) for name in ("controller-manager", "scheduler", "kwok")]
            kueue.install(client, self._tools.kueue_manifests, keys, chosen["kueue-webhook"])
            wait.until("Kueue's CRDs", lambda: kueue.crds_established(client))
            wait.needed.append(self._spawn(parts["kueue"]))
            kwok.reconcile_nodes(client, pools)
            wait.until("Kueue", lambda: readiness.kueue_is_ready(chosen["kueue-health"]))
            wait.until("Kueue's webhooks", lambda: kueue.webhooks_answer(client))
            wait.until("the simulated nodes", lambda: readiness.nodes_are_ready(client))
        self._spawn(parts["podrunner"])

    def _complete(self, pools: Sequence[kwok.KwokPool], console: Console) -> None:
        """Change what a healthy plane may lack: its nodes, and the pod runner."""
        console.print(f"control plane already runs ({self._state.root})", markup=False, highlight=False, soft_wrap=True)
        with step(console, "set simulated nodes") as progress, KubeClient(self.kubeconfig) as client:
            kwok.reconcile_nodes(client, pools)
            Waiter(self._state, progress).until("the simulated nodes", lambda: readiness.nodes_are_ready(client))
        if "podrunner" not in processes.find(self._state):
            console.print("the pod runner had ended; starting it again")
            self._spawn(components.podrunner(self._state))

    def _spawn(self, component: Component) -> processes.ProcessRecord:
        return processes.spawn(
            self._state,
            component.name,
            component.command,
            environment=component.environment,
            ports=component.ports,
        )


def stop_all(state: State) -> None:
    """Stop everything that carries the mark of this state, dependants first."""
    found = {*processes.find(state), *processes.records(state)}
    ours = set(components.NAMES)
    processes.stop(state, ["podrunner"])  # first, or it would restart what it runs
    processes.stop(state, sorted(found - ours))
    processes.stop(state, ["kueue", "kwok", "scheduler", "controller-manager"], _CONTROLLER_GRACE_SECONDS)
    processes.stop(state, ["apiserver"])
    processes.stop(state, ["etcd"])
