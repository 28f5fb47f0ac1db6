from __future__ import annotations

import threading

import pytest

from tests.engine.conftest import ControlPlane, Stack, changes

CRD = """
definition = Object("crd", {
    "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
    "metadata": {"name": "%(plural)s.tests.invalid"},
    "spec": {
        "group": "tests.invalid", "scope": "Namespaced",
        "names": {"plural": "%(plural)s", "singular": "%(singular)s", "kind": "%(kind)s"},
        "versions": [{
            "name": "v1", "served": True, "storage": True, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": True,
                "properties": {"spec": {"type": "object", "properties": {"gpus": {"type": "integer"}}}},
            }},
        }],
    },
})
"""


def custom_resource_definition(kind: str) -> str:
    return CRD % {"kind": kind, "singular": kind.lower(), "plural": f"{kind.lower()}s"}


def test_a_preview_knows_names_and_leaves_uids_unknown(stack: Stack, control_plane: ControlPlane) -> None:
    result = stack.run(
        "preview",
        """
        first = config_map("foreseen", {"x": "1"})
        config_map("foreseen-too", {"name": first.metadata["name"], "uid": first.metadata["uid"]})
        """,
        "--diff",
    )
    assert result.succeeded, result.stdout + result.stderr
    assert "uid : [unknown]" in result.stdout
    assert 'name: "foreseen"' in result.stdout
    assert "warning" not in result.stdout + result.stderr
    assert control_plane.get("v1", "ConfigMap", "foreseen") is None


def test_a_preview_shows_what_the_api_server_would_refuse(stack: Stack, control_plane: ControlPlane) -> None:
    said = stack.fail("preview", 'config_map("misspelt", {"x": 1.5})')
    assert "misspelt" in said
    assert "Traceback" not in said


def test_a_change_of_one_object_updates_that_one_only(stack: Stack, control_plane: ControlPlane) -> None:
    program = """
    for index in range(3):
        config_map(f"steady-{index}", {"x": "%s" if index == 1 else "same"})
    Object("automatic", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "1"}})
    """
    assert stack.up(program % "before") == {"created": 5}
    assert stack.up() == {"unchanged": 5}
    result = stack.run("preview", program % "after", "--diff")
    assert 'data: {\n          ~ x: "before" => "after"' in result.stdout.replace("  ~ data", "data")
    assert stack.up() == {"updated": 1, "unchanged": 4}
    assert control_plane.get("v1", "ConfigMap", "steady-1")["data"] == {"x": "after"}


def test_a_field_that_the_program_drops_disappears_and_a_strangers_stays(
    stack: Stack, control_plane: ControlPlane
) -> None:
    stack.up('config_map("shared", {"mine": "1", "dropped": "1"})')
    metadata = {"name": "shared", "namespace": "default"}
    control_plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"theirs": "1"}})
    stack.up('config_map("shared", {"mine": "2"})')
    assert control_plane.get("v1", "ConfigMap", "shared")["data"] == {"mine": "2", "theirs": "1"}


def test_an_immutable_field_replaces_the_object_under_its_name(stack: Stack, control_plane: ControlPlane) -> None:
    program = """
    Object("binding", {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "replaced"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "%s"},
        "subjects": [{"kind": "User", "name": "somebody", "apiGroup": "rbac.authorization.k8s.io"}],
    })
    """
    stack.up(program % "view")
    group = "rbac.authorization.k8s.io/v1"
    before = control_plane.get(group, "ClusterRoleBinding", "replaced", None)
    assert stack.run("preview", program % "edit").succeeded
    assert stack.up()["replaced"] == 1
    after = control_plane.get(group, "ClusterRoleBinding", "replaced", None)
    assert after["roleRef"]["name"] == "edit"
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


def test_a_failure_in_the_middle_keeps_the_rest_and_the_next_up_repairs_it(
    stack: Stack, control_plane: ControlPlane
) -> None:
    program = """
    first = config_map("survivor", {"x": "1"})
    Object("broken", {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "broken"},
                      "spec": {"ports": [{"port": %s}]}}, pulumi.ResourceOptions(depends_on=[first]))
    """
    said = stack.fail("up", program % 70000)
    assert "spec.ports[0].port" in said
    assert "Traceback" not in said
    assert control_plane.get("v1", "ConfigMap", "survivor") is not None
    assert stack.up(program % 80) == {"created": 1, "unchanged": 2}


def test_drift_is_seen_by_refresh_and_repaired_by_up(stack: Stack, control_plane: ControlPlane) -> None:
    program = """
    config_map("drifting", {"x": "1"}, labels={"half": "0.5"})
    config_map("vanishing", {"x": "1"})
    Object("quota", {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "still"},
                     "spec": {"hard": {"cpu": 0.5, "memory": "1024Mi"}}})
    """
    stack.up(program)
    metadata = {"name": "drifting", "namespace": "default"}
    control_plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "touched"}})
    vanishing = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "vanishing", "namespace": "default"}}
    control_plane.objects.delete(vanishing, print)
    result = stack.run("refresh")
    assert result.succeeded, result.stdout + result.stderr
    assert changes(result) == {"updated": 1, "deleted": 1, "unchanged": 2}
    assert stack.up() == {"created": 1, "updated": 1, "unchanged": 2}
    assert control_plane.get("v1", "ConfigMap", "drifting")["data"] == {"x": "1"}


