"""How many GPUs a Workload asks for, counted as Kubernetes counts a pod's requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from stacks.labels import GPU_RESOURCE

Raw = Mapping[str, Any]

GPU_RESOURCES: Final = re.compile(r"nvidia\.com/(gpu|mig-)")
"""How the names begin of whole GPUs, slices, and shares of either."""

_MOST_GPUS: Final = 1_000_000
"""As in stacks.quantities.GpuCount; more is a mistake or an attack."""


def gpus_of(spec: Raw) -> int:
    """GPUs of all pods of a Workload together.

    Raises:
        ValueError: when a number of GPUs is not a whole number, or absurd.
    """
    total = sum(
        gpus_of_pod(pod_set["template"]["spec"]) * whole(pod_set.get("count", 1)) for pod_set in spec["podSets"]
    )
    if not 0 <= total <= _MOST_GPUS:
        raise ValueError(f"{total} GPUs in all; at most {_MOST_GPUS} are believed")
    return total


def largest_pod_of(spec: Raw) -> int:
    """GPUs of the Workload's largest pod, which must fit onto one node."""
    return max((gpus_of_pod(pod_set["template"]["spec"]) for pod_set in spec["podSets"]), default=0)


def gpus_of_pod(pod: Raw) -> int:
    """GPUs of one pod, as the kubelet counts: sidecars add to the containers, other init containers to those before.

    Raises:
        ValueError: when a number of GPUs is not a whole number, or absurd.
    """
    sidecars = highest_init = 0
    for container in pod.get("initContainers") or ():
        gpus = _container_gpus(container)
        if container.get("restartPolicy") == "Always":
            sidecars += gpus
            highest_init = max(highest_init, sidecars)
        else:
            highest_init = max(highest_init, sidecars + gpus)
    return max(sidecars + sum(map(_container_gpus, pod.get("containers") or ())), highest_init)


def _container_gpus(container: Raw) -> int:
    resources = container.get("resources") or {}
    for kind in ("requests", "limits"):
        if (quantity := (resources.get(kind) or {}).get(GPU_RESOURCE)) is not None:
            return whole(quantity)
    return 0


def asks_for_gpus(spec: Raw) -> bool:
    """Whether any pod of a Workload asks for GPUs, slices or shares of them."""
    return any(holds_gpus(pod_set["template"]["spec"]) for pod_set in spec["podSets"])


def holds_gpus(pod: Raw) -> bool:
    """Whether a pod asks for GPUs, slices or shares of them; also where nobody can read how many."""
    return any(str(quantity) != "0" for quantity in _gpu_quantities(pod))


def _gpu_quantities(pod: Raw) -> Iterator[object]:
    for container in (*(pod.get("initContainers") or ()), *(pod.get("containers") or ())):
        resources = container.get("resources") or {}
        asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
        yield from (quantity for name, quantity in asked.items() if GPU_RESOURCES.match(name))


def whole(quantity: object) -> int:
    """Read a number of GPUs or pods as Kubernetes writes it.

    Raises:
        ValueError: when it is not a whole number, or absurd.
    """
    if type(quantity) is int:
        number = Decimal(quantity)
    else:
        text = str(quantity)
        try:
            number = Decimal(text.removesuffix("k")) * (1_000 if text.endswith("k") else 1)
        except InvalidOperation:
            raise ValueError(f"{text[:40]!r} is not a number of GPUs or pods") from None
    if not number.is_finite() or not 0 <= number <= _MOST_GPUS or number != int(number):
        raise ValueError(f"{str(quantity)[:40]!r} is not a whole number from 0 to {_MOST_GPUS}")
    return int(number)
