"""Play the kubelet for our agent: carry out Deployments as real local processes.

    python -m infra.local.podrunner --kubeconfig FILE --state DIRECTORY --stack NAME [--namespace gpufleet-system]

It follows Deployments with the label `app.kubernetes.io/managed-by: gpufleet` in one namespace, and makes no Pods.
What a template may use is in `podspec`. An update is a recreation: the old process ends before the new one starts.

The contract with the program it runs: GPUFLEET_SERVICE_ACCOUNT_DIR is the directory of its service account, with
KUBERNETES_SERVICE_HOST and _PORT beside it; a container port named N is to be bound at GPUFLEET_PORT_N on loopback.

Invariants: level-triggered, so a killed runner's successor first ends what is left over and then reaches the same
state; one runner per state directory; a process never gets more rights than its service account has.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.local import podspec, podstatus, processes
from infra.local.deployments import DeploymentCache, say
from infra.local.errors import KubeError, LocalError, PodSpecError
from infra.local.kubeclient import KubeClient, Manifest
from infra.local.locking import locked
from infra.local.replica import PROCESS_PREFIX, Replica
from infra.local.state import State

DEFAULT_NAMESPACE = "gpufleet-system"
_TICK_SECONDS = 0.5


class PodRunner:
    """Brings processes in line with Deployments, one `reconcile` at a time."""

    def __init__(self, state: State, client: KubeClient, *, python: str = sys.executable) -> None:
        self._state = state
        self._client = client
        self._python = python
        self._replicas: dict[tuple[str, int], Replica] = {}
        self._executor = concurrent.futures.ThreadPoolExecutor(max_workers=4, thread_name_prefix="probe")

    def end_leftovers(self) -> None:
        """End what an earlier runner that was killed has left running."""
        names = {*processes.find(self._state), *processes.records(self._state)}
        processes.stop(self._state, sorted(name for name in names if name.startswith(PROCESS_PREFIX)))

    def reconcile(self, deployments: Mapping[str, Manifest], now: datetime.datetime) -> None:
        """Look at everything once, start and end what is due, and report."""
        wanted: set[tuple[str, int]] = set()
        for name, deployment in deployments.items():
            count = int(deployment["spec"].get("replicas", 1))
            problem = self._want(name, deployment, count)
            wanted |= {(name, index) for index in range(count) if not problem}
            self._report(deployment, count, problem, now)
        for key, replica in list(self._replicas.items()):
            if key not in wanted:
                replica.end()
            replica.tick(now, self._executor)
            if replica.gone:
                replica.clean_up()
                del self._replicas[key]

    def _want(self, name: str, deployment: Manifest, count: int) -> str:
        """Create what is missing and end what is outdated; return what is wrong with the template, if anything."""
        try:
            for index in range(count):
                plan = podspec.plan(deployment, index)
                present = self._replicas.get((name, index))
                if present is None:
                    slot = f"{name}.{index}"
                    self._replicas[name, index] = Replica(self._state, self._client, plan, slot, self._python)
                elif present.plan.digest != plan.digest:
                    present.end()
        except PodSpecError as error:
            return str(error)
        return ""

    def _report(self, deployment: Manifest, count: int, problem: str, now: datetime.datetime) -> None:
        name, digest = deployment["metadata"]["name"], podspec.template_digest(deployment)
        mine = [replica for (owner, _), replica in self._replicas.items() if owner == name]
        status = podstatus.status(deployment, count, digest, mine, problem, now)
        if status != deployment.get("status"):
            try:
                self._client.patch_status(deployment, podstatus.merge_patch(status))
            except KubeError as error:
                if error.status != 404:  # deleted meanwhile
                    say(f"status of {name} cannot be written: {error}")

    def end_all(self) -> None:
        """End every replica and wait for all of them, as long as their templates allow."""
        for replica in self._replicas.values():
            replica.end()
        longest = max((replica.plan.grace_seconds for replica in self._replicas.values()), default=0.0)
        names = [name for name in processes.find(self._state) if name.startswith(PROCESS_PREFIX)]
        processes.stop(self._state, names, longest)
        self._executor.shutdown(cancel_futures=True)


def serve(state: State, client: KubeClient, namespace: str, stop: threading.Event) -> None:
    """Run until `stop` is set, then end everything that was started."""
    runner = PodRunner(state, client)
    runner.end_leftovers()
    cache = DeploymentCache(client, namespace)
    cache.start()
    try:
        while not stop.is_set():
            deployments = cache.items()
            if deployments is not None:
                runner.reconcile(deployments, datetime.datetime.now(datetime.UTC))
            cache.changed.wait(_TICK_SECONDS)
            cache.changed.clear()
    finally:
        cache.stop()
        runner.end_all()


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the daemon; returns its exit code."""
    parser = argparse.ArgumentParser(prog="infra.local.podrunner", description="Run Deployments as local processes.")
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True, help="state directory of the stack")
    parser.add_argument("--stack", required=True, help="name of the stack that the state belongs to")
    parser.add_argument("--namespace", default=DEFAULT_NAMESPACE)
    options = parser.parse_args(arguments)
    stop = threading.Event()

    def handle(*_: Any) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)
    os.chdir(Path(__file__).resolve().parents[2])  # so that `python -m runtime` finds the checkout's own package
    try:
        state = State.at(options.state.absolute(), options.stack)
        with locked(state.root / "podrunner.lock", "runs pods"), KubeClient(options.kubeconfig) as client:
            serve(state, client, options.namespace, stop)
    except LocalError as error:
        say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
