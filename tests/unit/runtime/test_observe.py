from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.clock import Clock
from runtime.routing.observe import MALFORMED, Observer, attempt_at_gate
from runtime.routing.requests import gpus_of
from runtime.routing.snapshot import Job, Stage
from runtime.routing.wishes import BAD_DATA_SIZE, BAD_EXPECTED_RUNTIME, BAD_PROJECT
from runtime.routing.workload import NO_REASON
from stacks.kinds import JOB_KINDS, JobKind
from stacks.labels import (
    DATA_SIZE_ANNOTATION,
    EXPECTED_RUNTIME_ANNOTATION,
    GATE_NAME,
    GPU_LABEL,
    PROJECT_LABEL,
    RECALL_ANNOTATION,
    VERDICT_ANNOTATION,
    burst_queue,
    window_queue,
)
from tests.builders import HOUR, LOCAL, NOON, ON_DEMAND, SPOT, a_config, a_team
from tests.fakes.workloads import a_pod_template, a_workload, check, condition, reserve, unreserve, verdict

Raw = dict[str, Any]
TWIN = burst_queue("vision", SPOT)


def observer(reports: list[tuple[str, str]] | None = None, clock: Clock | None = None) -> Observer:
    found = reports if reports is not None else []
    return Observer(a_config(), clock or Clock(), lambda reason, raw, message: found.append((reason, message)))


def job_of(raw: Raw, clock: Clock | None = None) -> Job:
    job = observer(clock=clock).reduce(raw)
    assert job is not None
    return job


STAGES: dict[str, tuple[Raw, Stage]] = {
    "pending": (a_workload(), Stage.QUEUED),
    "no status at all": (a_workload() | {"status": None}, Stage.QUEUED),
    "active is the default": ({**a_workload(), "spec": {**a_workload()["spec"], "active": None}}, Stage.QUEUED),
    "pending after the scheduler looked": (condition(a_workload(), "QuotaReserved", False), Stage.QUEUED),
    "released": (a_workload(queue=TWIN), Stage.RELEASED),
    "released and evicted": (unreserve(reserve(a_workload(queue=TWIN))), Stage.RELEASED),
    "local": (reserve(a_workload(), LOCAL), Stage.RUNNING_LOCAL),
    "local from the twin": (reserve(a_workload(queue=TWIN), LOCAL), Stage.RUNNING_LOCAL),
    "at the gate": (reserve(a_workload(queue=TWIN), SPOT), Stage.AT_GATE),
    "one pod set in the cloud": (reserve(a_workload(queue=TWIN), LOCAL, ON_DEMAND), Stage.AT_GATE),
    "a flavor the fleet file lost": (reserve(a_workload(queue=TWIN), "gone"), Stage.AT_GATE),
    "check not listed yet": (reserve(a_workload(queue=TWIN), SPOT) | {}, Stage.AT_GATE),
    "cleared": (check(reserve(a_workload(queue=TWIN)), "Ready"), Stage.RUNNING_CLOUD),
    "evicted but pods still run": (
        condition(condition(reserve(a_workload(queue=TWIN)), "Admitted"), "Evicted"),
        Stage.RUNNING_CLOUD,
    ),
    "finished": (condition(check(reserve(a_workload(queue=TWIN)), "Ready"), "Finished"), Stage.FINISHED),
    "finished and inactive": (condition(a_workload(active=False), "Finished"), Stage.FINISHED),
    "stopped by a person": (a_workload(active=False), Stage.STOPPED),
    "stopped by a person after another verdict": (verdict(a_workload(active=False), "waiting"), Stage.STOPPED),
    "recalled": (verdict(a_workload(active=False), "recalled"), Stage.RECALLING),
    "recalled, quota still held": (verdict(reserve(a_workload(active=False)), "recalled"), Stage.RECALLING),
    "active again with our mark": (verdict(a_workload(), "recalled"), Stage.QUEUED),
}


