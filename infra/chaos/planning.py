"""What a drill will take, found out before anything is written."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from infra.chaos.drill import unfinished
from infra.chaos.follow import running_gpu_pods
from infra.chaos.nodes import Target, choose, refuse_to_lose
from infra.chaos.terms import ChaosError, DrillTerms
from infra.commands.cluster import Cluster
from runtime.kube import NODES


@dataclass(frozen=True, slots=True)
class Plan:
    """One drill. `workloads` run on the targets; `loses` says that the machines go at the deadline."""

    terms: DrillTerms
    targets: tuple[Target, ...]
    workloads: tuple[str, ...]
    loses: bool

    @property
    def simulated(self) -> bool:
        """Whether no real machine is concerned."""
        return all(target.simulated for target in self.targets)

    def to_dict(self) -> dict[str, Any]:
        """The plan for a program."""
        machines = [{"name": one.name, "gpu_pods": one.gpu_pods, "cordoned": one.cordoned} for one in self.targets]
        found = {"loses_nodes": self.loses, "machines": machines, "workloads": list(self.workloads)}
        return {**asdict(self.terms), "dry_run": True, **found}


async def plan(cluster: Cluster, terms: DrillTerms, now: float) -> Plan:
    """Choose the nodes.

    Raises:
        ChaosError: another drill has left its record, there are too few nodes, or they may not be lost.
    """
    if left := await unfinished(cluster):
        raise ChaosError(
            f"drill {left[0].run} on pool {left[0].pool} runs or was killed; wait for its end, or put back what it "
            "left with `gpufleet chaos clean`"
        )
    raws = await cluster.kube.list(NODES)
    pods = await running_gpu_pods(cluster, (raw["metadata"]["name"] for raw in raws))
    targets = choose(raws, Counter(pod.node for pod in pods), terms, now)
    names = {target.name for target in targets}
    workloads = sorted({f"{pod.namespace}/{pod.workload}" for pod in pods if pod.node in names})
    return Plan(terms, tuple(targets), tuple(workloads), _loses(terms, targets))


def _loses(terms: DrillTerms, targets: list[Target]) -> bool:
    if not terms.certain or not (terms.lose_nodes or all(target.simulated for target in targets)):
        return False
    refuse_to_lose(targets)
    return True
