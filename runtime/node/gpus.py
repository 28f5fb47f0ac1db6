"""The part of a node agent that reads GPUs (`runtime.gpus`), made from the settings; imported only where it is on.

It has a client of its own, because it works beside the desk: a conflict between their writes is tried again by either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from runtime.gpus.events import NvmlEvents
from runtime.gpus.exporter import Exporter
from runtime.gpus.metrics import metrics
from runtime.gpus.monitor import Monitor
from runtime.gpus.nvml import Nvml
from runtime.gpus.podresources import PodResources
from runtime.gpus.report import Report
from runtime.gpus.survey import Survey
from runtime.node.kube import NodeClient
from runtime.node.settings import Settings

Pages = Mapping[str, Callable[[], tuple[int, str]]]

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def start(settings: Settings, others: Pages) -> dict[str, Callable[[], tuple[int, str]]]:
    """Begin to read; returns the pages to serve, which are those of the others with these added.

    Raises:
        ValueError: when a URL cannot be used.
    """
    survey = Survey(
        Nvml(),
        exported=Exporter(settings.gpu_exporter) if settings.gpu_exporter else None,
        pods=PodResources(settings.pod_resources) if settings.pod_resources else None,
    )
    report = Report(NodeClient(settings.server, settings.node, settings.account))
    monitor = Monitor(survey, NvmlEvents(), report, boot=_boot())
    monitor.start()
    return pages(monitor, others)


def pages(monitor: Monitor, others: Pages) -> dict[str, Callable[[], tuple[int, str]]]:
    """Health and metrics of both."""

    def healthz() -> tuple[int, str]:
        if problem := monitor.problem():
            return 503, f"{problem}\n"
        return others["/healthz"]() if "/healthz" in others else (200, "ok\n")

    def all_metrics() -> tuple[int, str]:
        text = others["/metrics"]()[1] if "/metrics" in others else ""
        return 200, text + "".join(metrics(monitor))

    return {"/healthz": healthz, "/metrics": all_metrics}


def _boot() -> str:
    """The boot of this machine, which is the same inside of a container; empty where the kernel does not say."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
