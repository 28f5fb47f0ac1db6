"""The state directory, its locks and its ports."""

from __future__ import annotations

import errno
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from infra.files import write_atomically
from infra.local import errors, ports
from infra.local.errors import DiskSpaceError, LockedError, StateError
from infra.local.locking import Holder, locked
from infra.local.state import STATE_VARIABLE, State


def hold_in_another_process(lock: Path, purpose: str) -> subprocess.Popen[str]:
    program = (
        "import sys; from pathlib import Path; from infra.local.locking import locked\n"
        f"with locked(Path({str(lock)!r}), {purpose!r}):\n"
        "    print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_directory_is_private_and_keeps_its_identity(tmp_path: Path) -> None:
    first = State.at(tmp_path / "s", "local")
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o700
    assert State.at(tmp_path / "s", "local").id == first.id


def test_the_environment_overrides_the_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(STATE_VARIABLE, raising=False)
    assert State.open(tmp_path, "local").root == tmp_path / ".gpufleet" / "local"
    monkeypatch.setenv(STATE_VARIABLE, str(tmp_path / "elsewhere"))
    assert State.open(tmp_path, "local").root == tmp_path / "elsewhere"


def test_the_directory_of_another_stack_is_refused(tmp_path: Path) -> None:
    State.at(tmp_path, "prod")
    with pytest.raises(StateError, match="belongs to the stack 'prod', not 'local'"):
        State.at(tmp_path, "local")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"format": 99, "stack": "local", "id": "x"}))
    with pytest.raises(StateError, match="format 99"):
        State.at(tmp_path, "local")


def test_a_file_where_the_directory_should_be_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("")
    with pytest.raises(StateError, match=STATE_VARIABLE):
        State.at(tmp_path / "s", "local")


def test_a_second_command_gets_the_pid_of_the_first(tmp_path: Path) -> None:
    state = State.at(tmp_path, "local")
    other = hold_in_another_process(tmp_path / "lock", "starts the control plane")
    with pytest.raises(LockedError, match=f"pid {other.pid} which starts the control plane") as raised, state.lock("x"):
        pass
    assert raised.value.pid == other.pid
    other.communicate()


def test_a_killed_holder_leaves_no_stale_lock(tmp_path: Path) -> None:
    state = State.at(tmp_path, "local")
    other = hold_in_another_process(tmp_path / "lock", "starts the control plane")
    other.kill()
    other.communicate()
    with state.lock("tries again"):
        pass


def test_the_lock_is_reentrant_within_a_state(tmp_path: Path) -> None:
    state = State.at(tmp_path, "local")
    with state.lock("outer"), state.lock("inner"):
        pass
    with state.lock("again"):
        pass


def test_an_error_inside_the_lock_frees_it(tmp_path: Path) -> None:
    state = State.at(tmp_path, "local")
    with pytest.raises(RuntimeError), state.lock("fails"):
        raise RuntimeError
    with State.at(tmp_path, "local").lock("goes on"):
        pass


def test_a_waiting_build_says_once_whom_it_waits_for(tmp_path: Path) -> None:
    other = hold_in_another_process(tmp_path / "lock", "builds kueue")
    announced: list[Holder] = []
    waited = threading.Event()

    def on_wait(holder: Holder) -> None:
        announced.append(holder)
        waited.set()

    def wait_for_it() -> None:
        with locked(tmp_path / "lock", "builds too", on_wait=on_wait):
            pass

    thread = threading.Thread(target=wait_for_it)
    thread.start()
    assert waited.wait(5)
    other.communicate()
    thread.join(5)
    assert not thread.is_alive()
    assert [str(holder) for holder in announced] == [f"pid {other.pid} which builds kueue"]


def test_an_interrupted_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_atomically(path, "old")
    with pytest.raises(AttributeError):
        write_atomically(path, 7)  # type: ignore[arg-type]
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_names_the_place() -> None:
    with pytest.raises(DiskSpaceError, match="/data/x: no space left"), errors.disk_full_is_plain(Path("/data")):
        raise OSError(errno.ENOSPC, "No space left on device", "/data/x")


def test_other_system_errors_pass_through() -> None:
    with pytest.raises(PermissionError), errors.disk_full_is_plain(Path("/data")):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_too_little_space_says_how_much_is_needed(tmp_path: Path) -> None:
    with pytest.raises(DiskSpaceError, match=r"GiB free, but the build needs 1e\+09 GiB"):
        errors.require_free_space(tmp_path / "not" / "yet", 1e9, "the build")


def test_ports_are_remembered(tmp_path: Path) -> None:
    state = State.at(tmp_path, "local")
    first = ports.claim(state, ["a", "b"])
    assert len(set(first.values())) == 2
    assert ports.claim(state, ["a", "b"]) == first
    assert ports.claim(state, ["b", "c"])["b"] == first["b"]


def test_a_stolen_port_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    state = State.at(tmp_path, "local")
    first = ports.claim(state, ["a", "b"])
    with socket.socket() as thief:
        thief.bind((ports.LOOPBACK, first["a"]))
        thief.listen()
        second = ports.claim(state, ["a", "b"])
    assert second["a"] != first["a"]
    assert second["b"] == first["b"]


@pytest.mark.parametrize("content", ["", "[]", '{"a": "x", "b": 99999999}', "\x00"])
def test_a_damaged_port_file_is_started_over(tmp_path: Path, content: str) -> None:
    state = State.at(tmp_path, "local")
    (tmp_path / "ports.json").write_text(content)
    assert 0 < ports.claim(state, ["a"])["a"] < 65536
