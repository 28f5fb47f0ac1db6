from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local import plugin_home
from infra.local.engine import Engine, EngineError
from tests.engine.conftest import ControlPlane, Stack


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """An engine that never runs Pulumi, in a world without official plugins."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("PULUMI_HOME", raising=False)
    return Engine(tmp_path / "bin" / "pulumi", tmp_path, tmp_path / "state", Path(sys.executable))


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def installed(engine: Engine) -> dict[str, str]:
    return {str(path.relative_to(engine.home)): path.read_text() for path in engine.home.rglob("*") if path.is_file()}


def test_installing_twice_changes_nothing(offline: Engine) -> None:
    offline.install()
    before = installed(offline)
    inodes = {path.stat().st_ino for path in offline.home.rglob("*")}
    offline.install()
    assert installed(offline) == before
    assert {path.stat().st_ino for path in offline.home.rglob("*")} == inodes
    assert len(before) == 2


def test_an_official_language_host_beside_pulumi_is_not_shadowed(offline: Engine) -> None:
    offline.install()
    official = executable(offline.pulumi.parent / plugin_home.LANGUAGE_HOST_PROGRAM)
    assert f"{plugin_home.LANGUAGE_HOST_PROGRAM}: {official}" in offline.install()
    assert not any(plugin_home.LANGUAGE_HOST_PROGRAM in name for name in installed(offline))


def test_an_official_provider_on_path_is_not_shadowed(offline: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    official = executable(offline.project / "path" / plugin_home.PROVIDER_PROGRAM)
    monkeypatch.setenv("PATH", str(official.parent))
    assert f"{plugin_home.PROVIDER_PROGRAM}: {official}" in offline.install()
    assert not any(plugin_home.PROVIDER_PROGRAM in name for name in installed(offline))


def test_an_official_provider_in_the_users_home_is_linked(offline: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    offline.install()
    folder = next(path for path in (offline.home / "plugins").iterdir() if path.name.startswith("resource-"))
    official = executable(Path.home() / ".pulumi" / "plugins" / folder.name / plugin_home.PROVIDER_PROGRAM)
    for variable_home in (None, str(offline.home)):  # the second: a user who exported environment()
        if variable_home:
            monkeypatch.setenv("PULUMI_HOME", variable_home)
        assert f"{plugin_home.PROVIDER_PROGRAM}: {official}" in offline.install()
        assert (folder / plugin_home.PROVIDER_PROGRAM).resolve() == official.resolve()


def test_a_users_passphrase_is_left_alone(offline: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE_FILE", raising=False)
    assert offline.environment()["PULUMI_CONFIG_PASSPHRASE"] == ""
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "mine")
    assert "PULUMI_CONFIG_PASSPHRASE" not in offline.environment()


def test_a_missing_pulumi_is_one_clear_error(offline: Engine) -> None:
    with pytest.raises(EngineError, match=r"cannot run .*/bin/pulumi: No such file"):
        offline.run("version")


def write_lock(engine: Engine, name: str, pid: int, hostname: str) -> Path:
    path = engine.backend / ".pulumi" / "locks" / "organization" / "trial" / "test" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"pid": pid, "username": "u", "hostname": hostname, "timestamp": "2026-01-01T00:00:00Z"})
    )
    return path


def ended_process() -> int:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return process.pid


@pytest.fixture
def living_pulumi(tmp_path: Path) -> Iterator[int]:
    """A process that is called pulumi."""
    program = tmp_path / "bin" / "pulumi"
    program.parent.mkdir()
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"]) as process:
        yield process.pid
        process.kill()


def test_only_a_dead_owner_of_this_host_loses_its_lock(offline: Engine, living_pulumi: int) -> None:
    here = socket.gethostname()
    dead = write_lock(offline, "dead", ended_process(), here)
    kept = [
        write_lock(offline, "alive", living_pulumi, here),
        write_lock(offline, "elsewhere", ended_process(), "another-host"),
    ]
    damaged = write_lock(offline, "damaged", 0, here)
    damaged.write_text("{")
    reused = write_lock(offline, "reused", os.getpid(), here)  # the number belongs to another program by now
    assert [line.rpartition(" ")[2] for line in offline.clear_stale_locks()] == ["dead.json", "reused.json"]
    assert not dead.exists()
    assert not reused.exists()
    assert all(path.exists() for path in [*kept, damaged])


def test_a_tracked_stack_file_keeps_every_byte(engine: Engine) -> None:
    salted = engine.stack_file("test").read_text()
    tracked = engine.stack_file("another")
    text = f"# a comment\nconfig:\n    trial:fleet:   {{nodes: 10}}   # odd   spacing\n{salted}"
    tracked.write_text(text)
    engine.select_or_init("another")
    engine.select_or_init("another")
    assert tracked.read_text() == text


def test_a_killed_pulumi_does_not_block_the_next_command(stack: Stack, control_plane: ControlPlane) -> None:
    stack.write(
        """
        config_map("stuck", {"x": "1"}, annotations={"pulumi.com/waitFor": "jsonpath={.data.never}"})
        """
    )
    command = [str(stack.engine.pulumi), "up", "--yes", "--skip-preview", "--stack", "test"]
    environment = {**os.environ, **stack.engine.environment()}
    process = subprocess.Popen(
        command, cwd=stack.engine.project, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    wait_for_object(control_plane, "stuck")
    process.kill()
    process.wait()
    assert list((stack.engine.backend / ".pulumi" / "locks").rglob("*.json"))
    assert stack.up('config_map("stuck", {"x": "1"})')["created"] == 1  # adopted: the killed run made it


def test_an_interrupt_ends_a_wait_and_keeps_the_object_in_the_state(stack: Stack, control_plane: ControlPlane) -> None:
    stack.write(
        """
        config_map("waiting", {"x": "1"}, annotations={"pulumi.com/waitFor": "jsonpath={.data.never}"})
        """
    )
    command = [str(stack.engine.pulumi), "up", "--yes", "--skip-preview", "--stack", "test"]
    environment = {**os.environ, **stack.engine.environment()}
    process = subprocess.Popen(
        command, cwd=stack.engine.project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wait_for_object(control_plane, "waiting")
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=30)[0]
    assert "cancelled while waiting for jsonpath={.data.never}" in said
    assert stack.run("destroy").succeeded
    assert control_plane.get("v1", "ConfigMap", "waiting") is None


def wait_for_object(control_plane: ControlPlane, name: str) -> None:
    deadline = time.monotonic() + 30
    while control_plane.get("v1", "ConfigMap", name) is None:
        assert time.monotonic() < deadline, f"{name} was never made"
        time.sleep(0.1)