@pytest.mark.parametrize(("raw", "stage"), [pytest.param(*case, id=name) for name, case in STAGES.items()])
def test_the_stage_follows_from_the_workload_alone(raw: Raw, stage: Stage) -> None:
    assert job_of(raw).stage is stage


def test_a_job_carries_what_a_decision_needs() -> None:
    raw = check(reserve(a_workload(queue=TWIN, priority=7), at=NOON - 30), "Ready", at=NOON - 20)
    job = job_of(condition(verdict(raw, "cleared"), "Admitted"))
    assert (job.uid, job.namespace, job.name) == ("job-1", "vision", "job-job-1")
    assert (job.owner_kind, job.owner_name, job.owner_uid) == ("Job", "job-1", "owner-job-1")
    assert (job.team, job.priority, job.gpus, job.flavor) == ("vision", 7, 1, SPOT)
    assert (job.created_at, job.reserved_at, job.ready_at) == (NOON - HOUR, NOON - 30, NOON - 10)
    assert (job.attempt, job.verdict_code, job.ever_admitted) == (int(NOON) - 30, "cleared", True)
    assert (job.max_seconds, job.expected_seconds, job.released_quota_at) == (3_600, None, None)


def test_in_a_replay_durations_and_times_are_fleet_time_but_the_attempt_stays_real() -> None:
    clock = Clock(origin=NOON - HOUR, speed=60.0)
    raw = reserve(a_workload(queue=TWIN, created_at=NOON - HOUR + 10), at=NOON - HOUR + 20)
    raw["spec"]["podSets"][0]["template"] = a_pod_template(**{EXPECTED_RUNTIME_ANNOTATION: "45m"})
    job = job_of(raw, clock)
    assert job.created_at == NOON - HOUR + 600
    assert job.reserved_at == NOON - HOUR + 1_200
    assert job.attempt == int(NOON - HOUR) + 20
    assert job.max_seconds == 3_600 * 60
    assert job.expected_seconds == 45 * 60, "people write what the job takes in fleet time"


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(a_workload(queue="other"), id="another queue"),
        pytest.param(
            {**a_workload(), "metadata": {**a_workload()["metadata"], "namespace": "x"}}, id="another namespace"
        ),
        pytest.param(a_workload(queue="nlp"), id="another team's queue"),
        pytest.param(a_workload(podSets=[{"count": 4, "template": {"spec": {"containers": [{}]}}}]), id="no GPUs"),
        pytest.param({**a_workload(), "metadata": {**a_workload()["metadata"], "ownerReferences": []}}, id="no owner"),
    ],
)
def test_what_is_not_ours_is_left_alone_silently(raw: Raw) -> None:
    reports: list[tuple[str, str]] = []
    assert observer(reports).reduce(raw) is None
    assert reports == []


def of_kind(kind: str, version: str) -> Raw:
    raw = a_workload()
    raw["metadata"]["ownerReferences"][0] |= {"kind": kind, "apiVersion": version}
    return raw


@pytest.mark.parametrize("kind", JOB_KINDS, ids=lambda kind: kind.kind)
def test_a_job_of_every_kind_that_can_be_moved_is_ours(kind: JobKind) -> None:
    job = job_of(of_kind(kind.kind, kind.api_version))
    assert (job.owner_kind, job.owner_version) == (kind.kind, kind.api_version)


def test_an_owner_in_a_newer_version_keeps_its_own() -> None:
    assert job_of(of_kind("JobSet", "jobset.x-k8s.io/v1")).owner_version == "jobset.x-k8s.io/v1"


@pytest.mark.parametrize(
    ("kind", "version"), [("Pod", "v1"), ("Deployment", "apps/v1"), ("Job", "batch.example.com/v1"), ("Job", "v1")]
)
def test_kinds_whose_label_cannot_change_are_left_alone(kind: str, version: str) -> None:
    assert observer().reduce(of_kind(kind, version)) is None