def test_destroy_leaves_nothing_and_names_the_finalizer_that_holds_an_object(
    stack: Stack, control_plane: ControlPlane
) -> None:
    stack.up(
        """
        config_map("doomed", {"x": "1"})
        config_map("held", {"x": "1"}, finalizers=["tests.invalid/hold"], annotations={"pulumi.com/timeoutSeconds": "1"})
        """
    )
    said = stack.fail("destroy")
    assert "tests.invalid/hold" in said
    assert "ConfigMap default/held" in said
    metadata = {"name": "held", "namespace": "default", "finalizers": []}
    control_plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}, manager="gpufleet-pulumi")
    assert stack.run("destroy").succeeded
    assert control_plane.get("v1", "ConfigMap", "doomed") is None
    assert control_plane.get("v1", "ConfigMap", "held") is None


def test_an_object_of_somebody_else_is_not_taken_over(stack: Stack, control_plane: ControlPlane) -> None:
    metadata = {"name": "taken", "namespace": "default"}
    control_plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"x": "theirs"}})
    for operation in ("preview", "up"):
        said = stack.fail(operation, 'config_map("taken", {"x": "mine"})')
        assert "ConfigMap default/taken (v1) exists already" in said
        assert "managed by somebody" in said
    assert control_plane.get("v1", "ConfigMap", "taken")["data"] == {"x": "theirs"}


def test_a_patch_sets_its_fields_and_gives_them_up(stack: Stack, control_plane: ControlPlane) -> None:
    control_plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "patched", "labels": {"old": "1"}}})
    patch = """
    Object("patch", {"apiVersion": "v1", "kind": "Node",
                     "metadata": {"name": "%s", "labels": {"gpu": "h100"}}}, suffix="Patch")
    """
    assert "does not exist" in stack.fail("up", patch % "absent")
    assert stack.up(patch % "patched")["created"] == 1
    assert (
        control_plane.get("v1", "Node", "patched", None)["metadata"]["labels"].items()
        >= {"old": "1", "gpu": "h100"}.items()
    )
    stack.up("")
    labels = control_plane.get("v1", "Node", "patched", None)["metadata"]["labels"]
    assert "gpu" not in labels
    assert labels["old"] == "1"


def test_a_kind_defined_in_the_same_run_is_used_and_its_condition_is_awaited(
    stack: Stack, control_plane: ControlPlane
) -> None:
    program = (
        custom_resource_definition("Rack")
        + """
Object("rack", {
    "apiVersion": "tests.invalid/v1", "kind": "Rack", "spec": {"gpus": 16},
    "metadata": {"name": "awaited", "annotations": {
        "pulumi.com/waitFor": "condition=Active", "pulumi.com/timeoutSeconds": "%s"}},
}, pulumi.ResourceOptions(depends_on=[definition]))
"""
    )
    assert stack.run("preview", program % 1).succeeded
    said = stack.fail("up")
    assert "Rack default/awaited" in said
    assert "condition=Active" in said
    assert "no condition Active yet" in said
    live = control_plane.get("tests.invalid/v1", "Rack", "awaited")
    assert live["spec"]["gpus"] == 16
    status = {"conditions": [{"type": "Active", "status": "True"}]}
    identity = {name: live[name] for name in ("apiVersion", "kind")}
    manifest = {**identity, "metadata": {"name": "awaited", "namespace": "default"}, "status": status}
    delayed = threading.Timer(4.0, control_plane.patch_status, [manifest])
    delayed.start()
    try:
        assert stack.up(program % 60)["updated"] == 1
    finally:
        delayed.join()


@pytest.mark.parametrize("operation", ["preview", "up"])
def test_an_unreachable_api_server_is_one_clear_line(stack: Stack, operation: str) -> None:
    assert stack.engine.kubeconfig is not None
    elsewhere = stack.engine.project / "kubeconfig"
    text = stack.engine.kubeconfig.read_text()
    port = text.partition("https://127.0.0.1:")[2].partition("\n")[0]
    elsewhere.write_text(text.replace(f":{port}", ":9"))
    stack.engine.kubeconfig = elsewhere
    said = stack.fail(operation, 'config_map("nowhere", {"x": "1"})')
    assert "no answer from the Kubernetes API server at https://127.0.0.1:9: Connection refused" in said
    assert "Traceback" not in said


def test_the_generated_sdk_works_and_a_secret_stays_out_of_the_state_in_clear(
    stack: Stack, control_plane: ControlPlane
) -> None:
    program = """
    import pulumi_kubernetes as k8s
    namespace = k8s.core.v1.Namespace("team", metadata={"name": "team"}, opts=pulumi.ResourceOptions(retain_on_delete=True))
    inside = {"name": "credentials", "namespace": namespace.metadata.name}
    k8s.core.v1.Secret("credentials", metadata=inside, string_data={"password": pulumi.Output.secret("hunter2")})
    k8s.core.v1.ServiceAccount("plain", metadata={"namespace": namespace.metadata["name"]})
    """
    assert stack.run("preview", program).succeeded
    assert stack.up() == {"created": 4}
    assert control_plane.get("v1", "Secret", "credentials", "team")["data"] == {"password": "aHVudGVyMg=="}
    state = "".join(path.read_text() for path in stack.engine.backend.rglob("test.json"))
    assert "hunter2" not in state
    assert "aHVudGVyMg==" not in state
    assert changes(stack.run("refresh")) == {"unchanged": 4}
