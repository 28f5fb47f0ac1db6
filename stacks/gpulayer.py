"""What makes GPUs usable on nodes: GPU Operator, drivers, container toolkit, metrics, network, changes of MIG layouts.

What a single pool has of its own (a driver pin, RDMA, kubelet settings) stands with the pool. Versions are pinned: what
runs on the nodes changes when the file changes, and at no other time. It takes effect where the cluster's
`software.gpu_operator` is `managed`; beside an operator of somebody else's only MIG layouts, sharing and `relayout` do.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, StrictBool, field_validator, model_validator

from stacks import gpuversions
from stacks.gpuversions import ChartVersion, DriverVersion, Tag
from stacks.model import Model
from stacks.quantities import KubeName, PositiveDuration, Window

KernelModuleChoice = Literal["auto", "open", "proprietary"]
"""Which kernel modules of the driver: `auto` lets it choose by GPU."""

MetricName = Annotated[
    str, Field(pattern=r"^DCGM_(FI|EXP)_[A-Z0-9_]{1,80}$", examples=["DCGM_FI_DEV_PCIE_REPLAY_COUNTER"])
]
"""A field of DCGM by its upper-case name."""


def _is_expression(text: str) -> str:
    if "," in text:
        raise ValueError("has a comma, which ends an expression; write two")
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from None
    return text


LabelExpression = Annotated[
    str, Field(min_length=1, max_length=253, examples=["^app$"]), AfterValidator(_is_expression)
]
"""Names of labels, as a regular expression."""

_SHORTEST_INTERVAL: Final = timedelta(seconds=1)  # what DCGM's profiling fields are updated in
_MOST_METRICS: Final = 100  # beyond some dozens each costs every GPU a series that nobody looks at


class GpuOperator(Model):
    """NVIDIA's GPU Operator, where gpufleet installs it."""

    version: Tag = gpuversions.OPERATOR
    """Version of the chart and the operator."""

    namespace: KubeName = "gpu-operator"
    """Namespace of the operator; also of one that somebody else installed, which finds our ConfigMaps there."""


class DriverUpgrade(Model):
    """A driver on its way: one pool has it first, the others when the file says that it is good."""

    version: DriverVersion
    """The driver that all pools without a driver of their own will have."""

    canary: KubeName
    """The on-prem pool that has it first."""

    validated: StrictBool = False
    """Set it to true when the canary has run well: the next `pulumi up` gives it to the others."""


class DriverSettings(Model):
    """The driver of on-prem pools. Nodes of clouds have one in their image."""

    version: DriverVersion = gpuversions.DRIVER
    """The driver of pools that do not say their own."""

    kernel_module: KernelModuleChoice = "auto"
    """Which kernel modules, for pools that do not say their own."""

    upgrade: DriverUpgrade | None = None
    """A newer driver that is being introduced. When all have it, set `version` to it and remove this."""

    automatic: StrictBool = False
    """Whether the operator changes the driver of nodes by itself, once no pod of a queue is left on a node, for as
    long as that takes; other pods with GPUs are evicted. Default: a node changes when its driver pod is deleted, which
    is for you to do after `gpufleet drain`; no job ends for a driver."""

    most_nodes: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 1
    """Most nodes that change at once, with `automatic`."""


class Exporter(Model):
    """NVIDIA's dcgm-exporter, which the operator runs on each GPU node."""

    interval: PositiveDuration = Field(default="15s", validate_default=True)
    """How often it reads, once a second at most. More often than Prometheus asks is wasted; the exporter's own default
    is 30 s."""

    extra_metrics: Annotated[dict[MetricName, Literal["gauge", "counter"]], Field(max_length=_MOST_METRICS)] = Field(
        default_factory=dict
    )
    """Fields of DCGM beyond ours, by name, with the kind of metric that each is; one of ours gets this kind instead."""

    pod_labels: Annotated[tuple[LabelExpression, ...], Field(max_length=20)] = ()
    """Labels of pods that go into the series, as regular expressions, e.g. `["^app$"]`; each value makes series of its
    own. Default: pod, namespace and container alone."""

    @field_validator("interval")
    @classmethod
    def _no_faster_than_dcgm(cls, interval: timedelta) -> timedelta:
        if interval < _SHORTEST_INTERVAL:
            raise ValueError("is shorter than DCGM measures; write 1s or more")
        return interval


class NetworkOperator(Model):
    """NVIDIA's Network Operator, which makes the network cards of pools with `rdma` usable in pods."""

    version: ChartVersion = gpuversions.NETWORK_OPERATOR
    """Version of the chart, the operator and its images."""

    namespace: KubeName = "nvidia-network-operator"
    """Namespace of the operator."""

    pods_per_card: Annotated[int, Field(strict=True, ge=1, le=1_000)] = 63
    """Pods that may share a card (`rdmaHcaMax`)."""


class Relayout(Model):
    """How nodes get another MIG layout: emptied one by one, changed, checked, and given back."""

    windows: Annotated[tuple[Window, ...], Field(max_length=20)] = ()
    """When nodes may be emptied for it, e.g. `[Sat-Sun 00:00-24:00 UTC]`. Default: at any time."""

    most_nodes: Annotated[int, Field(strict=True, ge=1, le=100)] = 1
    """Most nodes of the fleet that are changed at once."""

    mode_change: Literal["reset", "reboot", "replace"] | None = None
    """What a node takes to turn MIG on or off where that is not live (Ampere): `reset` of the GPUs, enough on bare
    metal; `reboot` of the node by the MIG manager, needed where GPUs are passed through to a virtual machine; `replace`
    by a new node, for node groups. Required with such GPUs."""


class GpuLayer(Model):
    """Software between the GPUs and the pods."""

    operator: GpuOperator = GpuOperator()
    """The GPU Operator."""

    toolkit: Tag = gpuversions.TOOLKIT
    """Version of the NVIDIA Container Toolkit, which hands GPUs to containers."""

    driver: DriverSettings = DriverSettings()
    """The driver."""

    exporter: Exporter = Exporter()
    """Metrics of the GPUs."""

    readings: StrictBool = False
    """Whether an agent of ours reads the GPUs of each node: health, use, and which slice would do. It takes an
    image with `nvidia-ml-py`, and a GPU Operator that stops it while it changes MIG (v26.7.0 or newer)."""

    network_operator: NetworkOperator | None = None
    """Set it to have gpufleet install the Network Operator for pools with `rdma`. Default: somebody else does."""

    relayout: Relayout | None = None
    """Set it to let the agent bring nodes to the MIG layout of the file, without ending a job. Default: `pulumi up`
    labels named nodes with the layout, which the MIG manager then carries out at once and on all of them."""

    @model_validator(mode="after")
    def _upgrade_goes_up(self) -> Self:
        upgrade = self.driver.upgrade
        if upgrade is not None and not gpuversions.is_older(self.driver.version, upgrade.version):
            raise ValueError(
                f"driver.upgrade.version: is not newer than driver.version {self.driver.version}; to go back, remove "
                "upgrade or lower driver.version"
            )
        return self
