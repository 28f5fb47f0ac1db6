from __future__ import annotations

from typing import Any

import pytest

from infra.local.plugins.kubernetes.conditions import SKIP_AWAIT, TIMEOUT_SECONDS, WAIT_FOR, conditions_of, timeout_of
from infra.local.plugins.kubernetes.errors import ConditionSyntaxError


def queue(wait_for: str, status: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "q", "annotations": {WAIT_FOR: wait_for}, **metadata},
        "status": status or {},
    }


def holds(manifest: dict[str, Any]) -> bool:
    return all(condition.judge(manifest).holds for condition in conditions_of(manifest))


ACTIVE = {"conditions": [{"type": "Active", "status": "True"}], "phase": "Ready", "a.b": [{"c": 1}]}


@pytest.mark.parametrize(
    "wait_for",
    [
        "condition=Active",
        "condition=active=true",
        "jsonpath={.status.phase}",
        "jsonpath={.status.phase}=Ready",
        "jsonpath='{.status.phase}'=Ready",
        "jsonpath={.status['a.b'][0].c}=1",
        '["condition=Active", "jsonpath={.status.phase}=Ready"]',
    ],
)
def test_a_condition_holds_when_the_object_says_so(wait_for: str) -> None:
    assert holds(queue(wait_for, ACTIVE))
    assert not holds(queue(wait_for))


@pytest.mark.parametrize("wait_for", ["condition=Active=False", "jsonpath={.status.phase}=Read", '["condition=Gone"]'])
def test_another_value_does_not_hold(wait_for: str) -> None:
    assert not holds(queue(wait_for, ACTIVE))


@pytest.mark.parametrize(
    "wait_for",
    [
        "",
        "Active",
        "condition=",
        "jsonpath=.status",
        "jsonpath={status}",
        "jsonpath={.a[*]}",
        "[]",
        "[1]",
        "[",
        '["x"]',
    ],
)
def test_what_cannot_be_read_is_refused_with_the_syntax(wait_for: str) -> None:
    with pytest.raises(ConditionSyntaxError, match=r"expected \"condition=TYPE\""):
        conditions_of(queue(wait_for))


def test_a_status_of_an_older_generation_does_not_count() -> None:
    stale = {"conditions": [{"type": "Active", "status": "True", "observedGeneration": 1}]}
    assert not holds(queue("condition=Active", stale, generation=2))
    assert holds(queue("condition=Active", stale, generation=1))


def test_the_verdict_repeats_what_the_controller_said() -> None:
    condition = {"type": "Active", "status": "False", "reason": "FlavorNotFound", "message": "no flavor h100"}
    manifest = queue("condition=Active", {"conditions": [condition]})
    assert conditions_of(manifest)[0].judge(manifest).seen == "Active=False: FlavorNotFound: no flavor h100"


def test_nothing_is_awaited_for_most_kinds_or_on_request() -> None:
    manifest = queue("condition=Active")
    manifest["metadata"]["annotations"][SKIP_AWAIT] = "true"
    assert conditions_of(manifest) == []
    assert conditions_of({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}) == []


def test_a_deployment_is_awaited_until_every_replica_of_this_version_is_available() -> None:
    manifest: dict[str, Any] = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d", "generation": 2},
        "spec": {"replicas": 2},
    }
    assert not holds(manifest)
    manifest["status"] = {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 2}
    assert not holds(manifest)
    manifest["status"]["observedGeneration"] = 2
    assert holds(manifest)
    manifest["status"]["updatedReplicas"] = 1
    assert not holds(manifest)


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "inf", "5m"])
def test_a_timeout_is_a_positive_number_of_seconds(text: str) -> None:
    manifest = queue("condition=Active")
    manifest["metadata"]["annotations"][TIMEOUT_SECONDS] = text
    with pytest.raises(ConditionSyntaxError, match="positive number of seconds"):
        timeout_of(manifest)
