"""What a node agent is started with: arguments, and the environment of its pod.

Every argument may also stand in the environment; the argument wins. There is no file of settings.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtime.node.kube import SERVICE_ACCOUNT

PROVIDERS: Final = ("auto", "aws", "gcp", "azure", "none")

GPUS: Final = ("off", "on", "only")
"""Whether the GPUs are read: not, beside the notices, or by a process of its own, which reads no notices.

The GPU Operator stops pods with `nvidia.com/gpu.deploy.client` while it changes MIG, because they hold the driver; who
reads notices must not be stopped, so that on its nodes there are two processes.
"""

DEFAULT_PORT: Final = "9477"
"""On the host's network, so none that a common daemon uses; where it is taken, the agent goes on without."""

EVERYWHERE: Final = ""
"""The kubelet and Prometheus ask from outside, over IPv4 or IPv6 as the cluster has it."""

LOCAL_PORT_VARIABLE: Final = "GPUFLEET_PORT_HEALTH"
"""Set where many share one machine: the port to use instead, on loopback alone."""

_SECONDS: Final = re.compile(r"([0-9]{1,6})s?")


class SettingsError(Exception):
    """A setting cannot be used; the text names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a node agent is told; `port` is None where it is to listen nowhere."""

    node: str
    provider: str
    metadata_url: str | None
    notices: str | None
    gcp_notice_seconds: float
    lead_seconds: float
    server: str
    account: Path
    port: int | None
    bind: str
    log_level: str
    gpus: str = "off"
    gpu_exporter: str | None = None
    pod_resources: str | None = None


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """Read arguments and environment.

    Raises:
        SettingsError: in one sentence, when one of them cannot be used.
    """
    options = _parser(environment).parse_args(arguments)
    if not options.node_name:
        raise SettingsError("no node: give --node-name, or NODE_NAME from the pod's spec.nodeName")
    local = LOCAL_PORT_VARIABLE in environment
    return Settings(
        node=options.node_name,
        provider=_provider(options.provider),
        metadata_url=options.metadata_url or None,
        notices=options.notices_url or None,
        gcp_notice_seconds=_seconds("--gcp-notice-seconds", options.gcp_notice_seconds),
        lead_seconds=_seconds("--maintenance-lead-seconds", options.maintenance_lead_seconds),
        server=options.api_server or _in_cluster(environment),
        account=Path(environment.get("GPUFLEET_SERVICE_ACCOUNT_DIR", str(SERVICE_ACCOUNT))),
        port=_port(environment[LOCAL_PORT_VARIABLE] if local else options.port),
        bind=environment.get("GPUFLEET_BIND", "127.0.0.1" if local else EVERYWHERE),
        log_level=options.log_level,
        gpus=_gpus(options.gpus),
        gpu_exporter=options.gpu_exporter_url or None,
        pod_resources=options.pod_resources or None,
    )


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtime.node",
        description="The gpufleet node agent: reads that this node will go, and says so on its Node object.",
    )

    def option(name: str, default: str, text: str, variable: str = "") -> None:
        variable = variable or f"GPUFLEET_{name.removeprefix('--').replace('-', '_').upper()}"
        value = environment.get(variable, default)
        parser.add_argument(name, default=value, help=f"{text} [{variable}; default: {default or 'none'}]")

    option("--node-name", "", "name of this node", "NODE_NAME")
    option("--provider", "auto", f"whom to ask: {', '.join(PROVIDERS)}")
    option("--metadata-url", "", "base URL of the metadata service, where it is not at the usual place")
    option("--notices-url", "", "path or URL of notices that a broker or an operator writes")
    option("--gcp-notice-seconds", "30", "how long GCP leaves a spot VM after its notice: 0, 30 or 120")
    option("--maintenance-lead-seconds", "3600", "how long before a scheduled event of AWS the node takes no more jobs")
    option("--gpus", "off", f"whether to read the GPUs: {', '.join(GPUS)}; only reads no notices")
    option("--gpu-exporter-url", "", "metrics of dcgm-exporter on this node, for what NVML does not tell of MIG")
    option("--pod-resources", "", "socket of the kubelet that says which pod has which GPU")
    option("--api-server", "", "URL of the API server, where it is not that of the pod's cluster")
    # Not GPUFLEET_PORT: Kubernetes sets that in every pod beside a Service called gpufleet.
    option("--port", DEFAULT_PORT, "port of /healthz and /metrics; 0 picks a free one, off is none", "GPUFLEET_LISTEN")
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    return parser


def _provider(text: str) -> str:
    if text not in PROVIDERS:
        raise SettingsError(f"provider {text!r}: must be one of {', '.join(PROVIDERS)}")
    return text


def _gpus(text: str) -> str:
    if text not in GPUS:
        raise SettingsError(f"gpus {text!r}: must be one of {', '.join(GPUS)}")
    return text


def _seconds(name: str, text: str) -> float:
    match = _SECONDS.fullmatch(text)
    if match is None:
        raise SettingsError(f"{name} {text!r}: must be whole seconds, like 30 or 30s")
    return float(match[1])


def _port(text: str) -> int | None:
    if text == "off":
        return None
    if not text.isascii() or not text.isdigit() or int(text[:6]) > 65_535:
        raise SettingsError(f"port {text!r}: must be a number from 0 to 65535, or off")
    return int(text)


def _in_cluster(environment: Mapping[str, str]) -> str:
    host, port = environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise SettingsError("no API server: run in a pod of the cluster, or give --api-server")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
