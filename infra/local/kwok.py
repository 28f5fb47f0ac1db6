"""Simulated GPU nodes: what KWOK plays, as data.

No container runs on these nodes. A pod's life is driven by its own annotations, so that a scenario is written where the
job is written:

    gpufleet.dev/sim-start-delay          time from binding to Running, a duration such as "20s" (image pull, boot)
    gpufleet.dev/sim-run-seconds          after this many seconds the pod ends; without it, it runs until deleted
    gpufleet.dev/sim-exit-code            how it ends: "0" (default) Succeeded, anything else Failed
    gpufleet.dev/sim-checkpoint-seconds   time between SIGTERM and gone, default 0

A time that is no number counts as none; an exit code that is no number leaves the pod running, and KWOK's log says so.

Invariant: nodes carry SIMULATED_LABEL; `reconcile_nodes` creates, changes and deletes only nodes with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.local.kubeclient import KubeClient, Manifest

ANNOTATION_PREFIX = "gpufleet.dev/"
SIMULATED_LABEL = "gpufleet.dev/simulated"
GPU_RESOURCE = "nvidia.com/gpu"
_PODS_PER_NODE = 250  # the upper end of what managed services allow per node; never the limit in a simulation

# KWOK exits unless all four are set; these values kept up with 250 nodes and 2,000 pods on two cores.
_PARALLELISM = {
    "podPlayStageParallelism": 16,
    "nodePlayStageParallelism": 4,
    "nodeLeaseParallelism": 4,
    "podsOnNodeSyncParallelism": 4,
}


@dataclass(frozen=True)
class KwokPool:
    """Nodes of one kind. `resources` adds extended resources per node, such as MIG profiles."""

    name: str
    node_names: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    gpus_per_node: int = 8
    cpus_per_node: int = 96
    memory_gib_per_node: int = 1024
    resources: Mapping[str, int] = field(default_factory=dict)


def nodes(pools: Sequence[KwokPool]) -> list[Manifest]:
    """Return one Node manifest per node of each pool.

    Raises:
        ValueError: two pools share a node name.
    """
    manifests: dict[str, Manifest] = {}
    for pool in pools:
        for name in pool.node_names:
            if name in manifests:
                raise ValueError(f"pool {pool.name!r}: node name {name!r} is taken by another pool; names must differ")
            manifests[name] = _node(pool, name)
    return list(manifests.values())


def _node(pool: KwokPool, name: str) -> Manifest:
    quantities = {
        "cpu": str(pool.cpus_per_node),
        "memory": f"{pool.memory_gib_per_node}Gi",
        "pods": str(_PODS_PER_NODE),
        **({GPU_RESOURCE: str(pool.gpus_per_node)} if pool.gpus_per_node else {}),
        **{resource: str(count) for resource, count in pool.resources.items()},
    }
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": name,
        **pool.labels,
        SIMULATED_LABEL: "true",
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": [dict(taint) for taint in pool.taints]} if pool.taints else {},
        "status": {"allocatable": dict(quantities), "capacity": dict(quantities)},
    }


def reconcile_nodes(client: KubeClient, pools: Sequence[KwokPool]) -> None:
    """Make the simulated nodes of the cluster exactly those of `pools`."""
    wanted = {manifest["metadata"]["name"]: manifest for manifest in nodes(pools)}
    present, _ = client.list("v1", "Node", label_selector=f"{SIMULATED_LABEL}=true")
    for node in present:
        if node["metadata"]["name"] not in wanted:
            client.delete("v1", "Node", node["metadata"]["name"])
    live = {node["metadata"]["name"]: node for node in present}
    for name, manifest in wanted.items():
        if name not in live:
            client.apply(manifest)
        elif not _carries(live[name], manifest):
            client.apply(manifest)
            client.apply({**manifest, "spec": {}}, subresource="status")


def _carries(live: Manifest, wanted: Manifest) -> bool:
    """Whether the live node has all we want, whatever others (the taint controller, a drain) added to it."""
    labels, taints = wanted["metadata"]["labels"], wanted["spec"].get("taints", [])
    live_taints = [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in live["spec"].get("taints", [])]
    return (
        labels.items() <= live["metadata"].get("labels", {}).items()
        and all(taint in live_taints for taint in taints)
        and live["status"].get("allocatable") == wanted["status"]["allocatable"]
    )


def configuration() -> list[Manifest]:
    """Return the documents of KWOK's configuration file: options and stages."""
    return [
        {
            "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
            "kind": "KwokConfiguration",
            "options": {"manageAllNodes": True, "nodeIP": "127.0.0.1", "cidr": "10.1.0.0/16", **_PARALLELISM},
        },
        _stage("node-ready", "Node", _NODE_NOT_READY, {"statusTemplate": _NODE_READY_STATUS}),
        _stage("pod-ready", "Pod", _POD_NEW, {"statusTemplate": _POD_READY_STATUS}, delay=_START_DELAY),
        _stage("pod-complete", "Pod", _POD_RUNS, {"statusTemplate": _POD_ENDED_STATUS}, delay=_RUN_TIME),
        _stage("pod-delete", "Pod", _POD_DELETED, {"delete": True}, delay=_CHECKPOINT_TIME),
    ]


