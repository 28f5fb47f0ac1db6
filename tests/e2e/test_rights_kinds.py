"""What the agent and a user can and cannot do with every kind of job, asked of the real API server as dry runs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from infra.local.kubeclient import Manifest
from stacks.kinds import JobKind
from stacks.labels import FLAVOR_LABEL, GPU_LABEL, PRIORITY_CLASS_LABEL, QUEUE_LABEL
from tests.e2e.agentless import ON_DEMAND, SPOT, submit, twin, window, without_agent
from tests.e2e.conftest import AGENT_USER, Stack, wait_for
from tests.e2e.kinds import KINDS, established, install, job_of, stand_in
from tests.e2e.test_rights import (
    BACKGROUND,
    BURST_TOLERATION,
    EVERY_TOLERATION,
    FLAVOR_AFFINITY,
    JSON,
    MERGE,
    NAMESPACE_ADMIN,
    NO_BURST,
    ONE_DOOR,
    USER,
    annotated,
    labels,
    roles,
)

TEAM = "red"
TWIN, NEXT_TWIN = twin(TEAM), twin(TEAM, ON_DEMAND)
CUSTOM = [kind for kind in KINDS.values() if kind.kind != "Job"]


@dataclass(frozen=True)
class Kinds:
    """The stack, with an object `waiting` and one `bursting` of every kind but batch/v1 Job."""

    stack: Stack

    def ask(self, who: str, method: str, kind: JobKind, name: str, body: Any) -> str:
        """What the server says to a dry run; nothing if it agrees."""
        path = self.stack.kube.path(kind.api_version, kind.kind, name or None, TEAM)
        content_type = MERGE if method == "PATCH" else JSON
        if method == "DELETE":
            body = {"dryRun": ["All"], **body}
        answer = self.stack.request_as(who, method, f"{path}?dryRun=All", body, content_type)
        if answer.is_success:
            return ""
        assert answer.status_code in {403, 422}, answer.text
        return str(answer.json()["message"])

    def submit(self, kind: JobKind, change: Callable[[Manifest], None], who: str = USER) -> str:
        manifest = job_of(kind, "trial", TEAM, 4)
        change(manifest)
        return self.ask(who, "POST", kind, "", manifest)


@pytest.fixture(scope="module")
def kinds(stack: Stack) -> Iterator[Kinds]:
    with without_agent(stack):
        filler = submit(stack, TEAM, 8, job_class="urgent")
        wait_for("no local GPUs", lambda: stack.flavor(TEAM, filler))
        for kind in CUSTOM:
            install(stack.kube, kind)
        for kind in CUSTOM:
            for name in ("waiting", "bursting"):
                stack.kube.create(job_of(kind, name, TEAM, 4))
            path = stack.kube.path(kind.api_version, kind.kind, "bursting", TEAM)
            moved = stack.request_as(AGENT_USER, "PATCH", path, labels(queue=TWIN), MERGE)
            assert moved.is_success, moved.text
        for manifest in [*roles(), *rights_of_operators()]:
            stack.kube.apply(manifest)
        wait_for("the roles", lambda: not Kinds(stack).submit(CUSTOM[0], unchanged))
        yield Kinds(stack)
        for kind in CUSTOM:
            for name in ("waiting", "bursting"):
                stack.kube.delete(kind.api_version, kind.kind, name, TEAM)
        stack.clear(TEAM)
        for manifest in [*roles(), *rights_of_operators()]:
            metadata = manifest["metadata"]
            stack.kube.delete(manifest["apiVersion"], manifest["kind"], metadata["name"], metadata.get("namespace"))


def nested(path: tuple[str, ...], value: Any) -> Any:
    return {path[0]: nested(path[1:], value)} if path else value


def operator_of(kind: JobKind) -> str:
    return f"operator-of-{kind.plural}"


def rights_of_operators() -> list[Manifest]:
    """As controllers of jobs have them: in all namespaces, each with the status of its own kind."""
    rbac, made = "rbac.authorization.k8s.io", []
    writes = ["get", "list", "create", "update", "patch", "delete"]
    for kind in KINDS.values():
        name = operator_of(kind)
        rules = [
            {"apiGroups": [kind.group], "resources": [f"{kind.plural}/status"], "verbs": ["update"]},
            {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": writes},
            {"apiGroups": [""], "resources": ["pods"], "verbs": writes},
        ]
        subject = {"apiGroup": rbac, "kind": "User", "name": name}
        reference = {"apiGroup": rbac, "kind": "ClusterRole", "name": name}
        common = {"apiVersion": f"{rbac}/v1", "metadata": {"name": name}}
        made.append({**common, "kind": "ClusterRole", "rules": rules})
        made.append({**common, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]})
    return made


def unchanged(manifest: Manifest) -> None:
    pass


every_kind = pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: kind.kind)


@every_kind
def test_the_agent_moves_a_suspended_job_between_the_queues_of_its_team(kinds: Kinds, kind: JobKind) -> None:
    for queue in (TWIN, NEXT_TWIN, window(TEAM)):
        assert not kinds.ask(AGENT_USER, "PATCH", kind, "waiting", labels(queue=queue))
    assert not kinds.ask(AGENT_USER, "PATCH", kind, "bursting", labels(queue=NEXT_TWIN))
    assert not kinds.ask(AGENT_USER, "PATCH", kind, "bursting", labels(queue=TEAM))


@every_kind
def test_the_agent_moves_no_running_job(kinds: Kinds, kind: JobKind) -> None:
    path = kinds.stack.kube.path(kind.api_version, kind.kind, "waiting", TEAM)

    def refused_while_it_runs() -> bool:
        # Kueue suspends again, sooner or later, what it has not started.
        kinds.stack.kube.request("PATCH", path, nested(kind.suspend, False), content_type=MERGE)
        return "only suspended jobs" in kinds.ask(AGENT_USER, "PATCH", kind, "waiting", labels(queue=TWIN))

    wait_for("a refusal", refused_while_it_runs)
    kinds.stack.kube.request("PATCH", path, nested(kind.suspend, True), content_type=MERGE)


@pytest.mark.parametrize("kind", [KINDS["PyTorchJob"], KINDS["MPIJob"]], ids=lambda kind: kind.kind)
def test_a_field_that_only_looks_like_suspend_proves_nothing(kinds: Kinds, kind: JobKind) -> None:
    path = kinds.stack.kube.path(kind.api_version, kind.kind, "waiting", TEAM)

    def refused_while_it_runs() -> bool:
        body = {"spec": {"suspend": True, "runPolicy": {"suspend": False}}}
        kinds.stack.kube.request("PATCH", path, body, content_type=MERGE)
        return "only suspended jobs" in kinds.ask(AGENT_USER, "PATCH", kind, "waiting", labels(queue=TWIN))

    wait_for("a refusal", refused_while_it_runs)
    kinds.stack.kube.request("PATCH", path, nested(kind.suspend, True), content_type=MERGE)


@every_kind
def test_the_agent_moves_no_job_to_another_team(kinds: Kinds, kind: JobKind) -> None:
    for queue in ("green", twin("green"), f"{TEAM}x", "", None):
        refusal = kinds.ask(AGENT_USER, "PATCH", kind, "waiting", labels(queue=queue))
        assert "only between the queues of one team" in refusal


@every_kind
def test_the_agent_changes_nothing_else_of_a_job(kinds: Kinds, kind: JobKind) -> None:
    for patch, refusal in (
        (nested(kind.suspend, False), "spec or status"),
        (annotated(any="thing"), "metadata but a label"),
        (labels(any="thing"), f"no label of a job but {QUEUE_LABEL}"),
        (labels(queue=TWIN, **{PRIORITY_CLASS_LABEL: "urgent"}), f"no label of a job but {QUEUE_LABEL}"),
    ):
        assert refusal in kinds.ask(AGENT_USER, "PATCH", kind, "waiting", patch)
    status = kinds.stack.kube.path(kind.api_version, kind.kind, "waiting", TEAM) + "/status?dryRun=All"
    answer = kinds.stack.request_as(AGENT_USER, "PATCH", status, {"status": {"any": "thing"}}, MERGE)
    assert "cannot patch resource" in answer.json()["message"]
    for method in ("GET", "DELETE"):
        assert "cannot" in kinds.ask(AGENT_USER, method, kind, "waiting", {})


@every_kind
def test_a_user_submits_changes_and_deletes_her_jobs(kinds: Kinds, kind: JobKind) -> None:
    assert not kinds.submit(kind, unchanged)
    for name in ("waiting", "bursting"):
        assert not kinds.ask(USER, "PATCH", kind, name, labels(any="thing"))
        assert not kinds.ask(USER, "DELETE", kind, name, {})  # of these kinds the API takes dependants along by default
        assert not kinds.ask(USER, "DELETE", kind, name, BACKGROUND)


@every_kind
def test_a_user_neither_enters_nor_leaves_a_burst_queue(kinds: Kinds, kind: JobKind) -> None:
    def into_the_twin(manifest: Manifest) -> None:
        manifest["metadata"]["labels"][QUEUE_LABEL] = TWIN

    assert ONE_DOOR in kinds.submit(kind, into_the_twin)
    assert ONE_DOOR in kinds.ask(USER, "PATCH", kind, "waiting", labels(queue=TWIN))
    for queue in (TEAM, NEXT_TWIN, None):
        assert ONE_DOOR in kinds.ask(USER, "PATCH", kind, "bursting", labels(queue=queue))


@every_kind
def test_a_job_needs_a_queue_unless_it_has_a_controller(kinds: Kinds, kind: JobKind) -> None:
    def without(manifest: Manifest) -> None:
        del manifest["metadata"]["labels"][QUEUE_LABEL]

    def owned(manifest: Manifest) -> None:
        without(manifest)
        owner = {"apiVersion": "example.com/v1", "kind": "Sweep", "name": "a", "uid": "a", "controller": True}
        manifest["metadata"]["ownerReferences"] = [owner]

    assert "need the label" in kinds.submit(kind, without)
    assert not kinds.submit(kind, owned)


@every_kind
def test_a_job_of_a_class_with_a_window_is_submitted_to_its_queue(kinds: Kinds, kind: JobKind) -> None:
    def placed(queue: str, job_class: str) -> Callable[[Manifest], None]:
        return lambda manifest: manifest["metadata"]["labels"].update(
            {QUEUE_LABEL: queue, PRIORITY_CLASS_LABEL: job_class}
        )

    assert not kinds.submit(kind, placed(window(TEAM), "night"))
    assert "in a window of time" in kinds.submit(kind, placed(TEAM, "night"))
    assert "only jobs of a class" in kinds.submit(kind, placed(window(TEAM), "normal"))


@every_kind
def test_nobody_leaves_pods_behind_in_the_cloud(kinds: Kinds, kind: JobKind) -> None:
    for options in ({"propagationPolicy": "Orphan"}, {"orphanDependents": True}):
        assert "deleted with its pods" in kinds.ask(USER, "DELETE", kind, "bursting", options)
        assert not kinds.ask(USER, "DELETE", kind, "waiting", options)


@every_kind
def test_no_template_of_a_user_reaches_cloud_nodes(kinds: Kinds, kind: JobKind) -> None:
    for field, value, refusal in (
        ("tolerations", [BURST_TOLERATION], NO_BURST),
        ("tolerations", [EVERY_TOLERATION], "nor every taint"),
        ("nodeSelector", {FLAVOR_LABEL: SPOT}, "may not select"),
        ("affinity", FLAVOR_AFFINITY, "by affinity"),
        ("nodeName", "spot-0", "may not name their node"),
        ("terminationGracePeriodSeconds", 86_400, "at most 300"),
        ("nodeSelector", {GPU_LABEL: "h100"}, None),
        ("tolerations", [{"key": "a", "operator": "Exists"}], None),
        ("terminationGracePeriodSeconds", 300, None),
    ):
        if kind.kind == "TrainJob" and field in {"nodeName", "terminationGracePeriodSeconds"}:
            continue  # its CRD has no such fields
        for place in range(len(pod_specs(job_of(kind, "trial", TEAM, 4), kind))):
            said = kinds.submit(kind, with_field(kind, place, field, value))
            assert (refusal in said) if refusal else not said, (field, place, said)


def with_field(kind: JobKind, place: int, field: str, value: Any) -> Callable[[Manifest], None]:
    def change(manifest: Manifest) -> None:
        pod_specs(manifest, kind)[place][field] = value

    return change


def pod_specs(manifest: Manifest, kind: JobKind) -> list[dict[str, Any]]:
    """Every place of a kind where a pod's spec can stand; places that were not there are made."""
    spec = manifest["spec"]
    match kind.kind:
        case "JobSet":
            if len(spec["replicatedJobs"]) == 1:
                spec["replicatedJobs"].append(copy.deepcopy(spec["replicatedJobs"][0]) | {"name": "others"})
            return [job["template"]["spec"]["template"]["spec"] for job in spec["replicatedJobs"]]
        case "TrainJob":
            pod: dict[str, Any] = {}
            job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
            patch = {"template": {"spec": {"replicatedJobs": [job]}}}
            spec["runtimePatches"] = [{"manager": "example.com/trial", "trainingRuntimeSpec": patch}]
            return [pod]
        case "PyTorchJob":
            replicas = spec["pytorchReplicaSpecs"]
            replicas.setdefault("Worker", copy.deepcopy(replicas["Master"]))
            return [replica["template"]["spec"] for replica in replicas.values()]
        case "MPIJob":
            return [replica["template"]["spec"] for replica in spec["mpiReplicaSpecs"].values()]
        case "RayJob":
            cluster = spec["rayClusterSpec"]
            submitter = spec.setdefault("submitterPodTemplate", {"spec": {"containers": [{"name": "a", "image": "a"}]}})
            templates = [cluster["headGroupSpec"]["template"], cluster["workerGroupSpecs"][0]["template"], submitter]
            return [template["spec"] for template in templates]
    raise AssertionError(kind)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_controller_of_jobs_makes_jobs_and_pods_with_what_kueue_gave(kinds: Kinds, kind: JobKind) -> None:
    job_set = kinds.stack.kube.get(KINDS["JobSet"].api_version, "JobSet", "bursting", TEAM)
    owner = {"apiVersion": job_set["apiVersion"], "kind": "JobSet", "name": "bursting", "controller": True}
    owner["uid"] = job_set["metadata"]["uid"]

    def as_admitted(manifest: Manifest) -> None:
        del manifest["metadata"]["labels"]
        manifest["metadata"]["ownerReferences"] = [owner]
        pod = manifest["spec"]["template"]["spec"]
        pod |= {"tolerations": [BURST_TOLERATION], "nodeSelector": {FLAVOR_LABEL: SPOT}}

    assert not kinds.submit(KINDS["Job"], as_admitted, operator_of(kind))
    assert NO_BURST in kinds.submit(KINDS["Job"], as_admitted, USER)
    pod = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}], "tolerations": [BURST_TOLERATION]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "trial"}, "spec": pod}
    pods = f"/api/v1/namespaces/{TEAM}/pods?dryRun=All"
    assert kinds.stack.request_as(operator_of(kind), "POST", pods, body, JSON).is_success
    assert NO_BURST in kinds.stack.request_as(USER, "POST", pods, body, JSON).json()["message"]


