"""What a pool may ask of its nodes beyond partitions: a driver, RDMA, kubelet settings, who may share them."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Final, Literal, Self
from xml.etree import ElementTree

from pydantic import AfterValidator, Field, StrictBool, model_validator

from stacks.gpulayer import KernelModuleChoice
from stacks.gpuversions import DriverVersion
from stacks.model import Model
from stacks.quantities import Ipv4Cidr

ADDRESSES_PER_NODE: Final = 64
"""Addresses of a network that each node gets for its pods; about as many as pods share a card."""

_LARGEST_TOPOLOGY: Final = 256 * 1024  # characters; an 8-GPU machine takes about ten thousand
_DECLARATION: Final = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)


def _is_cpu_set(text: str) -> str:
    last = -1
    for part in text.split(","):
        first, _, end = part.partition("-")
        if int(first) <= last or int(end or first) < int(first):
            raise ValueError(f"{part} is not in order; write cores once and from low to high, e.g. 0-3,64-67")
        last = int(end or first)
    return text


CpuSet = Annotated[
    str,
    Field(pattern=r"^[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*$", examples=["0-3,64-67"]),
    AfterValidator(_is_cpu_set),
]
"""Cores by number, as Linux writes them."""


def _is_topology(text: str) -> str:
    if _DECLARATION.search(text):
        raise ValueError("has a document type or an entity; NCCL's files have neither")
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise ValueError(f"is not XML: {error}") from None
    if root.tag != "system":
        raise ValueError(f"begins with <{root.tag}>; NCCL's topology files begin with <system>")
    return text


NcclTopology = Annotated[str, Field(max_length=_LARGEST_TOPOLOGY), AfterValidator(_is_topology)]
"""The text of an NCCL topology file."""


class Kubelet(Model):
    """How the kubelet of a node gives out cores and memory beside GPUs."""

    topology_manager: Literal["none", "best-effort", "restricted", "single-numa-node"] = "best-effort"
    """Whether cores, GPUs and network cards of a pod come from one NUMA node: as far as possible (`best-effort`), or
    else the pod fails (`restricted`, `single-numa-node`)."""

    topology_scope: Literal["container", "pod"] = "pod"
    """What is kept together: each container by itself, or all of a pod."""

    cpu_manager: Literal["none", "static"] = "static"
    """`static` gives pods of the class Guaranteed cores of their own, without which nothing is near a GPU."""

    reserved_cpus: CpuSet | None = None
    """Cores that no pod is given, for the system and the kubelet. Required with `cpu_manager: static`."""

    @model_validator(mode="after")
    def _static_leaves_cores_to_the_system(self) -> Self:
        if self.cpu_manager == "static" and self.reserved_cpus is None:
            raise ValueError(
                "reserved_cpus: cpu_manager static needs cores for the system, e.g. 0-3; or write cpu_manager: none"
            )
        return self


class Rdma(Model):
    """Network cards by which GPUs of several nodes reach each other's memory."""

    fabric: Literal["infiniband", "roce"]
    """`infiniband`, or `roce` over Ethernet. Pods ask for `rdma/infiniband` or `rdma/roce`."""

    interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$", examples=["ibs1f0"])] | None = None
    """Name of the card's interface on the nodes. Default: every card of NVIDIA's with such a link."""

    addresses: Ipv4Cidr | None = None
    """Addresses for pods on this network. With it and `interface` pods can have an interface of their own on it; they
    name the network `<pool>` of the namespace `gpufleet-system`. Default: the device alone."""

    @model_validator(mode="after")
    def _addresses_are_on_an_interface(self) -> Self:
        if self.addresses is not None and self.interface is None:
            raise ValueError("addresses: need the interface that they are on; set interface")
        return self


class PoolDriver(Model):
    """The driver of one pool, where it is not the fleet's."""

    version: DriverVersion | None = None
    """Default: `gpu_layer.driver.version`, with its upgrade."""

    kernel_module: KernelModuleChoice | None = None
    """Default: `gpu_layer.driver.kernel_module`."""

    preinstalled: StrictBool = False
    """Whether the nodes come with a driver, so that the operator installs none."""

    @model_validator(mode="after")
    def _preinstalled_is_all(self) -> Self:
        if self.preinstalled and (self.version is not None or self.kernel_module is not None):
            raise ValueError(
                "preinstalled: the nodes' own driver is left as it is; leave version and kernel_module out"
            )
        return self


LabelKey = Annotated[
    str,
    Field(
        pattern=r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$",
        examples=["topology.acme.com/rack"],
    ),
]
"""The name of a label."""


class GpuNodes(Model):
    """Settings of nodes with GPUs that are ours to set up."""

    device_interface: Literal["device-plugin", "dra"] = "device-plugin"
    """How pods get GPUs: by NVIDIA's device plugin, or by resource claims (`dra`: dynamic resource allocation), which
    is checked and not deployed yet. A node has one of them."""

    kubelet: Kubelet | None = None
    """How the kubelet places pods near GPUs. Default: as the nodes have it."""

    topology_levels: Annotated[tuple[LabelKey, ...], Field(max_length=16)] = ()
    """Node labels from the widest group of nodes to the narrowest, for topology-aware scheduling, e.g.
    `[topology.acme.com/block, topology.acme.com/rack]`. Checked, and not carried out yet."""

    nccl_topology: NcclTopology | None = None
    """Text of an NCCL topology file of these machines, for those whose hypervisor hides how GPUs and network cards are
    joined. Each team's namespace gets it as the ConfigMap `gpufleet-nccl-<pool>`; gpufleet ships no such file."""

    @model_validator(mode="after")
    def _levels_are_distinct(self) -> Self:
        twice = [level for level, times in Counter(self.topology_levels).items() if times > 1]
        if twice:
            raise ValueError(f"topology_levels: names {twice[0]} twice; each level once, the widest first")
        return self
