"""Which GPU model of the catalogue a node has, from whichever label says so.

The hardware's own word counts first (GPU Feature Discovery), then what a cloud says of its instance, then our labels.
A label that fits no model, or several, gives none: which card was meant is never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, get_args

from infra.discovery.objects import count_label, remark
from stacks.catalogue import catalogue
from stacks.labels import FLAVOR_LABEL
from stacks.pools import Market
from stacks.quantities import parse_gpu_name

PRODUCT: Final = "nvidia.com/gpu.product"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
KARPENTER_GPU: Final = "karpenter.k8s.aws/instance-gpu-name"
GKE_GPU: Final = "cloud.google.com/gke-accelerator"
MARKETS: Final = get_args(Market)
_MEMORY: Final = "nvidia.com/gpu.memory"  # MiB, GPU Feature Discovery
_KARPENTER_MEMORY: Final = "karpenter.k8s.aws/instance-gpu-memory"  # MiB, as EC2 gives it
_MEMORY_TOLERANCE: Final = 0.2
"""EC2 says 22,888 MiB of an L4 that is sold with 24 GiB; drivers keep a few percent back, too."""

# Product names as NVML gives them and GPU Feature Discovery spells them, where the catalogue's words do not decide.
_PRODUCTS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), model)
    for pattern, model in (
        (r"h[18]00-80gb-hbm3", "h100-sxm-80gb"),
        (r"h100-sxm5?(-80gb)?", "h100-sxm-80gb"),
        (r"h100-pcie(-80gb)?", "h100-pcie-80gb"),
        (r"h100-nvl", "h100-nvl-94gb"),
        (r"h200", "h200-sxm-141gb"),
        (r"h200-nvl", "h200-nvl-141gb"),
        (r"a100-sxm4-40gb", "a100-sxm-40gb"),
        (r"a100-sxm4-80gb", "a100-sxm-80gb"),
        (r"a100-pcie-40gb", "a100-pcie-40gb"),
        (r"a100-80gb-pcie", "a100-pcie-80gb"),
        (r"gh200-480gb", "gh200-96gb"),  # 480 GB is the memory of its processor
        (r"gh200-144g.*", "gh200-144gb"),
        (r"b200", "b200-sxm-180gb"),
        (r"b300(-sxm6.*)?", "b300-sxm-269gb"),
        (r"gb200", "gb200-186gb"),
        (r"gb300", "gb300-278gb"),
        (r"v100-sxm2-32gb", "v100-sxm-32gb"),
        (r"rtx-pro-6000.*", "rtx-pro-6000-96gb"),
        (r"rtx-pro-5000.*", "rtx-pro-5000-48gb"),
        (r"rtx-pro-4500.*", "rtx-pro-4500-32gb"),
    )
)
# Karpenter and GKE name fewer models than there are; both sell SXM boards under the bare name.
_CLOUD_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "a100": ("a100-sxm-40gb", "a100-sxm-80gb"),
    "h100": ("h100-sxm-80gb",),
    "h200": ("h200-sxm-141gb",),
    "rtx-pro-server-6000": ("rtx-pro-6000-96gb",),
    "nvidia-tesla-a100": ("a100-sxm-40gb",),
    "nvidia-a100-80gb": ("a100-sxm-80gb",),
    "nvidia-h100-80gb": ("h100-sxm-80gb",),
    "nvidia-h100-mega-80gb": ("h100-sxm-80gb",),
    "nvidia-h200-141gb": ("h200-sxm-141gb",),
}
_SUFFIXES: Final = re.compile(r"(-SHARED|-MIG-.*)$")
_MAKERS: Final = re.compile(r"^(NVIDIA|Tesla|Quadro)[- ]", re.IGNORECASE)


class Recognised(NamedTuple):
    """A model, None where no label names one, and what was found."""

    model: str | None
    why: str


def recognise(labels: Mapping[str, str]) -> Recognised:
    """The GPU model of a node with these labels."""
    types = catalogue().instance_types
    sources: tuple[tuple[str, Callable[[str], str | None]], ...] = (
        (PRODUCT, lambda value: _product(value, labels)),
        (INSTANCE_TYPE, lambda value: types[value].gpu if value in types else None),
        (KARPENTER_GPU, lambda value: _cloud_name(value, count_label(labels, _KARPENTER_MEMORY))),
        (GKE_GPU, lambda value: _cloud_name(value, 0)),
        (FLAVOR_LABEL, model_of_flavor),
    )
    seen = []
    for key, read in sources:
        if value := labels.get(key):
            seen.append(f"{key}={value}")
            if model := read(value):
                return Recognised(model, remark(f"label {key}={value}"))
    return Recognised(None, remark(" and ".join(seen) or "no label names the model"))


def place_of_flavor(flavor: str) -> tuple[str, str]:
    """Location and market in the name of one of our cloud flavors: `h100-aws-on-demand` → aws, on-demand."""
    model = model_of_flavor(flavor)
    rest = flavor.removeprefix(f"{catalogue().gpus[model].name}-") if model else flavor
    market = next((market for market in MARKETS if rest.endswith(f"-{market}")), "")
    return rest.removesuffix(f"-{market}"), market


def model_of_flavor(flavor: str) -> str | None:
    """The model of one of our flavors, e.g. of `a100-40gb-mig-onprem`: the longest short name that it begins with."""
    models = [model for model in catalogue().gpus.values() if flavor.startswith(f"{model.name}-")]
    return max(models, key=lambda model: len(model.name)).id if models else None


def _product(value: str, labels: Mapping[str, str]) -> str | None:
    bare = value
    while (shorter := _SUFFIXES.sub("", bare)) != bare:
        bare = shorter
    bare = _MAKERS.sub("", bare)
    for pattern, model in _PRODUCTS:
        if pattern.fullmatch(bare):
            return model
    if found := _by_words(bare):
        # A model that another one shares its name with (V100 with 16 GB) must have the memory as well.
        memory = count_label(labels, _MEMORY) if "-MIG-" not in value else 0
        return found if not memory or _has_memory(found, memory) else None
    return None


def _cloud_name(value: str, memory_mib: int) -> str | None:
    models = _CLOUD_NAMES.get(value.lower())
    if models is None:
        models = tuple(filter(None, [_by_words(_MAKERS.sub("", re.sub("-tesla-", "-", value)))]))
    if memory_mib:
        models = tuple(model for model in models if _has_memory(model, memory_mib))
    return models[0] if len(models) == 1 else None


def _by_words(text: str) -> str | None:
    try:
        return parse_gpu_name(text)
    except ValueError:
        return None


def _has_memory(model: str, mib: int) -> bool:
    sold = catalogue().gpus[model].memory_gib * 2**10
    return abs(mib - sold) <= _MEMORY_TOLERANCE * sold
