from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.commands import reliability
from infra.commands.eviction_stories import marked, story
from infra.commands.ledgers import LedgerError
from runtime.clock import Clock
from runtime.cost.losses import Loss
from runtime.eviction.marker import marker_to_json
from runtime.eviction.notice import NoticeKind
from runtime.eviction.view import Marker, Phase
from runtime.store import Bucket, Owner, Store
from stacks.labels import EVICTION_ANNOTATION
from tests.builders import HOUR, LOCAL, NOON
from tests.fakes.workloads import a_workload, condition, reserve
from tests.unit.commands.a_fleet import a_fleet, only_in_namespace, put_forecast
from tests.unit.commands.conftest import Ended
from tests.unit.commands.ledgers import a_ledger
from tests.unit.runtime.losses import a_loss

Run = Callable[..., Ended]
MARKER = Marker("spot-i-1", NoticeKind.SPOT, ("n1",), Phase.DONE, attempts=2, accounted=True)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


def lose(directory: Path, *losses: Loss) -> str:
    async def written() -> None:
        store = Store(directory.as_uri(), Clock(real_now=lambda: NOON), Owner("cluster-1", 1.0))
        await store.refresh()
        for loss in losses:
            await store.lose(loss)

    asyncio.run(written())
    return directory.as_uri()


def an_evicted_job(**changes: Any) -> dict[str, Any]:
    raw = a_workload(created_at=time.time() - 2 * HOUR)
    raw["metadata"]["annotations"] = {EVICTION_ANNOTATION: marker_to_json(replace(MARKER, **changes))}
    return raw


def test_the_table_has_a_line_for_each_class_and_one_for_all(gpufleet: Run, directory: Path) -> None:
    a_ledger(directory)
    lost = (a_loss("runs"), a_loss("x", job_class="p0", answered=False, lost_gpu_seconds=7_200.0, flavor=LOCAL))
    lost = (lost[0], replace(lost[1], kind="preemption"))
    ended = gpufleet("evictions", "--ledger", lose(directory, *lost))
    assert (ended.code, ended.err) == (0, "")
    assert [" ".join(line.split()) for line in ended.out.splitlines()] == [
        "CLASS JOBS ATTEMPTS PER-JOB EVICTIONS ANSWERED RESUMED LOST-GPU-HOURS SUCCESS",
        "p0 1 1 1.00 1 0% 0 2.00 -",
        "p1 3 3 1.00 1 100% 0 0.05 100%",
        "all 4 4 1.00 2 50% 0 2.05 100%",
        "evictions by kind: preemption 1, spot-interruption 1",
    ]


def test_a_team_and_a_day_bound_what_is_counted(gpufleet: Run, directory: Path) -> None:
    lost = (a_loss(stopped_at=NOON - 48 * HOUR), a_loss(number=2), a_loss("n", team="nlp"))
    url = lose(directory, *lost)
    told = json.loads(gpufleet("evictions", "--ledger", url, "--team", "vision", "--since", "2026-11-20", "--json").out)
    [row] = told["rows"]
    assert (row["team"], row["class"], row["evictions"], row["answered_share"], row["success_rate"]) == (
        "vision",
        "p1",
        1,
        1.0,
        None,
    )
    assert told["kinds"] == {"spot-interruption": 1}
    assert told["all"] == {name: value for name, value in row.items() if name not in ("team", "class")}
    ended = gpufleet("evictions", "--ledger", url, "--team", "vison")
    assert ended.code == 1
    assert "the ledger has no job of a team vison; did you mean" in ended.said


def test_an_empty_ledger_says_so(gpufleet: Run, directory: Path) -> None:
    ended = gpufleet("evictions", "--ledger", lose(directory))
    assert (ended.code, ended.out, ended.err) == (0, "", "no job ran in the cloud, and none was evicted\n")
    told = json.loads(gpufleet("evictions", "--ledger", directory.as_uri(), "--team", "x", "--json").out)
    assert (told["rows"], told["all"]["evictions"]) == ([], 0)


def test_what_cannot_be_read_is_left_out_and_named(gpufleet: Run, directory: Path) -> None:
    url = lose(directory, a_loss(), a_loss("b"))
    [path] = directory.glob("v1/losses/*/*/b.1.json")
    path.write_text("{}")
    ended = gpufleet("evictions", "--ledger", url)
    assert ended.code == 1
    assert ended.err.startswith("left out: v1/losses/2026-11/21/b.1.json: loss: version None is not")
    assert ended.out.splitlines()[1].split()[4] == "1"


@pytest.mark.parametrize("since", ["yesterday", "2026-11-99", "-3d"])
def test_a_wrong_moment_is_wrong_usage(
    gpufleet: Run, directory: Path, monkeypatch: pytest.MonkeyPatch, since: str
) -> None:
    url = lose(directory)
    monkeypatch.setattr(reliability, "ledger_of_cluster", found_at(url))
    ended = gpufleet("evictions", "--ledger", url, "--since", since)
    assert ended.code == 2
    assert "--since" in ended.said


def found_at(url: str) -> Callable[..., Any]:
    async def found(_stack: str, _url: str | None) -> Any:
        return type("Found", (), {"bucket": Bucket(url), "clock": Clock(real_now=lambda: NOON)})

    return found


def at_the_cluster(monkeypatch: pytest.MonkeyPatch, url: str, *workloads: dict[str, Any]) -> Any:
    cluster = a_fleet(monkeypatch, *workloads)
    monkeypatch.setattr(reliability, "connect", lambda _stack: cluster.kube())
    monkeypatch.setattr(reliability, "bucket_in", lambda _cluster, _stack: Bucket(url))
    return cluster


