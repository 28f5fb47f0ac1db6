"""The examples of docs/checkpointing.md do what the page says, but for those that it marks as not run."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from runtime import training
from runtime.training.messages import Answer, Request, parse_request
from tests.unit.training.worlds import a_store, saved, visible

PAGE = Path(__file__).parents[3] / "docs" / "checkpointing.md"
_FENCED = re.compile(r"(<!-- not run here -->\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def examples(kind: str) -> list[str]:
    return [text for mark, found, text in _FENCED.findall(PAGE.read_text("utf-8")) if found == kind and not mark]


def test_the_plain_loop_runs_and_goes_on(tmp_path: Path) -> None:
    [loop, _] = examples("python")
    quick = loop.replace("every_seconds=600", "every_steps=300").replace("hook_port=8080", "hook_port=0")
    assert quick != loop
    environment = {"GPUFLEET_CHECKPOINT_DIR": str(tmp_path / "c"), "PYTHONPATH": str(PAGE.parents[1])}

    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "-c", quick], env=environment, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr

    assert visible(tmp_path / "c") == ["step-000000000300", "step-000000000600", "step-000000000900", "latest"]


def test_the_adapter_sends_and_fetches(tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="obstore is not installed (dependency group agent)")
    [_, adapter] = examples("python")
    page: dict[str, Any] = {}
    exec(compile(adapter, "page", "exec"), page)
    remote, bucket = page["remote"], page["remote"]._bucket
    store = a_store(tmp_path / "old")
    for step in range(1, 6):
        remote.push(saved(store, step, frozen=b"frozen" * 1_000, state=str(step).encode()).checkpoint)

    found = remote.pull(a_store(tmp_path / "new"))

    assert (found.step, (found.path / "state").read_bytes()) == (5, b"5")
    assert (remote.latest(), sorted(remote.steps())) == (5, [3, 4, 5])
    assert remote.sent_bytes == 6_005
    assert len(bucket.keys("objects/")) == 4
    with pytest.raises(training.Conflict):
        bucket.put("latest.json", b"{}", "")
    with pytest.raises(training.Conflict):
        bucket.put("latest.json", b"{}", "another version")
    with pytest.raises(KeyError):
        bucket.get("nothing")
    with pytest.raises(KeyError):
        bucket.download("nothing", tmp_path / "nothing")


def test_the_shell_script_passes_sigterm_on_and_exits_as_the_training_did(tmp_path: Path) -> None:
    [script] = examples("sh")
    train = "#!/bin/sh\ntrap 'sleep 0.1; echo saved >saved; exit 143' TERM\necho >ready\nwhile :; do sleep 0.05; done\n"
    for name, text in (("script", script), ("train", train)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    process = subprocess.Popen(
        ["./script"], cwd=tmp_path, env={"PATH": "/usr/bin:/bin", "GPUFLEET_CHECKPOINT_DIR": "c"}
    )
    until = time.monotonic() + 10
    while not (tmp_path / "ready").exists() and time.monotonic() < until:
        time.sleep(0.01)

    process.send_signal(signal.SIGTERM)

    assert process.wait(timeout=60) == 143
    assert (tmp_path / "saved").exists()


def test_request_and_answer_are_what_the_helper_reads_and_writes() -> None:
    [request, answer] = examples("json")
    shown = json.loads(answer)

    assert parse_request(request.encode()) == Request("7f3a", 1790000115.0, "spot-interruption")
    assert json.loads(Answer(shown["request"], shown["step"], shown["url"], shown["at"]).to_json()) == shown


def test_agent_and_helper_speak_the_same_contract() -> None:
    marker = pytest.importorskip("runtime.eviction.marker", reason="the agent's side is not there")
    steps = pytest.importorskip("runtime.eviction.steps", reason="the agent's side is not there")
    kind = pytest.importorskip("runtime.eviction.notice").NoticeKind("spot-interruption")

    request = steps.CheckpointRequest(id="7f3a", kind=kind, certain=True, deadline=1790000115.0)
    answer = marker.answer_from_json(Answer("7f3a", 1200, "file:///c/step-000000001200", 1790000103.25).to_json())

    assert parse_request(marker.request_to_json(request).encode()) == Request("7f3a", 1790000115.0, "spot-interruption")
    assert (answer.request, answer.step, answer.at) == ("7f3a", 1200, 1790000103.25)
