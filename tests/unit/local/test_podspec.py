"""From pod template to process: what is rewritten, what is refused, what is reported."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra.local import podspec, podstatus, podvolumes
from infra.local.errors import PodSpecError
from infra.local.podspec import PodPlan

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def deployment(**pod: Any) -> dict[str, Any]:
    container = {"name": "agent", "image": "x", "command": ["python", "-m", "runtime"], **pod.pop("container", {})}
    spec = {"containers": [container], "serviceAccountName": "agent", **pod}
    return {
        "metadata": {"name": "agent", "namespace": "gpufleet-system", "generation": 3},
        "spec": {"replicas": 1, "template": {"spec": spec}},
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/fleet", "/local"),
        ("/etc/fleet/policy.yaml", "/local/policy.yaml"),
        ("--config=/etc/fleet/policy.yaml", "--config=/local/policy.yaml"),
        ("file:///etc/fleet/x", "file:///local/x"),
        ("a:/etc/fleet,/etc/fleet/b", "a:/local,/local/b"),
        ("/etc/fleet.d/x", "/etc/fleet.d/x"),
        ("/etc/fleets", "/etc/fleets"),
        ("/srv/etc/fleet", "/srv/etc/fleet"),
        ("s3://bucket/etc/fleet", "s3://bucket/etc/fleet"),
        ("/etc/fleet/deep/file", "/nested/file"),
        ("", ""),
    ],
)
def test_mount_paths_are_rewritten_where_they_begin_a_path(text: str, expected: str) -> None:
    rewrite = podspec.path_rewriter({"/etc/fleet": "/local", "/etc/fleet/deep": "/nested"})
    assert rewrite(text) == expected


def test_a_directory_below_its_own_mount_path_is_not_rewritten_twice() -> None:
    rewrite = podspec.path_rewriter({"/tmp": "/tmp/state/pods/tmp"})
    assert rewrite("/tmp/x") == "/tmp/state/pods/tmp/x"


def test_command_environment_and_ports_become_local() -> None:
    plan = podspec.plan(
        deployment(
            container={
                "args": ["--policy=/etc/fleet/policy.yaml", "--name=$(POD_NAME)", "$$(POD_NAME)", "$(UNKNOWN)"],
                "env": [
                    {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "STORE", "value": "file:///var/lib/ledger/$(POD_NAME)"},
                ],
                "ports": [{"name": "health-check", "containerPort": 8080}],
                "volumeMounts": [
                    {"name": "policy", "mountPath": "/etc/fleet/"},
                    {"name": "ledger", "mountPath": "/var/lib/ledger", "subPath": "a"},
                ],
            },
            volumes=[
                {"name": "policy", "configMap": {"name": "policy"}},
                {"name": "ledger", "persistentVolumeClaim": {"claimName": "ledger"}},
            ],
        ),
        0,
    )
    command, environment = plan.localized({"policy": "/p", "ledger": "/l"}, {"health-check": 4711}, "/venv/python")
    assert command == [
        "/venv/python",
        "-m",
        "runtime",
        "--policy=/p/policy.yaml",
        f"--name={plan.name}",
        "$(POD_NAME)",
        "$(UNKNOWN)",
    ]
    assert environment == {
        "POD_NAME": plan.name,
        "STORE": f"file:///l/a/{plan.name}",
        "GPUFLEET_PORT_HEALTH_CHECK": "4711",
    }
    assert plan.service_account == "agent"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"container": {"command": []}}, r"containers\[0\].command: missing"),
        ({"container": {"envFrom": [{}]}}, "envFrom: not supported"),
        ({"container": {"env": [{"name": "S", "valueFrom": {"secretKeyRef": {}}}]}}, "secretKeyRef.*is not supported"),
        ({"volumes": [{"name": "s", "secret": {}}]}, r"volumes\[s\]: secret is not supported"),
        ({"initContainers": [{}]}, "1 init containers"),
        ({"container": {"readinessProbe": {"exec": {}}}}, "only httpGet"),
        ({"container": {"readinessProbe": {"httpGet": {"port": "nope"}}}}, "'nope' is no named container port"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PodSpecError, match=message):
        podspec.plan(deployment(**change), 0)


def test_no_token_is_asked_for_where_the_template_wants_none() -> None:
    assert podspec.plan(deployment(automountServiceAccountToken=False), 0).service_account is None


def test_a_changed_template_has_another_digest_and_a_changed_scale_has_not() -> None:
    scaled = deployment()
    scaled["spec"]["replicas"] = 5
    assert podspec.template_digest(scaled) == podspec.template_digest(deployment())
    assert podspec.template_digest(deployment(nodeName="x")) != podspec.template_digest(deployment())


def test_a_projection_changes_all_files_at_once(tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    assert podvolumes.write_projection(volume, {"a": b"1", "b": b"1", "deep/c": b"1"})
    held = (volume / "..data").resolve()
    assert not podvolumes.write_projection(volume, {"a": b"1", "b": b"1", "deep/c": b"1"})
    assert (volume / "..data").resolve() == held
    assert podvolumes.write_projection(volume, {"a": b"2"})
    assert sorted(path.name for path in volume.iterdir() if not path.name.startswith("..")) == ["a"]
    assert (volume / "a").read_bytes() == b"2"
    assert not held.exists()


def test_an_empty_config_map_is_an_empty_directory(tmp_path: Path) -> None:
    podvolumes.write_projection(tmp_path / "volume", {})
    assert not podvolumes.write_projection(tmp_path / "volume", {})


@dataclass
class SeenReplica:
    plan: PodPlan
    ready: bool
    message: str = "running"


def report(item: dict[str, Any], *replicas: SeenReplica, problem: str = "", now: datetime.datetime = NOW) -> Any:
    return podstatus.status(item, 1, podspec.template_digest(item), replicas, problem, now)


def test_a_ready_replica_makes_the_deployment_available_and_complete() -> None:
    item = deployment()
    status = report(item, SeenReplica(podspec.plan(item, 0), ready=True))
    assert status["availableReplicas"] == status["updatedReplicas"] == 1
    assert status["observedGeneration"] == 3
    assert [c["reason"] for c in status["conditions"]] == ["MinimumReplicasAvailable", "NewReplicaSetAvailable"]


def test_an_old_replica_that_still_ends_keeps_the_roll_out_incomplete() -> None:
    item, old = deployment(), deployment(nodeName="x")
    status = report(item, SeenReplica(podspec.plan(old, 0), ready=True))
    assert "updatedReplicas" not in status
    assert status["conditions"][0]["status"] == "False"
    assert status["conditions"][1]["reason"] == "ReplicaSetUpdated"


def test_the_reason_why_a_replica_is_not_ready_is_in_the_condition() -> None:
    item = deployment()
    status = report(item, SeenReplica(podspec.plan(item, 0), ready=False, message="ended with exit code 3: boom"))
    assert "ended with exit code 3: boom" in status["conditions"][1]["message"]


def test_an_unsupported_template_says_so_in_the_condition() -> None:
    status = report(deployment(), problem="spec.volumes[s]: secret is not supported")
    assert status["conditions"][1] | {"lastUpdateTime": "", "lastTransitionTime": ""} == {
        "type": "Progressing",
        "status": "False",
        "reason": "PodTemplateNotSupported",
        "message": "spec.volumes[s]: secret is not supported",
        "lastUpdateTime": "",
        "lastTransitionTime": "",
    }


def test_unchanged_facts_give_an_identical_status() -> None:
    item = deployment()
    replica = SeenReplica(podspec.plan(item, 0), ready=True)
    item["status"] = report(item, replica)
    assert report(item, replica, now=NOW + datetime.timedelta(hours=1)) == item["status"]


def test_counts_that_become_zero_are_removed_by_the_patch() -> None:
    patch = podstatus.merge_patch({"replicas": 1})
    assert patch["replicas"] == 1
    assert patch["readyReplicas"] is None
