"""Know when each part of the control plane can be used, and why one cannot.

It waits by looking again, which is all that an external process offers, and never longer than a limit.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable

import httpx2

from infra.local import kwok, pki, processes
from infra.local.errors import KubeError, ProcessError
from infra.local.kubeclient import KubeClient
from infra.local.progress import Step
from infra.local.state import State

_POLL_SECONDS = 0.05
_PART_TIMEOUT_SECONDS = 120.0  # the slowest part took 8 s on two cores, and 30 s while eight processes shared them
_PORT_TAKEN = "address already in use"


class PortTakenError(ProcessError):
    """A server lost the race for its port; new ports may help."""


class Waiter:
    """Waits for one part after the other, as long as the processes they need are alive."""

    def __init__(self, state: State, progress: Step) -> None:
        self.needed: list[processes.ProcessRecord] = []
        self._state = state
        self._progress = progress
        self._done = 0

    def until(self, what: str, is_ready: Callable[[], bool]) -> None:
        """Poll `is_ready` until it is true, a needed process has died, or the time is over."""
        self._progress.update(self._done, None, f"waiting for {what}")
        deadline = time.monotonic() + _PART_TIMEOUT_SECONDS
        last = "no answer yet"
        while time.monotonic() < deadline:
            for record in self.needed:
                if not record.alive:
                    raise _death(record)
            try:
                if is_ready():
                    self._done += 1
                    return
            except (KubeError, httpx2.HTTPError) as error:
                last = str(error)
            time.sleep(_POLL_SECONDS)
        raise ProcessError(
            f"{what} did not become ready within {_PART_TIMEOUT_SECONDS:.0f} s (last: {last}); "
            f"see {self._state.logs}, then start again"
        )


def _death(record: processes.ProcessRecord) -> ProcessError:
    tail = processes.log_tail(record)
    kind = PortTakenError if _PORT_TAKEN in tail else ProcessError
    reason = "found its port taken" if kind is PortTakenError else "ended while starting"
    return kind(f"{record.name} {reason}; the end of {record.log}:\n{tail}")


def etcd_is_healthy(keys: pki.Pki, port: int) -> bool:
    """Whether etcd serves requests."""
    context = ssl.create_default_context(cafile=str(keys.authority))
    context.load_cert_chain(keys.certificate("etcd-client"), keys.key("etcd-client"))
    answer = httpx2.get(f"https://127.0.0.1:{port}/health", verify=context, trust_env=False, timeout=1.0)
    return answer.status_code == 200 and answer.json().get("health") == "true"


def kueue_is_ready(port: int) -> bool:
    """Whether Kueue's manager says it is ready."""
    return httpx2.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=1.0).status_code == 200


def nodes_are_ready(client: KubeClient) -> bool:
    """Whether KWOK has made every simulated node Ready."""
    found, _ = client.list("v1", "Node", label_selector=f"{kwok.SIMULATED_LABEL}=true")
    return all(
        any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node["status"].get("conditions", [])
        )
        for node in found
    )