def test_an_owner_that_is_no_controller_is_no_owner() -> None:
    raw = a_workload()
    raw["metadata"]["ownerReferences"][0]["controller"] = False
    assert observer().reduce(raw) is None


def test_a_job_in_a_twin_knows_its_target_and_one_at_home_has_none() -> None:
    home, twin = job_of(a_workload()), job_of(a_workload(queue=burst_queue("vision", ON_DEMAND)))
    assert (home.queue, home.target) == ("vision", None)
    assert (twin.queue, twin.target, twin.stage) == ("vision-burst-h100-on-demand", ON_DEMAND, Stage.RELEASED)


def test_a_job_stays_ours_when_its_flavor_or_its_window_leaves_the_fleet_file() -> None:
    gone = job_of(check(reserve(a_workload(queue=burst_queue("vision", "a100-gone")), "a100-gone"), "Ready"))
    assert (gone.team, gone.target, gone.flavor, gone.stage) == (
        "vision",
        "a100-gone",
        "a100-gone",
        Stage.RUNNING_CLOUD,
    )
    night = job_of(a_workload(queue=window_queue("vision", "P9")))
    assert (night.team, night.target, night.stage) == ("vision", None, Stage.QUEUED)


def test_a_queue_of_a_window_counts_as_the_teams_own() -> None:
    team = a_team("vision", window_queues={"p2": "vision-night"})
    config = a_config(teams={"vision": team, "nlp": a_team("nlp")})
    job = Observer(config, Clock(), lambda *_: None).reduce(a_workload(queue="vision-night"))
    assert job is not None
    assert (job.team, job.queue, job.target, job.stage) == ("vision", "vision-night", None, Stage.QUEUED)


def test_the_wait_begins_anew_only_when_a_run_ended() -> None:
    fresh = condition(a_workload(), "QuotaReserved", False)
    assert job_of(fresh).waits_since == NOON - HOUR
    back_from_the_gate = unreserve(reserve(a_workload()), at=NOON - 5)
    assert job_of(back_from_the_gate).waits_since == NOON - HOUR, "it never ran"
    ran = condition(unreserve(reserve(a_workload()), at=NOON - 5), "Admitted", False, at=NOON - 5)
    assert job_of(ran).waits_since == NOON - 5, "what it ran is no wait"
    again = condition(condition(ran, "Requeued", at=NOON - 4), "PodsReady", False)
    assert job_of(again).waits_since == NOON - 5


def test_a_job_that_ran_before_and_was_recalled_from_the_gate_keeps_the_wait_since_its_run() -> None:
    raw = condition(unreserve(reserve(a_workload()), at=NOON - 900), "Admitted", False, at=NOON - 900)
    raw = unreserve(reserve(raw, at=NOON - 60), at=NOON - 5)
    assert job_of(raw).waits_since == NOON - 900


@pytest.mark.parametrize(
    ("evicted", "reason", "expected"),
    [(True, "PodsReadyTimeout", True), (True, "Preempted", False), (False, "QuotaReserved", False)],
)
def test_nodes_that_did_not_come_show_in_the_last_eviction_alone(evicted: bool, reason: str, expected: bool) -> None:
    raw = condition(a_workload(queue=TWIN), "Evicted", evicted, reason=reason)
    assert job_of(raw).never_ready is expected


def test_how_long_a_job_ran_is_known_only_of_one_that_succeeded() -> None:
    def finished(reason: str, admitted: bool = True) -> Job:
        raw = condition(reserve(a_workload(), LOCAL), "Admitted", admitted, at=NOON - 600)
        return job_of(condition(raw, "Finished", at=NOON, reason=reason))

    assert finished("Succeeded").ran_seconds == 600
    assert finished("Failed").ran_seconds is None
    assert finished("Succeeded", admitted=False).ran_seconds is None
    backwards = condition(condition(a_workload(), "Admitted", at=NOON), "Finished", at=NOON - 60, reason="Succeeded")
    assert job_of(backwards).ran_seconds is None, "clocks of two machines"


