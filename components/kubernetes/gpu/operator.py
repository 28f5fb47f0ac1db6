"""NVIDIA's GPU Operator: the Helm release, and the values that make it ours.

The defaults of the chart that we change, and why:

- A container could have every GPU by an environment variable, without asking for one (`NVIDIA_VISIBLE_DEVICES`): the
  toolkit takes it from privileged containers only, and the device plugin hands GPUs out by CDI.
- Series are named after the exporter's own pod: `honorLabels` keeps the names of the pods that use the GPUs, and each
  series says its node.
- Drivers are one resource per pool, so that one pool can have another driver than the rest (`drivers`).
- Operands tolerate every NoSchedule taint: they run on cloud nodes, and come back on nodes that are being emptied for
  another MIG layout, which would otherwise never end.

It sets no MIG layout: that is a label of each node.
"""

from __future__ import annotations

from typing import Any, Final

from components.kubernetes.gpu.exporter import METRICS_NAME
from components.kubernetes.gpu.partitions import LAYOUTS_NAME, PLUGIN_NAME
from components.names import Manifest, manifest
from stacks.fleet import Fleet
from stacks.layouts import ALL_DISABLED, PLUGIN_DEFAULT, operator_is_ours, served_pools

REPOSITORY: Final = "https://helm.ngc.nvidia.com/nvidia"
CHART: Final = "gpu-operator"

EXPORTER_SERVICE: Final = "nvidia-dcgm-exporter"
EXPORTER_PORT: Final = 9400
"""The operator's own names (assets/state-dcgm-exporter)."""

RELEASE_TIMEOUT_SECONDS: Final = 600
_KEPT_REVISIONS: Final = 10

TOLERATIONS: Final = [{"operator": "Exists", "effect": "NoSchedule"}]

_PRIVILEGED: Final = {"pod-security.kubernetes.io/enforce": "privileged"}
"""Drivers are loaded from containers, which Pod Security allows in such namespaces only."""

_TOOLKIT_ENV: Final = {
    "ACCEPT_NVIDIA_VISIBLE_DEVICES_ENVVAR_WHEN_UNPRIVILEGED": "false",
    "ACCEPT_NVIDIA_VISIBLE_DEVICES_AS_VOLUME_MOUNTS": "true",
}
_PLUGIN_ENV: Final = {"DEVICE_LIST_STRATEGY": "cdi-cri,cdi-annotations,volume-mounts"}


def releases(fleet: Fleet) -> dict[str, dict[str, Any]]:
    """The release of the GPU Operator; nothing where somebody else installs it."""
    if not operator_is_ours(fleet):
        return {}
    settings = fleet.gpu_layer.operator
    return {"gpu-operator": release(CHART, settings.version, settings.namespace, values(fleet))}


def release(chart: str, version: str, namespace: str, chart_values: dict[str, Any]) -> dict[str, Any]:
    """One release of a chart of NVIDIA's, under the chart's own name."""
    return {
        "name": chart,
        "chart": chart,
        "version": version,
        "namespace": namespace,
        "createNamespace": False,
        "repositoryOpts": {"repo": REPOSITORY},
        "timeout": RELEASE_TIMEOUT_SECONDS,
        "maxHistory": _KEPT_REVISIONS,
        "values": chart_values,
    }


def namespaces(fleet: Fleet) -> dict[str, Manifest]:
    """The operator's namespace."""
    if not operator_is_ours(fleet):
        return {}
    return {"namespace": manifest("v1", "Namespace", fleet.gpu_layer.operator.namespace, labels=_PRIVILEGED)}


def values(fleet: Fleet) -> dict[str, Any]:
    """The values of the chart. What they say of an operand ends up in the ClusterPolicy under the same name."""
    pools = served_pools(fleet).values()
    cut = [pool.mig for pool in pools if pool.mig is not None]
    return {
        "nfd": {"enabled": True},
        "node-feature-discovery": {"worker": {"tolerations": TOLERATIONS}},
        "daemonsets": {"tolerations": TOLERATIONS},
        "cdi": {"enabled": True},
        "driver": {
            "enabled": True,
            "kernelModuleType": fleet.gpu_layer.driver.kernel_module,
            "nvidiaDriverCRD": {"enabled": True, "deployDefaultCR": False},
        },
        "toolkit": {"enabled": True, "version": fleet.gpu_layer.toolkit, "env": _env(_TOOLKIT_ENV)},
        "mig": {"strategy": cut[0].strategy if cut else "none"},
        "migManager": {
            "enabled": True,
            "config": {"create": False, "name": LAYOUTS_NAME, "default": ALL_DISABLED},
            "env": _env({"WITH_REBOOT": str(_reboots(fleet)).lower()}),
        },
        "devicePlugin": {
            "enabled": True,
            "env": _env(_PLUGIN_ENV),
            "config": {"create": False, "name": PLUGIN_NAME, "default": PLUGIN_DEFAULT},
        },
        "dcgmExporter": _exporter(fleet),
    }


def _exporter(fleet: Fleet) -> dict[str, Any]:
    settings = fleet.gpu_layer.exporter
    env = {"DCGM_EXPORTER_INTERVAL": str(int(settings.interval.total_seconds() * 1_000))}
    if any(pool.sharing is not None for pool in served_pools(fleet).values()):
        env["KUBERNETES_VIRTUAL_GPUS"] = "true"  # else a shared GPU's series name none of its pods
    seconds = f"{max(1, round(settings.interval.total_seconds()))}s"
    return {
        "enabled": True,
        "config": {"create": False, "name": METRICS_NAME},
        "env": _env(env),
        "service": {"internalTrafficPolicy": "Local"},  # whoever asks on a node means that node's GPUs
        "enablePodLabels": bool(settings.pod_labels),
        "podLabelAllowlistRegex": list(settings.pod_labels),
        "serviceMonitor": {
            "enabled": fleet.home.software.prometheus != "skip",
            "interval": seconds,
            "honorLabels": True,
            "relabelings": [
                {"action": "replace", "sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
            ],
        },
    }


def _reboots(fleet: Fleet) -> bool:
    relayout = fleet.gpu_layer.relayout
    return relayout is not None and relayout.mode_change == "reboot"


def _env(variables: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]
