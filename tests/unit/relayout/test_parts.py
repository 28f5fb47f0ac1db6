"""Jobs on slices and shares of GPUs: Kueue's alone, until their node goes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.clock import Clock, format_time
from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sequence import plan
from runtime.eviction.steps import Mark, Resume, Stop
from runtime.eviction.view import HeldWorkload, Marker, NodeView, Phase, PodView, View
from runtime.routing.observe import Observer
from runtime.routing.requests import holds_gpus
from runtime.routing.snapshot import Stage
from tests.builders import NOON, a_config
from tests.fakes.workloads import a_workload

SLICE = "nvidia.com/mig-1g.10gb"


def asking(resource: str, quantity: object = "1", kind: str = "requests") -> dict[str, Any]:
    return {"containers": [{"name": "main", "resources": {kind: {resource: quantity}}}]}


def on_slices(**status: Any) -> dict[str, Any]:
    template = {"metadata": {}, "spec": asking(SLICE)}
    raw = a_workload(podSets=[{"name": "main", "count": 2, "template": template}])
    return raw | {"status": {"conditions": []} | status}


def observer() -> Observer:
    return Observer(a_config(), Clock(), lambda *_: None)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", SLICE, "nvidia.com/gpu.shared", f"{SLICE}.shared"])
@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_whole_gpus_slices_and_shares_hold_a_node(resource: str, kind: str) -> None:
    assert holds_gpus(asking(resource, kind=kind))
    assert holds_gpus({"initContainers": asking(resource, "many")["containers"]})


@pytest.mark.parametrize("pod", [{}, asking("cpu"), asking("nvidia.com/mlnxnics"), asking("nvidia.com/gpu", "0")])
def test_what_asks_for_none_does_not(pod: dict[str, Any]) -> None:
    assert not holds_gpus(pod)


def test_a_job_on_slices_is_seen_by_those_alone_who_ask_for_it() -> None:
    assert observer().reduce(on_slices()) is None
    job = observer().reduce_any(on_slices())
    assert job is not None
    assert (job.gpus, job.stage, job.flavor) == (0, Stage.QUEUED, None)
    assert observer().reduce_any(a_workload()) == observer().reduce(a_workload())


def test_a_job_that_runs_on_slices_holds_the_flavor_of_its_slices() -> None:
    now = format_time(NOON)
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now, "reason": kind}
        for kind in ("QuotaReserved", "Admitted", "PodsReady")
    ]
    admission = {"podSetAssignments": [{"name": "main", "flavors": {"cpu": "x", SLICE: "h100-mig-onprem"}}]}
    job = observer().reduce_any(on_slices(conditions=conditions, admission=admission))
    assert job is not None
    assert (job.stage, job.flavor) == (Stage.RUNNING_LOCAL, "h100-mig-onprem")


def test_a_job_on_slices_is_asked_stopped_and_told_to_go_on_when_it_is_gone() -> None:
    notice = Notice("drain-by-agent-1", NoticeKind.LAYOUT, "drain-by-agent", Certainty.CERTAIN, NOON, None)
    node = NodeView("n1", (notice,), present=True, ready=True, flavor="h100-mig-onprem")
    pod = PodView(
        uid="p", namespace="vision", name="p", node="n1", gpus=1, workload="job", running=True, grace_seconds=30,
        asked="", answer=None, hook="", daemon=False, managed=True,
    )  # fmt: skip
    workload = HeldWorkload(
        uid="w", namespace="vision", name="job", team="vision", job_class="p1", gpus=0, active=True, holds_quota=True,
        finished=False, started_at=NOON - 600, marker=None, last_checkpoint_at=None, flavor="h100-mig-onprem",
    )  # fmt: skip
    [ask] = plan(View({"n1": node}, [pod], [workload]), NOON)
    asked = replace(workload, marker=_marker(ask))
    [stop] = plan(View({"n1": node}, [replace(pod, asked=_marker(ask).request)], [asked]), NOON + 121)
    assert isinstance(stop, Stop)
    held = replace(asked, marker=stop.marker, active=False, holds_quota=False)
    [gone] = plan(View({"n1": node}, [], [held]), NOON + 130)
    assert isinstance(gone, Mark)
    [resume] = plan(View({"n1": node}, [], [replace(held, marker=gone.marker)]), NOON + 131)
    assert isinstance(resume, Resume)
    assert (resume.marker.phase, resume.marker.accounted, resume.marker.attempts) == (Phase.DONE, True, 1)
    assert not plan(View({"n1": node}, [], [replace(held, marker=resume.marker, active=True)]), NOON + 132)


def _marker(step: Any) -> Marker:
    assert isinstance(step.marker, Marker)
    return step.marker
