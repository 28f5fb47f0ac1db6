"""What the agent reads from Node objects: our annotation, and the signs of everybody else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.clock import format_time
from runtime.eviction.notice import Certainty, Notice, NoticeKind, notices_to_json
from runtime.eviction.sources.nodes import (
    AUTOSCALER_SECONDS,
    GKE_SPOT_SECONDS,
    LOSS_GRACE_SECONDS,
    SPOT_SECONDS,
    notices_of,
    unreadable,
)
from runtime.eviction.sources.signs import CONDITIONS, LABELS, TAINTS
from stacks.labels import GPU_FAILED_TAINT, NOTICES_ANNOTATION

NOW = 1_790_000_000.0


def node(
    *taints: dict[str, str],
    conditions: tuple[dict[str, str], ...] = (),
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **metadata: Any,
) -> dict[str, Any]:
    return {
        "metadata": {"name": "gpu-1", "labels": labels or {}, "annotations": annotations or {}} | metadata,
        "spec": {"taints": list(taints)},
        "status": {"conditions": list(conditions)},
    }


def taint(key: str, value: str = "", effect: str = "NoSchedule", **more: str) -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect} | more


def read(raw: dict[str, Any]) -> list[tuple[str, NoticeKind, Certainty]]:
    return [(notice.source, notice.kind, notice.certainty) for notice in notices_of(raw, NOW)]


def test_a_healthy_node_says_nothing() -> None:
    ready = {"type": "Ready", "status": "True"}
    assert notices_of(node(taint("nvidia.com/gpu", "present"), conditions=(ready,)), NOW) == ()
    assert notices_of({}, NOW) == ()


def test_our_annotation_is_read_as_it_is() -> None:
    ours = Notice("aws-spot-1", NoticeKind.SPOT, "aws-spot", Certainty.CERTAIN, NOW - 3, NOW + 117)
    assert notices_of(node(annotations={NOTICES_ANNOTATION: notices_to_json([ours])}), NOW) == (ours,)


def test_the_same_event_seen_by_another_handler_adds_nothing() -> None:
    ours = Notice("aws-spot-1", NoticeKind.SPOT, "aws-spot", Certainty.CERTAIN, NOW, NOW + 120)
    theirs = taint("aws-node-termination-handler/spot-itn", "spot-itn-0f")
    assert notices_of(node(theirs, annotations={NOTICES_ANNOTATION: notices_to_json([ours])}), NOW) == (ours,)


def test_an_interruption_that_another_handler_tells_of_without_a_time_has_the_providers_window() -> None:
    theirs = taint("aws-node-termination-handler/spot-itn", "spot-itn-0f")
    [aws] = notices_of(node(theirs), NOW)
    assert aws.deadline == NOW + SPOT_SECONDS
    labels = {"cloud.google.com/gke-spot": "true"}
    [gke] = notices_of(node(taint("cloud.google.com/impending-node-termination", ""), labels=labels), NOW)
    assert (gke.kind, gke.deadline) == (NoticeKind.SPOT, NOW + GKE_SPOT_SECONDS)


def test_an_annotation_that_cannot_be_read_says_nothing_but_why() -> None:
    raw = node(taint("ToBeDeletedByClusterAutoscaler", "1790000000"), annotations={NOTICES_ANNOTATION: "{"})
    assert [notice.kind for notice in notices_of(raw, NOW)] == [NoticeKind.DISRUPTION]
    assert "is not JSON" in (unreadable(raw) or "")
    assert unreadable(node()) is None


def test_a_candidate_of_karpenter_may_be_spared_until_its_node_is_deleted() -> None:
    marked = taint("karpenter.sh/disrupted")
    assert read(node(marked)) == [("karpenter", NoticeKind.DISRUPTION, Certainty.LIKELY)]
    going = node(marked, deletionTimestamp=format_time(NOW - 2), finalizers=["karpenter.sh/termination"])
    assert ("karpenter", NoticeKind.DISRUPTION, Certainty.CERTAIN) in read(going)


def test_the_cluster_autoscaler_says_when_it_began() -> None:
    (notice,) = notices_of(node(taint("ToBeDeletedByClusterAutoscaler", f"{NOW - 20:.0f}")), NOW)
    assert (notice.noticed_at, notice.deadline) == (NOW - 20, NOW - 20 + AUTOSCALER_SECONDS)
    for nonsense in ("", "soon", "-1", "9" * 40, "²"):
        (notice,) = notices_of(node(taint("ToBeDeletedByClusterAutoscaler", nonsense)), NOW)
        assert (notice.noticed_at, notice.deadline) == (NOW, None)
    assert notices_of(node(taint("DeletionCandidateOfClusterAutoscaler", "1", "PreferNoSchedule")), NOW) == ()


def test_a_silent_node_is_lost_only_after_a_while() -> None:
    for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"):
        fresh = taint(key, effect="NoExecute", timeAdded=format_time(NOW - LOSS_GRACE_SECONDS + 1))
        assert notices_of(node(fresh), NOW) == ()
        lost = taint(key, effect="NoExecute", timeAdded=format_time(NOW - LOSS_GRACE_SECONDS))
        (notice,) = notices_of(node(lost, taint(key)), NOW)
        assert (notice.kind, notice.certainty, notice.deadline) == (
            NoticeKind.LOSS,
            Certainty.CERTAIN,
            NOW - LOSS_GRACE_SECONDS,
        )


def test_without_a_time_on_the_taint_the_condition_says_since_when() -> None:
    silent = taint("node.kubernetes.io/unreachable")
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": format_time(NOW - 90)}
    assert [notice.noticed_at for notice in notices_of(node(silent, conditions=(ready,)), NOW)] == [NOW - 90]
    assert notices_of(node(silent), NOW) == (), "a silence of unknown length is doubtful"


def test_a_node_that_is_shut_down_is_lost_at_once() -> None:
    (notice,) = notices_of(node(taint("node.kubernetes.io/out-of-service", "nodeshutdown", "NoExecute")), NOW)
    assert (notice.kind, notice.deadline) == (NoticeKind.LOSS, NOW)


def test_a_fault_is_likely_until_somebody_acts_on_it() -> None:
    fault = {
        "type": "SysLogsXIDError",
        "status": "True",
        "message": "[79] GPU 0 - RecommendedAction: RESTART_VM",
        "lastTransitionTime": format_time(NOW - 7),
    }
    label = "dgxc.nvidia.com/nvsentinel-state"
    likely = ("nvsentinel", NoticeKind.REPAIR, Certainty.LIKELY)
    certain = ("nvsentinel", NoticeKind.REPAIR, Certainty.CERTAIN)
    assert read(node(conditions=(fault,))) == [likely]
    assert read(node(labels={label: "quarantined"})) == [likely]
    assert certain in read(node(conditions=(fault,), labels={label: "draining"}))
    assert read(node(labels={label: "remediation-succeeded"})) == []
    assert read(node(taint("nvidia.com/gpu-xid-error", "true"))) == [likely]
    assert read(node(taint("nvidia.com/gpu-xid-error", "true", "NoExecute"))) == [certain]


def test_a_gpu_that_failed_warns_the_jobs_of_its_node_and_stops_none() -> None:
    assert read(node(taint(GPU_FAILED_TAINT, "Xid79"))) == [("gpufleet", NoticeKind.REPAIR, Certainty.LIKELY)]
    [notice] = notices_of(node(taint(GPU_FAILED_TAINT, "Xid79")), NOW)
    assert (notice.deadline, notice.detail) == (None, f"taint {GPU_FAILED_TAINT}=Xid79")


def test_a_condition_that_is_false_unknown_or_harmless_is_no_notice() -> None:
    harmless = "[DCGM_FR_CLOCK_THROTTLE_THERMAL] hot - RecommendedAction: NONE"
    for status, message in (("False", ""), ("Unknown", ""), ("True", harmless)):
        assert read(node(conditions=({"type": "GpuThermalWatch", "status": status, "message": message},))) == []
    both = f"{harmless};[DCGM_FR_FAULTY_MEMORY] bad - RecommendedAction: CONTACT_SUPPORT"
    assert len(read(node(conditions=({"type": "GpuThermalWatch", "status": "True", "message": both},)))) == 1


def test_a_driver_upgrade_is_certain_once_pods_have_to_go() -> None:
    label = "nvidia.com/gpu-driver-upgrade-state"
    assert read(node(labels={label: "upgrade-required"})) == []
    assert read(node(labels={label: "wait-for-jobs-required"})) == [
        ("gpu-operator", NoticeKind.UPGRADE, Certainty.LIKELY)
    ]
    assert read(node(labels={label: "drain-required"})) == [("gpu-operator", NoticeKind.UPGRADE, Certainty.CERTAIN)]


def test_the_taint_of_gke_means_preemption_on_spot_nodes_and_maintenance_elsewhere() -> None:
    gke = taint("cloud.google.com/impending-node-termination")
    assert [kind for _, kind, _ in read(node(gke, labels={"cloud.google.com/gke-spot": "true"}))] == [NoticeKind.SPOT]
    assert [kind for _, kind, _ in read(node(gke))] == [NoticeKind.MAINTENANCE]


def test_every_sign_makes_a_notice_that_can_be_written() -> None:
    for key in TAINTS:
        assert notices_to_json(notices_of(node(taint(key)), NOW)) != "[]"
    for type_ in CONDITIONS:
        assert notices_to_json(notices_of(node(conditions=({"type": type_, "status": "True"},)), NOW)) != "[]"
    for label, states in LABELS.items():
        for state in states:
            assert notices_to_json(notices_of(node(labels={label: state}), NOW)) != "[]"


DATES = ["deletionTimestamp", "timeAdded", "lastTransitionTime"]

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from([*TAINTS, "True", "NoExecute"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["taints", "key", "value", "conditions", "type", "labels", "finalizers", *DATES]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(raw=st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), JUNK))
def test_no_node_whatever_is_in_it_breaks_the_reading(raw: dict[str, Any]) -> None:
    notices_of(raw, NOW)
    unreadable(raw)


@pytest.mark.parametrize("at", ["", "soon", 7, None, format_time(NOW + 9_999)])
def test_a_time_that_is_nonsense_or_ahead_counts_as_now(at: object) -> None:
    raw = node(deletionTimestamp=at or "x")
    assert [notice.noticed_at for notice in notices_of(raw, NOW)] == [NOW]
