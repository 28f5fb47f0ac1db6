"""Background processes: what is started is found again, whatever happens to its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from infra.local import processes, procfs
from infra.local.errors import ProcessError
from infra.local.state import State


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State.at(tmp_path / "state", "test")


def wait_until(condition: object, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.02)
    return False


def test_a_started_process_is_registered_and_stopped(state: State) -> None:
    record = processes.spawn(state, "one", ["/bin/sleep", "60"], ports={"http": 1})
    assert record.alive
    assert processes.records(state)["one"] == record
    assert processes.find(state) == {"one": [record.pid]}
    processes.stop(state, ["one"])
    assert procfs.start_ticks(record.pid or 0) is None
    assert processes.records(state) == {}


def test_a_process_which_ignores_sigterm_is_killed_after_the_grace(state: State) -> None:
    ignores = "trap '' TERM; echo ready; while true; do sleep 0.1; done"
    record = processes.spawn(state, "stubborn", ["/bin/sh", "-c", ignores])
    assert wait_until(lambda: processes.log_tail(record) == "ready")
    processes.stop(state, ["stubborn"], grace_seconds=0.2)
    assert processes.find(state) == {}


def test_a_parent_killed_between_spawn_and_record_loses_nothing(state: State) -> None:
    program = textwrap.dedent(f"""
        import os, signal
        from pathlib import Path
        from infra.local import processes, procfs
        from infra.local.state import State
        state = State.at(Path({str(state.root)!r}), "test")
        started = processes._spawn_detached
        def dies_right_after(*arguments):
            started(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)
        processes._spawn_detached = dies_right_after
        processes.spawn(state, "orphan", ["/bin/sleep", "60"])
    """)
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    assert processes.records(state)["orphan"].pid is None
    assert wait_until(lambda: len(processes.find(state).get("orphan", [])) == 1)
    processes.stop(state, ["orphan"])
    assert processes.find(state) == {}
    assert processes.records(state) == {}


def test_children_of_our_processes_are_stopped_with_them(state: State) -> None:
    record = processes.spawn(state, "family", ["/bin/sh", "-c", "sleep 61 & sleep 62"])
    assert wait_until(lambda: len(processes.find(state)["family"]) == 3)
    processes.stop(state, ["family"])
    assert processes.find(state) == {}
    assert not record.alive


def test_a_reused_pid_is_not_taken_for_ours(state: State) -> None:
    stranger = subprocess.Popen(["/bin/sleep", "60"])
    try:
        record = processes.ProcessRecord("gone", "log", stranger.pid, start_ticks=1, boot_id="other")
        processes._save(state, record)
        assert not record.alive
        processes.stop(state, ["gone"])
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_two_states_do_not_touch_each_other(state: State, tmp_path: Path) -> None:
    other = State.at(tmp_path / "other", "test")
    processes.spawn(state, "same", ["/bin/sleep", "60"])
    mine = processes.spawn(other, "same", ["/bin/sleep", "60"])
    processes.stop(state, ["same"])
    assert mine.alive
    processes.stop(other, ["same"])


def test_a_program_that_does_not_exist_is_one_clear_error(state: State) -> None:
    with pytest.raises(ProcessError, match="ghost: cannot execute /no/such/program: No such file"):
        processes.spawn(state, "ghost", ["/no/such/program"])
    assert processes.records(state) == {}


def test_the_tail_shows_only_what_this_run_wrote(state: State) -> None:
    first = processes.spawn(state, "talker", ["/bin/sh", "-c", "echo old"])
    assert wait_until(lambda: not first.alive)
    second = processes.spawn(state, "talker", ["/bin/sh", "-c", "echo new"])
    assert wait_until(lambda: processes.log_tail(second) == "new")
    processes.stop(state, ["talker"])
    for record in (first, second):
        processes.reap(record.pid or 0)


def test_a_damaged_record_is_passed_over(state: State) -> None:
    record = processes.spawn(state, "kept", ["/bin/sleep", "60"])
    (state.root / "processes" / "kept.json").write_text("{")
    assert processes.records(state) == {}
    assert processes.find(state) == {"kept": [record.pid]}
    processes.stop(state, ["kept"])
    assert processes.find(state) == {}


@pytest.mark.parametrize("name", ["", "../x", "A", "a/b", "-a"])
def test_a_name_that_is_no_plain_word_is_refused(state: State, name: str) -> None:
    with pytest.raises(ValueError, match="process name"):
        processes.spawn(state, name, ["/bin/true"])


def test_our_own_environment_is_not_inherited(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2")
    record = processes.spawn(state, "clean", ["/usr/bin/env"], environment={"GIVEN": "1"})
    assert wait_until(lambda: not record.alive)
    names = {line.split("=")[0] for line in processes.log_tail(record).splitlines()}
    assert names == {"PATH", "HOME", "GIVEN", processes.MARK_VARIABLE}
    processes.reap(record.pid or 0)
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == "hunter2"
