"""The Jobs of a replay: what a user could have written, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.replay.errors import SubmitError
from infra.replay.jobs import check_run_id, job_manifest
from infra.replay.trace import TraceJob
from stacks.load import load_text
from tests.unit.replay.scenario import local_fleet

FLEET = local_fleet()
JOB = TraceJob("job-7", "vision", "P0", 4, 0, 330, 600, 901)


def manifest(**changes: Any) -> dict[str, Any]:
    return job_manifest(replace(JOB, **changes), FLEET, 60, run_id="r1")


def test_a_job_is_submitted_suspended_to_its_teams_queue_in_its_class() -> None:
    job = manifest()
    assert job["metadata"]["namespace"] == "vision"
    assert job["metadata"]["name"] == "job-7-r1"
    assert job["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "vision",
        "kueue.x-k8s.io/priority-class": "p0",
        "kueue.x-k8s.io/max-exec-time-seconds": "16",
        "gpufleet.dev/replay": "r1",
    }
    assert job["spec"]["suspend"] is True
    assert job["spec"]["backoffLimit"] == 0


def test_a_job_of_a_class_with_a_window_goes_to_the_queue_of_that_window() -> None:
    text = (Path(__file__).with_name("fleet.yaml")).read_text()
    fleet = load_text(text.replace("max_wait: 5m}", "max_wait: 5m, window: 22:00-06:00 Europe/Berlin}"), "fleet")
    job = job_manifest(JOB, fleet, 60, run_id="r1")
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "vision-window-p0"


def test_what_the_cluster_plays_is_in_real_time_and_what_the_agent_reads_in_fleet_time() -> None:
    annotations = manifest()["spec"]["template"]["metadata"]["annotations"]
    assert annotations == {"gpufleet.dev/sim-run-seconds": "5.5", "gpufleet.dev/expected-runtime": "10m"}


def test_a_job_that_says_nothing_carries_no_expectation() -> None:
    assert (
        "gpufleet.dev/expected-runtime"
        not in manifest(expected_seconds=None)["spec"]["template"]["metadata"]["annotations"]
    )


def test_a_user_may_not_name_cloud_nodes_and_neither_does_the_replay() -> None:
    pod = manifest()["spec"]["template"]["spec"]
    assert set(pod) == {"restartPolicy", "containers"}


@settings(max_examples=50)
@given(gpus=st.integers(1, 1_000), run=st.floats(0.001, 3e8), longest=st.floats(0.001, 3e8), speed=st.floats(1, 3_600))
def test_pods_sum_to_the_gpus_of_the_trace_and_fit_a_node(gpus: int, run: float, longest: float, speed: float) -> None:
    job = job_manifest(replace(JOB, gpus=gpus, run_seconds=run, max_seconds=longest), FLEET, speed, run_id="r1")
    limit = int(job["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
    assert limit <= 8
    assert limit * job["spec"]["completions"] == gpus
    assert job["spec"]["parallelism"] == job["spec"]["completions"]
    seconds = job["spec"]["template"]["metadata"]["annotations"]["gpufleet.dev/sim-run-seconds"]
    assert float(seconds) > 0
    assert "e" not in seconds
    assert int(job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"]) >= max(1, longest / speed)


@pytest.mark.parametrize("run_id", ["", "Upper", "a_b", "-a", "x" * 17, "a.b"])
def test_a_run_id_that_no_name_can_end_with_is_refused(run_id: str) -> None:
    with pytest.raises(SubmitError, match="run id"):
        check_run_id(run_id)