def test_what_only_leads_to_pods_reaches_no_cloud_nodes_either(kinds: Kinds) -> None:
    pod = {"containers": [{"name": "node", "image": "train"}], "tolerations": [BURST_TOLERATION]}
    job = {"name": "node", "template": {"spec": {"template": {"spec": pod}}}}
    head = {"headGroupSpec": {"rayStartParams": {}, "template": {"spec": pod}}}
    for kind, spec in (
        (("TrainingRuntime", "trainer.kubeflow.org", "v1alpha1"), {"template": {"spec": {"replicatedJobs": [job]}}}),
        (("RayCluster", "ray.io", "v1"), head),
        (("RayService", "ray.io", "v1"), {"rayClusterConfig": head}),
        (("TFJob", "kubeflow.org", "v1"), {"tfReplicaSpecs": {"Worker": {"template": {"spec": pod}}}}),
    ):
        leading = JobKind(*kind, f"{kind[0].lower()}s", (), "")
        with served(kinds.stack, leading):
            manifest = {"apiVersion": leading.api_version, "kind": leading.kind, "metadata": {"name": "trial"}}
            assert NO_BURST in kinds.ask(NAMESPACE_ADMIN, "POST", leading, "", manifest | {"spec": spec})


@contextmanager
def served(stack: Stack, kind: JobKind) -> Iterator[None]:
    """A stand-in of a CRD, where there is none."""
    crd = stand_in(kind)
    found = stack.kube.find(crd["apiVersion"], crd["kind"], crd["metadata"]["name"])
    if found is None:
        stack.kube.create(crd)
        wait_for(f"{kind.kind} to be served", lambda: established(stack.kube, crd["metadata"]["name"]))
    yield
    if found is None:
        stack.kube.delete(crd["apiVersion"], crd["kind"], crd["metadata"]["name"])