def test_when_pods_became_ready_is_known_where_kueue_watches_them() -> None:
    raw = condition(check(reserve(a_workload(queue=TWIN)), "Ready"), "Admitted", at=NOON - 9)
    assert job_of(condition(raw, "PodsReady", False)).pods_ready_at is None
    assert job_of(condition(raw, "PodsReady", at=NOON - 2)).pods_ready_at == NOON - 2


def recorded(facts: Raw) -> Raw:
    raw = verdict(a_workload(), "waiting")
    entry = {"code": "waiting", "at": NOON, "decision": "d", "facts": facts}
    raw["metadata"]["annotations"][VERDICT_ANNOTATION] = json.dumps(entry)
    return raw


@pytest.mark.parametrize(
    ("returns", "expected"), [(2, 2), (0, 0), (-1, 0), (10**9, 0), (1.5, 0), (True, 0), ("3", 0), (None, 0), ([1], 0)]
)
def test_returns_are_counted_only_as_we_wrote_them(returns: object, expected: int) -> None:
    assert job_of(recorded({"returns": returns})).returns == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [("maintenance", "maintenance"), ("", NO_REASON), (" \n\t", NO_REASON), ("a\x00b\u202ec\nd", "a b c d"), (5, "5")],
)
def test_the_reason_of_a_recall_is_one_printable_line(text: object, reason: str) -> None:
    raw = a_workload()
    raw["metadata"]["annotations"] = {RECALL_ANNOTATION: text}
    assert job_of(raw).recall_reason == reason
    raw["metadata"]["annotations"] = {RECALL_ANNOTATION: "x" * 100_000}
    assert len(job_of(raw).recall_reason or "") <= 200
    assert job_of(a_workload()).recall_reason is None


def with_templates(*templates: Raw) -> Raw:
    sets = [{"name": f"s{number}", "count": 1, "template": template} for number, template in enumerate(templates)]
    return a_workload(podSets=sets)


def labelled(project: str) -> Raw:
    template = a_pod_template()
    template["metadata"]["labels"] = {PROJECT_LABEL: project}
    return template


def test_the_project_stands_on_the_pod_template_and_several_are_reported() -> None:
    reports: list[tuple[str, str]] = []
    job = observer(reports).reduce(with_templates(a_pod_template(), labelled("alpha"), labelled("alpha")))
    assert job is not None
    assert job.project == "alpha"
    assert reports == []
    job = observer(reports).reduce(with_templates(labelled("beta"), labelled("alpha")))
    assert job is not None
    assert job.project == "alpha"
    assert [reason for reason, _ in reports] == [BAD_PROJECT]
    assert job_of(a_workload()).project == ""


@pytest.mark.parametrize(("text", "expected"), [("200Gi", 200 * 2**30), ("1 TB", 10**12), ("0B", 0)])
def test_data_is_read_with_its_unit(text: str, expected: int) -> None:
    assert job_of(with_templates(a_pod_template(**{DATA_SIZE_ANNOTATION: text}))).data_bytes == expected


@pytest.mark.parametrize(
    "text", ["200", "-1Gi", "lots", "", "9" * 10_000 + "Gi", "2Pi", -5, {}, "\u0663Gi", "[" * 9_999]
)
def test_data_nobody_can_read_is_ignored_and_the_user_told(text: object) -> None:
    reports: list[tuple[str, str]] = []
    raw = a_workload()
    raw["spec"]["podSets"][0]["template"]["metadata"]["annotations"] = {DATA_SIZE_ANNOTATION: text}
    job = observer(reports).reduce(raw)
    assert job is not None
    assert job.data_bytes == 0
    assert [reason for reason, _ in reports] == [BAD_DATA_SIZE]
    assert len(reports[0][1]) < 400


