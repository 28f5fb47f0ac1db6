from __future__ import annotations

import time
from typing import Any

from infra.commands.cluster import Cluster, SeenJob
from infra.commands.jobs import table
from infra.commands.outlook import Outlook
from infra.commands.stories import rows, stories
from runtime.clock import Clock
from runtime.kube import Kube
from runtime.routing.observe import Observer
from runtime.simulation.forecast import positions
from stacks.labels import burst_queue
from tests.builders import HOUR, LOCAL, NOON, SPOT, a_config
from tests.fakes.workloads import a_workload, check, condition, reserve, unreserve, verdict

Raw = dict[str, Any]
TOO_LONG = "The workload is deactivated due to exceeding the maximum execution time"


def a_cluster() -> Cluster:
    return Cluster(Kube.__new__(Kube), a_config(), Clock())  # a reader of stories makes no request


def seen(raw: Raw) -> SeenJob:
    job = Observer(a_config(), Clock(), lambda *_: None).reduce(raw)
    assert job is not None
    return SeenJob(job, raw)


def why(raw: Raw) -> str:
    [story] = stories([seen(raw)], a_cluster(), Outlook())
    return str(story["why"])


def with_message(raw: Raw, name: str, message: str) -> Raw:
    for one in raw["status"]["conditions"]:
        if one["type"] == name:
            one["message"] = message
    return raw


def test_a_job_that_kueue_stopped_says_what_the_eviction_says() -> None:
    stopped = with_message(condition(unreserve(reserve(a_workload(active=False))), "Evicted"), "Evicted", TOO_LONG)

    assert why(stopped) == f"was stopped: {TOO_LONG}"


def test_a_job_that_somebody_deactivated_before_it_ran_says_that_nobody_recorded_why() -> None:
    assert why(a_workload(active=False)) == "was deactivated, and nobody recorded why"


def test_a_job_on_local_gpus_says_on_which() -> None:
    assert why(reserve(a_workload(), LOCAL)) == f"runs on local GPUs of {LOCAL}"


def test_a_job_in_the_cloud_says_what_the_gate_answered() -> None:
    cleared = check(reserve(a_workload(queue=burst_queue("vision", SPOT)), SPOT), "Ready")
    cleared["status"]["admissionChecks"][0]["message"] = "8 GPUs for at most $28.00"

    assert why(cleared) == "8 GPUs for at most $28.00"


def test_a_job_without_a_decision_says_so() -> None:
    assert "no decision recorded yet" in why(a_workload())


def test_a_job_that_has_ended_is_no_row_but_can_be_explained() -> None:
    ended = with_message(condition(reserve(a_workload(), LOCAL), "Finished"), "Finished", "Job finished successfully")

    assert rows([seen(ended)], a_cluster(), Outlook()) == []
    assert why(ended) == "has ended: Job finished successfully"


def test_a_waiting_job_says_how_long_it_waits_now_and_not_when_it_was_decided() -> None:
    raw = verdict(a_workload(created_at=time.time() - HOUR), "waiting")

    assert why(raw).startswith("waits for local GPUs, then may go to the cloud: has waited 1h of at most")


def test_places_count_the_waiting_jobs_of_a_team_by_priority_and_then_by_age() -> None:
    jobs = [
        a_workload("young", created_at=NOON - 60),
        a_workload("old", created_at=NOON - HOUR),
        a_workload("important", created_at=NOON - 60, priority=1_000),
        reserve(a_workload("runs"), LOCAL),
    ]

    all_seen = [seen(raw) for raw in jobs]
    found = rows(all_seen, a_cluster(), Outlook(positions(one.job for one in all_seen)))

    assert [(row["job"], row["place"]) for row in found] == [
        ("vision/important", 1),
        ("vision/old", 2),
        ("vision/young", 3),
        ("vision/runs", None),
    ]


def test_the_reason_stands_below_its_job_or_at_the_end_of_a_wide_line() -> None:
    found = rows([seen(reserve(a_workload(), LOCAL))], a_cluster(), Outlook())

    narrow, wide = table(found, wide=False), table(found, wide=True)

    assert len(narrow) == 3
    assert narrow[2] == f"    runs on local GPUs of {LOCAL}"
    assert len(wide) == 2
    assert wide[1].endswith(f"runs on local GPUs of {LOCAL}")