def test_a_job_that_runs_again_on_local_gpus_counts_as_resumed(
    gpufleet: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = lose(directory, a_loss())
    at_the_cluster(
        monkeypatch, url, condition(reserve(an_evicted_job(), LOCAL, at=NOON + 130), "Admitted", at=NOON + 130)
    )
    assert json.loads(gpufleet("evictions", "--json").out)["all"]["resumed"] == 1
    assert json.loads(gpufleet("evictions", "--json", "--ledger", url).out)["all"]["resumed"] == 0


def test_explain_tells_the_story_of_a_job_that_was_evicted(
    gpufleet: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = float(int(time.time()))
    losses = [a_loss(number=number, stopped_at=now - 600 * (3 - number), nodes=("n1", "n2")) for number in (1, 2)]
    running = condition(reserve(an_evicted_job(), LOCAL, at=now - 470), "Admitted", at=now - 470)
    at_the_cluster(monkeypatch, lose(directory, *losses), running)
    out = gpufleet("explain", "job-1").out
    [line] = [line for line in out.splitlines() if line.startswith("  story")]
    assert line.startswith("  story     evicted 2 times: 20")
    assert line.endswith(
        "checkpoint at step 1200 after 41 s, 3 GPU-minutes lost, running again after 2m10s; 6 GPU-minutes lost in all"
    )
    [told] = json.loads(gpufleet("explain", "job-1", "--json").out)
    assert [one["number"] for one in told["evictions"]] == [1, 2]
    assert told["evicted"].startswith("evicted 2 times")


def test_explain_of_a_job_that_was_never_evicted_reads_no_ledger(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_the_cluster(monkeypatch, "file:///nowhere", a_workload(created_at=time.time()))
    monkeypatch.setattr(reliability, "bucket_in", lambda *_: pytest.fail("the ledger was read"))
    ended = gpufleet("explain", "job-1", "--json")
    [told] = json.loads(ended.out)
    assert (told["evicted"], told["evictions"]) == (None, [])
    assert "story" not in gpufleet("explain", "job-1").out


def test_explain_says_what_the_workload_says_where_the_ledger_cannot_be_read(
    gpufleet: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Bucket:
        raise LedgerError("on a volume")

    sentence = "evicted 2 times, last for spot interruption of node n1; the ledger, which has the rest, cannot be read"
    cluster = at_the_cluster(monkeypatch, "", an_evicted_job())
    monkeypatch.setattr(reliability, "bucket_in", refused)
    assert sentence in gpufleet("explain", "job-1").out
    directory.write_text("in the way")
    monkeypatch.setattr(reliability, "bucket_in", lambda *_: Bucket(directory.as_uri()))
    assert sentence in gpufleet("explain", "job-1").out
    put_forecast(cluster)
    only_in_namespace(cluster)
    monkeypatch.setattr(reliability, "bucket_in", lambda *_: pytest.fail("a team's user has no ledger"))
    assert sentence in gpufleet("explain", "vision/job-1").out


def test_explain_says_that_a_loss_is_not_in_the_ledger_yet(
    gpufleet: Run, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_the_cluster(monkeypatch, lose(directory), an_evicted_job(attempts=1))
    assert "evicted once, last for spot interruption of node n1; the rest is not in the ledger yet" in (
        gpufleet("explain", "job-1").out
    )


def test_a_story_is_told_in_full_once() -> None:
    assert story([a_loss()], NOON + 130) == (
        "evicted once: 2026-11-21 11:58 spot interruption of node n1, checkpoint at step 1200 after 41 s, "
        "3 GPU-minutes lost, running again after 2m10s"
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"answered": False}, "no answer, last checkpoint at step 1200 1m before it was stopped"),
        ({"answered": False, "step": None, "checkpoint_at": None}, "no checkpoint known, 3 GPU-minutes lost"),
        ({"step": None, "lost_gpu_seconds": 0.0}, "checkpoint after 41 s, nothing lost"),
        ({"lost_gpu_seconds": 7_200.0}, "2.0 GPU-hours lost"),
        ({"lost_gpu_seconds": 0.4}, "0 GPU-seconds lost"),
        ({"nodes": ()}, "11:58 spot interruption, checkpoint"),
        ({"nodes": ("a", "b", "c", "d", "e")}, "of nodes a, b, c and 2 more,"),
        ({"kind": "node-loss"}, "node loss of node n1"),
        ({"checkpoint_at": NOON - 200}, "checkpoint at step 1200 after 0 s"),
    ],
)
def test_a_story_says_what_is_known(changes: dict[str, Any], said: str) -> None:
    assert said in story([a_loss(**changes)], None)


def test_a_long_story_tells_its_end_and_never_that_a_job_ran_before_it_was_stopped() -> None:
    told = story([a_loss(number=number + 1, stopped_at=NOON + number * HOUR) for number in range(1_200)], NOON)
    assert told.startswith("evicted 1,200 times, the last 5: ")
    assert told.count("spot interruption") == 5
    assert told.endswith("; 60.0 GPU-hours lost in all")
    assert "running again" not in told


def test_a_marker_names_its_nodes() -> None:
    assert marked(replace(MARKER, nodes=("a", "b"), attempts=1), "x") == (
        "evicted once, last for spot interruption of nodes a, b; x"
    )
