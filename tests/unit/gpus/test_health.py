"""Verdicts on GPUs, and what a Node says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.gpus.condition import change_for, faults_on, status_change
from runtime.gpus.health import HOT_READINGS, SETTLED_SECONDS, XIDS, Fault, State, faults_of, judge, standing
from runtime.gpus.reader import EventKind, GpuEvent, Health
from stacks.labels import GPU_CONDITION, GPU_FAILED_TAINT, GPU_FAULTS_ANNOTATION

WELL = Health("GPU-0", recovery="none", remap_pending=False, remap_failed=False, thermal_slowdown=False)
FAULT = Fault("GPU-0", 79, 100.0, "boot-1")
OTHERS = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}


def verdict(health: Health = WELL, *faults: Fault, hot: int = 0) -> Any:
    return judge([health, replace(WELL, uuid="GPU-1")], faults, {health.uuid: hot})


def test_gpus_that_say_nothing_bad_are_healthy() -> None:
    assert verdict().state is State.HEALTHY
    assert verdict(Health("GPU-0")).state is State.HEALTHY  # a card that gives no figure at all
    assert verdict().message == "2 GPUs without a fault"


@pytest.mark.parametrize(
    ("health", "state", "reason"),
    [
        (replace(WELL, lost=True), State.FAILED, "GpuLost"),
        (replace(WELL, reset_required=True), State.FAILED, "ResetRequired"),
        (replace(WELL, remap_failed=True), State.FAILED, "RowRemapFailed"),
        (replace(WELL, remap_pending=True), State.DEGRADED, "RowRemapPending"),
        (replace(WELL, recovery="node-reboot"), State.FAILED, "RecoveryAction"),
        (replace(WELL, recovery="drain-p2p"), State.DEGRADED, "RecoveryAction"),
        (replace(WELL, recovery="action-12"), State.DEGRADED, "RecoveryAction"),
    ],
)
def test_what_a_gpu_says_of_itself_decides(health: Health, state: State, reason: str) -> None:
    found = verdict(health)
    assert (found.state, found.reason) == (state, reason)
    assert (found.of("GPU-0"), found.of("GPU-1")) == (state, State.HEALTHY)


def test_the_worst_finding_gives_the_reason_and_all_are_told() -> None:
    found = verdict(replace(WELL, remap_pending=True), FAULT)
    assert (found.state, found.reason) == (State.FAILED, "Xid79")
    assert "fell off the bus" in found.message
    assert "RowRemapPending" in found.message


def test_one_hot_reading_is_a_peak_and_several_are_a_finding() -> None:
    hot = replace(WELL, thermal_slowdown=True)
    assert verdict(hot, hot=HOT_READINGS - 1).state is State.HEALTHY
    assert verdict(hot, hot=HOT_READINGS).reason == "ThermalSlowdown"
    assert verdict(replace(WELL, power_brake=True), hot=HOT_READINGS).reason == "PowerBrake"


def test_faults_of_applications_are_no_faults_of_the_gpu() -> None:
    events = [GpuEvent("GPU-0", EventKind.XID, number) for number in (13, 31, 43, 45, 68, 109, 79, 12345)]
    events.append(GpuEvent("GPU-0", EventKind.RECOVERY, 0))
    assert [fault.xid for fault in faults_of(events, 1.0, "b")] == [79]


def test_a_fault_stands_until_the_next_boot_or_the_driver_says_that_nothing_is_to_be_done() -> None:
    silent = replace(WELL, recovery=None)
    late = FAULT.at + SETTLED_SECONDS
    assert standing([FAULT, FAULT], [silent], late + 1e6, "boot-1") == (FAULT,)
    assert standing([FAULT], [silent], late, "boot-2") == ()
    assert standing([FAULT], [WELL], late - 1, "boot-1") == (FAULT,)
    assert standing([FAULT], [WELL], late, "boot-1") == ()
    assert standing([FAULT], [replace(WELL, recovery="gpu-reset")], late, "boot-1") == (FAULT,)
    assert standing([FAULT, replace(FAULT, at=900.0)], [silent], late, "boot-1") == (FAULT,)


def node(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7"} | metadata, "spec": {"taints": [OTHERS]}, "status": {}}


def test_only_a_failed_gpu_keeps_jobs_off_and_takes_it_back_when_it_is_well() -> None:
    degraded = verdict(replace(WELL, remap_pending=True))
    assert change_for(node(), degraded, []) is None
    change = change_for(node(), verdict(WELL, FAULT), [FAULT])
    assert change is not None
    ours = {"key": GPU_FAILED_TAINT, "value": "Xid79", "effect": "NoSchedule"}
    assert change["spec"]["taints"] == [OTHERS, ours]
    assert change["metadata"]["resourceVersion"] == "7"
    written = node(annotations=change["metadata"]["annotations"])
    written["spec"]["taints"] = change["spec"]["taints"]
    assert change_for(written, verdict(WELL, FAULT), [FAULT]) is None
    back = change_for(written, verdict(), [])
    assert back is not None
    assert back["spec"]["taints"] == [OTHERS]
    assert back["metadata"]["annotations"] == {GPU_FAULTS_ANNOTATION: None}


def test_the_condition_keeps_the_time_of_its_last_change() -> None:
    raw = node()
    first = status_change(raw, verdict(), 0.0)
    assert first is not None
    (condition,) = first["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (GPU_CONDITION, "True", "Healthy")
    raw["status"] = {"conditions": [{"type": "Ready", "status": "True"}, condition]}
    assert status_change(raw, verdict(), 60.0) is None
    second = status_change(raw, verdict(replace(WELL, remap_pending=True)), 60.0)
    assert second is not None
    raw["status"] = second["status"]
    third = status_change(raw, verdict(WELL, FAULT), 120.0)
    assert third is not None
    times = [change["status"]["conditions"][0]["lastTransitionTime"] for change in (first, second, third)]
    assert times == ["1970-01-01T00:00:00Z", "1970-01-01T00:01:00Z", "1970-01-01T00:01:00Z"]


def test_gpus_that_cannot_be_read_are_unknown_only_where_they_were_known() -> None:
    assert status_change(node(), None, 0.0) is None
    raw = node()
    raw["status"] = status_change(raw, verdict(), 0.0)["status"]  # type: ignore[index]
    unknown = status_change(raw, None, 9.0)
    assert unknown is not None
    assert unknown["status"]["conditions"][0]["status"] == "Unknown"


@given(
    st.lists(
        st.builds(Fault, st.text(max_size=8), st.sampled_from(sorted(XIDS)), st.floats(0, 2e9), st.just("b")),
        max_size=6,
    )
)
def test_faults_come_back_from_the_node_as_they_were_written(faults: list[Fault]) -> None:
    kept = standing(faults, [], 0.0, "b")
    change = change_for(node(), verdict(WELL, *kept), kept)
    annotations = change["metadata"].get("annotations", {}) if change else {}
    assert faults_on(node(annotations=annotations)) == kept


@pytest.mark.parametrize(
    "text",
    ["", "{", "[[]]", "[1]", "{}", "null", '[{"gpu": "a"}]', "[" * 5000, '[{"gpu":"a","xid":1,"at":0,"boot":""}]'],
)
def test_faults_that_nobody_can_read_are_none(text: str) -> None:
    assert faults_on(node(annotations={GPU_FAULTS_ANNOTATION: text})) == ()
    assert faults_on({"metadata": None}) == ()
    assert faults_on(node(annotations={GPU_FAULTS_ANNOTATION: json.dumps([{"gpu": "a", "xid": True}])})) == ()
