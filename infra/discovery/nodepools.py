"""Karpenter's NodePools: how many GPUs each may start, and pools for those that have no node at the moment.

Only requirements that name instance types, families or GPUs with `In` are understood; others narrow the choice further
than the file says, which is said in a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from infra.discovery.findings import Part
from infra.discovery.gpus import INSTANCE_TYPE, recognise
from infra.discovery.naming import legal_name
from infra.discovery.objects import Raw, at, list_at, name_of, text_at, whole
from infra.discovery.rented import rented_settings
from stacks.catalogue import InstanceType, catalogue
from stacks.labels import GPU_RESOURCE

_FAMILY: Final = "karpenter.k8s.aws/instance-family"
_GPU: Final = "karpenter.k8s.aws/instance-gpu-name"
_COUNT: Final = "karpenter.k8s.aws/instance-gpu-count"
_ZONE: Final = "topology.kubernetes.io/zone"
_REGION: Final = "topology.kubernetes.io/region"
_MARKET: Final = "karpenter.sh/capacity-type"
_UNDERSTOOD: Final = frozenset(
    {INSTANCE_TYPE, _FAMILY, _GPU, _COUNT, _ZONE, _REGION, _MARKET, "kubernetes.io/arch", "kubernetes.io/os"}
)


def limits_of(node_pools: Iterable[Raw]) -> dict[str, int | None]:
    """The most GPUs of each NodePool; None where it has no limit on them."""
    limits = {name_of(pool): at(pool, "spec", "limits", GPU_RESOURCE) for pool in node_pools}
    return {name: None if limit is None else whole(limit) for name, limit in limits.items()}


def idle_pools(node_pools: Iterable[Raw], seen: Iterable[str], region: str) -> Iterator[Part]:
    """Pools for the NodePools with GPUs that have no node now; `region` is that of the cluster's other nodes."""
    present = set(seen)
    for node_pool in sorted(node_pools, key=name_of):
        if name_of(node_pool) not in present:
            yield from _pools_of(node_pool, region)


def _pools_of(node_pool: Raw, region: str) -> Iterator[Part]:
    wanted = dict(_requirements(node_pool))
    if not {INSTANCE_TYPE, _FAMILY, _GPU} & wanted.keys():
        return
    types = [one for one in catalogue().instance_types.values() if one.provider == "aws" and _admits(wanted, one)]
    name, others = name_of(node_pool), sorted(wanted.keys() - _UNDERSTOOD)
    limit = limits_of([node_pool])[name]
    zones = {zone[:-1] for zone in wanted.get(_ZONE, ())}  # us-east-1a is in us-east-1
    where = next(iter(sorted({*wanted.get(_REGION, ()), *zones})), region)
    markets = [market for market in wanted.get(_MARKET, ("on-demand",)) if market in {"spot", "on-demand"}]
    for gpu in sorted({one.gpu for one in types}):
        for market in sorted(markets):
            names = [one.id for one in types if one.gpu == gpu and market in one.markets]
            if not names:
                continue
            settings, notes = rented_settings("aws", market, where, names, limit or 0)
            notes["instance_types"] = f"what the requirements of NodePool {name} admit of the catalogue"
            notes["max_gpus"] = f"limit of Karpenter NodePool {name}"
            if limit is None:
                notes["max_gpus"] = f"REVIEW: NodePool {name} has no limit on {GPU_RESOURCE}; 0 rents nothing"
            remarks = [f"Karpenter NodePool {name}, which has no node with GPUs now."]
            if others:
                remarks.append(f"REVIEW: it has more requirements, on {', '.join(others)}.")
            model = catalogue().gpus[gpu].name
            yield Part(legal_name(f"{name}-{model}-{market}", "karpenter"), settings, notes, tuple(remarks))


def _requirements(node_pool: Raw) -> Iterator[tuple[str, tuple[str, ...]]]:
    for one in list_at(node_pool, "spec", "template", "spec", "requirements"):
        values = tuple(value for value in list_at(one, "values") if isinstance(value, str))
        yield text_at(one, "key"), values if text_at(one, "operator") == "In" else ()
    labels = at(node_pool, "spec", "template", "metadata", "labels")
    if isinstance(labels, Mapping):
        yield from ((key, (value,)) for key, value in labels.items() if key in _UNDERSTOOD and isinstance(value, str))


def _admits(wanted: Mapping[str, tuple[str, ...]], one: InstanceType) -> bool:
    checks: dict[str, Callable[[tuple[str, ...]], bool]] = {
        INSTANCE_TYPE: lambda values: one.id in values,
        _FAMILY: lambda values: one.id.partition(".")[0] in values,
        _COUNT: lambda values: str(one.gpus) in values,
        _GPU: lambda values: one.gpu in _models(values),
    }
    return all(check(wanted[key]) for key, check in checks.items() if wanted.get(key))


def _models(names: Iterable[str]) -> set[str]:
    """The models that Karpenter's names may mean; `a100` is both of them."""
    found = {model for model in (recognise({_GPU: name}).model for name in names) if model}
    if "a100" in names:
        found |= {"a100-sxm-40gb", "a100-sxm-80gb"}
    return found
