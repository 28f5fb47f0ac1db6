"""What the taints, conditions and labels of others mean that a Node carries: tables, and nothing else.

Only explicit signs are here, and the doubtful ones only as likely: what merely reports a fault, or may still be taken
back, is for whoever wrote it to act on, and then shows in a certain sign.

Where the names come from:

- Karpenter: kubernetes-sigs/karpenter, pkg/apis/v1/taints.go and labels.go. Candidates of consolidation carry the taint
  before their replacements are there and lose it when those fail, so it is likely until the Node is being deleted.
- Cluster autoscaler: kubernetes/autoscaler, cluster-autoscaler/utils/taints/taints.go; the value is the unix time of
  marking, and pods have `--max-graceful-termination-sec` from then. DeletionCandidateOfClusterAutoscaler stands on idle
  nodes only, and is no sign. The taint of the GKE termination handler is named there as well.
- aws-node-termination-handler: pkg/node/node.go; only with `taintNode`.
- NVSentinel: NVIDIA/NVSentinel, docs/INTEGRATIONS.md (conditions and their messages, examples of taints) and the states
  of commons/pkg/statemanager (label). Its drainer may let jobs end first, so quarantined nodes are likely to go.
- Node problem detector: kubernetes/node-problem-detector, README and config/kernel-monitor.json; AKS' own conditions:
  Microsoft, "Node Problem Detector in AKS".
- GPU operator, driver upgrades: NVIDIA/k8s-operator-libs, pkg/upgrade/consts.go.
- Our own reader of GPUs: runtime.gpus.condition. What runs on the other GPUs of the node goes on, so it is likely.
- Kubernetes: "Well-Known Labels, Annotations and Taints".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from runtime.eviction.notice import Certainty, NoticeKind
from stacks.labels import GPU_FAILED_TAINT

KARPENTER_FINALIZER: Final = "karpenter.sh/termination"
AUTOSCALER_TAINT: Final = "ToBeDeletedByClusterAutoscaler"
GKE_SPOT_LABELS: Final = ("cloud.google.com/gke-spot", "cloud.google.com/gke-preemptible")
"""GKE's termination handler has one taint for preemption and maintenance; its spot nodes are preempted."""

_CERTAIN, _LIKELY = Certainty.CERTAIN, Certainty.LIKELY


class Sign(NamedTuple):
    """What a taint, condition or label means."""

    source: str
    kind: NoticeKind
    certainty: Certainty


_HANDLER: Final = "aws-node-termination-handler"
_FAULT: Final = Sign("nvsentinel", NoticeKind.REPAIR, _LIKELY)
_UPGRADE: Final = Sign("gpu-operator", NoticeKind.UPGRADE, _LIKELY)
_PROBLEM: Final = Sign("node-problem-detector", NoticeKind.REPAIR, _LIKELY)

TAINTS: Final[Mapping[str, Sign]] = {
    "karpenter.sh/disrupted": Sign("karpenter", NoticeKind.DISRUPTION, _LIKELY),
    "karpenter.sh/disruption": Sign("karpenter", NoticeKind.DISRUPTION, _LIKELY),  # before Karpenter 1.0
    AUTOSCALER_TAINT: Sign("cluster-autoscaler", NoticeKind.DISRUPTION, _CERTAIN),
    f"{_HANDLER}/spot-itn": Sign(_HANDLER, NoticeKind.SPOT, _CERTAIN),
    f"{_HANDLER}/scheduled-maintenance": Sign(_HANDLER, NoticeKind.MAINTENANCE, _CERTAIN),
    f"{_HANDLER}/asg-lifecycle-termination": Sign(_HANDLER, NoticeKind.SCALE_IN, _CERTAIN),
    f"{_HANDLER}/rebalance-recommendation": Sign(_HANDLER, NoticeKind.REBALANCE, _LIKELY),
    "cloud.google.com/impending-node-termination": Sign("gke", NoticeKind.MAINTENANCE, _CERTAIN),
    "nvidia.com/gpu-xid-error": _FAULT,
    "nvidia.com/gpu-nvlink-error": _FAULT,
    "nvidia.com/syslog-xid-error": _FAULT,
    "nvidia.com/gpu-error": _FAULT,
    "node-problem-detector": _PROBLEM,
    GPU_FAILED_TAINT: Sign("gpufleet", NoticeKind.REPAIR, _LIKELY),
    "node.kubernetes.io/out-of-service": Sign("kubernetes", NoticeKind.LOSS, _CERTAIN),
    "node.cloudprovider.kubernetes.io/shutdown": Sign("kubernetes", NoticeKind.LOSS, _CERTAIN),
}

SILENT: Final = ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
"""Mean a loss when they have stood for a while."""

CONDITIONS: Final[Mapping[str, Sign]] = {
    **dict.fromkeys(
        (
            *("GpuMemWatch", "GpuPcieWatch", "GpuSmWatch", "GpuNvlinkWatch", "GpuMcuWatch", "GpuPmuWatch"),
            *("GpuThermalWatch", "GpuPowerWatch", "GpuInforomWatch", "GpuDriverWatch", "GpuMemoryError"),
            *("SysLogsXIDError", "SysLogsSXIDError", "SysLogsGPUFallenOff", "NVSwitchFatalError", "NVSwitchDown"),
        ),
        _FAULT,
    ),
    "CSPMaintenance": Sign("nvsentinel", NoticeKind.MAINTENANCE, _LIKELY),
    **dict.fromkeys(
        (
            *("KernelDeadlock", "ReadonlyFilesystem", "XfsShutdown", "CperHardwareErrorFatal"),
            *("ContainerRuntimeUnhealthy", "GPUMissing", "NVLinkStatusInactive"),
        ),
        _PROBLEM,
    ),
    "VMEventScheduled": Sign("node-problem-detector", NoticeKind.MAINTENANCE, _LIKELY),
}
"""Permanent faults only: a component that restarts often is none."""

LABELS: Final[Mapping[str, Mapping[str, Sign]]] = {
    "dgxc.nvidia.com/nvsentinel-state": {
        "quarantined": _FAULT,
        **dict.fromkeys(
            ("draining", "drain-succeeded", "drain-failed", "remediating", "remediation-failed"),
            _FAULT._replace(certainty=_CERTAIN),
        ),
    },
    "nvidia.com/gpu-driver-upgrade-state": {
        **dict.fromkeys(("cordon-required", "wait-for-jobs-required"), _UPGRADE),
        **dict.fromkeys(
            ("pod-deletion-required", "drain-required", "node-maintenance-required", "pod-restart-required"),
            _UPGRADE._replace(certainty=_CERTAIN),
        ),
    },
}
"""What the values of a label mean; those that are not here mean nothing."""