def selecting(selector: Raw | None = None, *terms: list[Raw]) -> Raw:
    template = a_pod_template()
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}} if terms else None
    template["spec"] |= {"nodeSelector": selector, "affinity": affinity}
    return template


def model(*values: str, operator: str = "In") -> Raw:
    return {"key": GPU_LABEL, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (selecting(), None),
        (selecting({GPU_LABEL: "h100"}), "h100"),
        (selecting({"zone": "a"}, [model("a100")]), "a100"),
        (selecting(None, [model("a100"), {"key": "zone", "operator": "Exists"}], [model("a100")]), "a100"),
        (selecting(None, [model("a100")], [model("h100")]), None),
        (selecting(None, [model("a100")], []), None),
        (selecting(None, [model("a100", "h100")]), None),
        (selecting(None, [model("a100", operator="NotIn")]), None),
    ],
)
def test_a_job_insists_on_a_model_by_its_own_selectors(template: Raw, expected: str | None) -> None:
    assert job_of(with_templates(template)).gpu == expected


def test_pods_that_insist_on_different_models_insist_on_what_no_flavor_has() -> None:
    raw = with_templates(selecting({GPU_LABEL: "h100"}), a_pod_template(), selecting({GPU_LABEL: "a100"}))
    assert job_of(raw).gpu == "a100 and h100"


@pytest.mark.parametrize(("name", "expected"), [("p0", "p0"), ("p2", "p2"), ("unknown", "p1"), (None, "p1")])
def test_a_class_that_is_unknown_or_missing_is_the_default_class(name: str | None, expected: str) -> None:
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    assert job_of(a_workload(priorityClassRef=reference if name else None)).job_class == expected


def test_a_priority_class_of_pods_is_no_class_of_ours() -> None:
    assert job_of(a_workload(priorityClassRef={"group": "scheduling.k8s.io", "name": "p0"})).job_class == "p1"


def container(gpus: int | str, kind: str = "requests", **more: Any) -> Raw:
    return {"name": "c", "resources": {kind: {"nvidia.com/gpu": gpus}}} | more