def _stage(
    name: str, kind: str, selector: list[dict[str, Any]], then: dict[str, Any], delay: str | None = None
) -> Manifest:
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": selector},
        "next": then,
    }
    if delay:
        spec["delay"] = {"durationFrom": {"jq": {"expression": delay}}}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _annotation(name: str) -> str:
    return f'.metadata.annotations["{ANNOTATION_PREFIX}{name}"]'


_ALIVE: dict[str, Any] = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
# Once, without heartbeats: the controller manager's grace period makes them unnecessary.
_NODE_NOT_READY: list[dict[str, Any]] = [
    {
        "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
        "operator": "NotIn",
        "values": ["True"],
    }
]
_POD_NEW: list[dict[str, Any]] = [
    _ALIVE,
    {"key": ".status.phase", "operator": "In", "values": ["Pending"]},
    {"key": ".status.startTime", "operator": "DoesNotExist"},
]
_POD_RUNS: list[dict[str, Any]] = [
    _ALIVE,
    {"key": ".status.phase", "operator": "In", "values": ["Running"]},
    {"key": _annotation("sim-run-seconds"), "operator": "Exists"},
]
_POD_DELETED: list[dict[str, Any]] = [{"key": ".metadata.deletionTimestamp", "operator": "Exists"}]

_START_DELAY = _annotation("sim-start-delay")
_RUN_TIME = _annotation("sim-run-seconds") + ' + "s"'
_CHECKPOINT_TIME = f'({_annotation("sim-checkpoint-seconds")} // "0") + "s"'

_NODE_READY_STATUS = """\
conditions:
{{ range NodeConditions }}
- type: {{ .type | Quote }}
  status: {{ .status | Quote }}
  reason: {{ .reason | Quote }}
  message: {{ .message | Quote }}
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
{{ end }}
phase: Running
"""
_POD_READY_STATUS = """\
{{ $now := Now }}
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
phase: Running
startTime: {{ $now | Quote }}
"""
_POD_ENDED_STATUS = """\
{{ $now := Now }}
{{ $start := .status.startTime }}
{{ $code := or ( index .metadata.annotations "PREFIXsim-exit-code" ) "0" }}
conditions:
- {type: Ready, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: 0
  state:
    terminated:
      exitCode: {{ $code }}
      reason: {{ if eq $code "0" }}Completed{{ else }}Error{{ end }}
      startedAt: {{ $start | Quote }}
      finishedAt: {{ $now | Quote }}
{{ end }}
phase: {{ if eq $code "0" }}Succeeded{{ else }}Failed{{ end }}
""".replace("PREFIX", ANNOTATION_PREFIX)
