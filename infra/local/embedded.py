"""The embedded stack as a whole: tools, control plane, engine and agent on one machine, from one stack file.

It starts what the file describes and nothing else; nodes are pretended, everything that decides is real. `down` stops
every process and deletes the state directory, so nothing needs to be destroyed object by object.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from infra.local import processes, toolchain
from infra.local.controlplane import ControlPlane, stop_all
from infra.local.engine import Engine, EngineError
from infra.local.errors import disk_full_is_plain
from infra.local.kwok import KwokPool
from infra.local.state import State
from stacks.devices import node_capacity
from stacks.flavors import flavors_of_pools
from stacks.fleet import Fleet
from stacks.labels import AGENT_NAME, BURST_TAINT, GPU_RESOURCE, LOCATION_LABEL, POOL_LABEL, SYSTEM_NAMESPACE
from stacks.pools import CloudPool, OnPremPool, Pool

TOOLS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kueue",
    "kwok",
    "kubectl",
    "pulumi",
)

_ENGINE_NAME = "pulumi"
_ENGINE_GRACE_SECONDS = 20.0  # Pulumi ends the step it is in and writes its state


@dataclass(frozen=True)
class Embedded:
    """One embedded stack of one checkout."""

    checkout: Path
    stack: str
    state: State
    console: Console

    @classmethod
    def open(cls, checkout: Path, stack: str, console: Console) -> Embedded:
        """Open the stack's state directory, creating it where there is none.

        Raises:
            StateError: the directory cannot be used.
            DiskSpaceError: there is no space left for it.
        """
        with disk_full_is_plain(State.directory(checkout, stack)):
            return cls(checkout, stack, State.open(checkout, stack), console)

    @contextmanager
    def locked(self, purpose: str) -> Iterator[None]:
        """Be the only command that changes this stack."""
        with self.state.lock(purpose):
            yield

    def tools(self) -> toolchain.Toolchain:
        """Find, download or build every binary.

        Raises:
            ToolchainError: one cannot be had; the message says which ways were tried.
        """
        return toolchain.resolve(TOOLS, console=self.console)

    def start(self, tools: toolchain.Toolchain, fleet: Fleet) -> ControlPlane:
        """Start the control plane with the nodes of the file's pools."""
        plane = ControlPlane(self.state, tools)
        plane.start([kwok_pool(name, pool) for name, pool in fleet.pools.items()], console=self.console)
        return plane

    def engine(self, tools: toolchain.Toolchain) -> Engine:
        """Pulumi, with its state in the state directory and the embedded cluster as its cluster."""
        return Engine(
            tools.path("pulumi"),
            self.checkout,
            self.state.root / "pulumi",
            Path(sys.executable),
            self.state.kubeconfig,
            variables=processes.mark(self.state, _ENGINE_NAME),
        )

    @property
    def ledger(self) -> Path:
        """Where the agent's volume is on this machine."""
        return self.state.root / "volumes" / SYSTEM_NAMESPACE / AGENT_NAME

    def deploy(self, engine: Engine) -> None:
        """Run `pulumi up`.

        A Pulumi that outlived the command which started it is stopped first: it holds the lock of the Pulumi stack.

        Raises:
            EngineError: it failed; Pulumi has said why.
        """
        if processes.find(self.state).get(_ENGINE_NAME):
            self.console.print("stopping a Pulumi that an interrupted run left behind")
            processes.stop(self.state, [_ENGINE_NAME], _ENGINE_GRACE_SECONDS)
        self.console.print("; ".join(engine.install()), style="dim", markup=False, highlight=False, soft_wrap=True)
        engine.select_or_init(self.stack)
        result = engine.up(self.stack)
        if not result.succeeded:
            raise EngineError(
                f"pulumi up of stack {self.stack} failed (exit {result.status}); its messages are above. "
                "The control plane runs on: correct the cause and run the command again"
            )

    def down(self) -> None:
        """Stop every process of the stack and delete its state.

        Raises:
            LockedError: another command changes the stack.
            ProcessError: a process survives SIGKILL.
        """
        with self.locked("removes the stack"):
            stop_all(self.state)
            self.state.delete()


def kwok_pool(name: str, pool: Pool) -> KwokPool:
    """The pretended nodes of a pool.

    Named on-prem nodes come bare, since `pulumi up` labels them; all others carry the labels that a kubelet or an
    autoscaler would give them. They offer what the device plugin would: GPUs, MIG slices and shares.
    """
    [flavor] = flavors_of_pools({name: pool}).values()
    labels = {**flavor.node_labels, POOL_LABEL: name, LOCATION_LABEL: pool.location}
    offered = node_capacity(pool)
    match pool:
        case OnPremPool():
            names = pool.node_names or tuple(f"{name}-{index}" for index in range(pool.nodes))
            return KwokPool(
                name,
                names,
                labels={} if pool.node_names else labels,
                gpus_per_node=offered.pop(GPU_RESOURCE, 0),
                cpus_per_node=pool.cpus_per_node,
                memory_gib_per_node=pool.memory_per_node // 2**30,
                resources=offered,
            )
        case CloudPool():
            count = math.ceil(pool.gpus / pool.gpus_per_node)
            return KwokPool(
                name,
                tuple(f"{name}-{index}" for index in range(count)),
                labels=labels,
                taints=({"key": BURST_TAINT, "value": "true", "effect": "NoSchedule"},),
                gpus_per_node=offered.pop(GPU_RESOURCE, 0),
                resources=offered,
                cpus_per_node=int(pool.cpus_per_gpu * pool.gpus_per_node),
                memory_gib_per_node=pool.memory_per_gpu * pool.gpus_per_node // 2**30,
            )