@pytest.mark.parametrize(
    ("pod", "gpus"),
    [
        ({"containers": [container(2), container(3)]}, 5),
        ({"containers": [container("2", "limits")]}, 2),
        ({"containers": [{"resources": {"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 1}}}]}, 1),
        ({"containers": [container(1)], "initContainers": [container(4), container(2)]}, 4),
        ({"containers": [container(3)], "initContainers": [container(2)]}, 3),
        ({"containers": [container(1)], "initContainers": [container(1, restartPolicy="Always"), container(4)]}, 5),
        ({"containers": [container(4)], "initContainers": [container(1, restartPolicy="Always"), container(2)]}, 5),
        ({"containers": [{}, {"resources": None}, {"resources": {"requests": {"cpu": "500m"}}}]}, 0),
        ({"containers": [container("1k")]}, 1_000),
    ],
)
def test_gpus_of_a_pod_are_counted_as_kubernetes_counts(pod: Raw, gpus: int) -> None:
    assert gpus_of({"podSets": [{"count": 1, "template": {"spec": pod}}]}) == gpus
    assert gpus_of({"podSets": [{"count": 3, "template": {"spec": pod}}, {"template": {"spec": pod}}]}) == 4 * gpus


@pytest.mark.parametrize(
    "quantity", ["0.5", "-1", "many", "", "1e999999999", "9" * 5_000, "NaN", "1Ki", None, [], True]
)
def test_a_number_of_gpus_that_cannot_be_is_malformed_and_reported(quantity: object) -> None:
    reports: list[tuple[str, str]] = []
    pod_sets = [{"count": 1, "template": {"spec": {"containers": [container("1"), container(quantity)]}}}]  # type: ignore[arg-type]
    raw = a_workload(podSets=pod_sets)
    if quantity is None:
        assert observer(reports).reduce(raw) is not None
        return
    with pytest.raises(ValueError, match="cannot be read"):
        observer(reports).reduce(raw)
    assert [reason for reason, _ in reports] == [MALFORMED]


@pytest.mark.parametrize("text", ["45", "soon", "", "-5m", "99999d", "9" * 10_000 + "h", 45, None, {}])
def test_a_run_time_nobody_can_read_is_ignored_and_the_user_told(text: object) -> None:
    reports: list[tuple[str, str]] = []
    raw = a_workload()
    raw["spec"]["podSets"][0]["template"]["metadata"]["annotations"] = {EXPECTED_RUNTIME_ANNOTATION: text}
    job = observer(reports).reduce(raw)
    assert job is not None
    assert job.expected_seconds is None
    if text is not None:
        assert [reason for reason, _ in reports] == [BAD_EXPECTED_RUNTIME]
        assert len(reports[0][1]) < 400


def test_of_several_run_times_the_longest_counts() -> None:
    raw = a_workload(
        podSets=[
            {"name": name, "count": 1, "template": a_pod_template(**{EXPECTED_RUNTIME_ANNOTATION: text})}
            for name, text in (("a", "10m"), ("b", "1h 30m"), ("c", "2m"))
        ]
    )
    assert job_of(raw).expected_seconds == 5_400


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "null", '{"code": 7}', '{"code": "unheard-of"}', "[" * 100_000])
def test_a_verdict_nobody_can_read_is_no_verdict(text: str) -> None:
    raw = a_workload(active=False)
    raw["metadata"]["annotations"] = {VERDICT_ANNOTATION: text}
    job = job_of(raw)
    assert job.verdict_code is None
    assert job.stage is Stage.STOPPED


def test_when_quota_was_given_back_is_known_only_if_there_was_any() -> None:
    assert job_of(condition(a_workload(), "QuotaReserved", False)).released_quota_at is None
    evicted = job_of(unreserve(reserve(a_workload(queue=TWIN)), at=NOON - 3))
    assert (evicted.released_quota_at, evicted.flavor, evicted.attempt) == (NOON - 3, None, None)
    finished = job_of(condition(check(reserve(a_workload(queue=TWIN)), "Ready"), "Finished", at=NOON - 2))
    assert (finished.released_quota_at, finished.flavor, finished.attempt) == (NOON - 2, SPOT, int(NOON) - 10)


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda raw: condition(raw, "Evicted"), "evicted"),
        (lambda raw: condition(raw, "Finished"), "finished"),
        (lambda raw: condition(raw, "QuotaReserved", False), "no quota"),
        (lambda raw: raw["spec"].update(active=False), "inactive"),
        (lambda raw: check(raw, "Ready"), "answered"),
        (lambda raw: check(raw, "Retry"), "answered otherwise"),
        (lambda raw: raw["status"].update(admissionChecks=[]), "not listed yet"),
    ],
)
def test_the_gate_is_answered_only_while_an_answer_is_right(edit: Callable[[Raw], object], why: str) -> None:
    raw = reserve(a_workload(queue=TWIN))
    assert attempt_at_gate(raw, GATE_NAME) == int(NOON) - 10
    edit(raw)
    assert attempt_at_gate(raw, GATE_NAME) is None, why


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=100)
@given(data=st.data())
def test_whatever_stands_in_a_workload_is_either_read_or_called_malformed(data: st.DataObject) -> None:
    raw = copy.deepcopy(condition(reserve(a_workload(queue=TWIN)), "Admitted"))
    place: Any = raw
    for _ in range(data.draw(st.integers(1, 8))):
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(ANYTHING)
            break
        place = place[key]
    reports: list[tuple[str, str]] = []
    try:
        job = observer(reports).reduce(raw)
    except ValueError:
        assert reports[-1][0] == MALFORMED
    else:
        assert job is None or isinstance(hash(job), int), "a job of unhashable parts would stop every decision"
