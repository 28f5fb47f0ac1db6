from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.commands.completion import Shell
from infra.commands.places import stack_files, stack_names
from tests.unit.commands.conftest import Ended

Run = Callable[..., Ended]
CHECKOUT = Path(__file__).parents[3]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A directory with a `gpufleet` that a shell can call, whether or not this checkout is installed."""
    file = tmp_path / "gpufleet"
    start = "import sys; sys.argv[0] = 'gpufleet'; from infra.cli import main; main()"
    file.write_text(f'#!/bin/sh\nPYTHONPATH="{CHECKOUT}" exec "{sys.executable}" -c "{start}" "$@"\n')
    file.chmod(0o755)
    return tmp_path


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not there")
def test_bash_completes_a_command(gpufleet: Run, program: Path) -> None:
    questions = """
        COMP_WORDS=(gpufleet che); COMP_CWORD=1
        _gpufleet_completion gpufleet; echo "${COMPREPLY[*]}"
        complete -p gpufleet
    """
    answer = subprocess.run(
        ["bash", "--norc", "-c", gpufleet("completion", "bash").out + questions],
        env={**os.environ, "PATH": f"{program}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert answer.stderr == ""
    assert answer.stdout.splitlines() == ["check", "complete -o default -F _gpufleet_completion gpufleet"]


def test_stack_files_are_completed(gpufleet: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    words = "gpufleet migrate stacks/Pulumi.lo"
    for name, value in {"_GPUFLEET_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "2"}.items():
        monkeypatch.setenv(name, value)

    assert gpufleet().out == "stacks/Pulumi.local.yaml\n"


@pytest.mark.parametrize("shell", Shell)
def test_every_shell_has_a_script_that_asks_gpufleet(gpufleet: Run, shell: Shell) -> None:
    ended = gpufleet("completion", shell)

    assert (ended.code, ended.err) == (0, "")
    assert "_GPUFLEET_COMPLETE" in ended.out
    assert f"complete_{shell}" in ended.out


@pytest.mark.parametrize(
    ("shell", "question"),
    [
        ("zsh", {"_TYPER_COMPLETE_ARGS": "gpufleet che"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "gpufleet che", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
        ("powershell", {"_TYPER_COMPLETE_ARGS": "gpufleet che", "_TYPER_COMPLETE_WORD_TO_COMPLETE": "che"}),
    ],
)
def test_the_question_of_each_script_is_answered(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch, shell: str, question: dict[str, str]
) -> None:
    for name, value in {"_GPUFLEET_COMPLETE": f"complete_{shell}", **question}.items():
        monkeypatch.setenv(name, value)

    ended = gpufleet()

    assert ended.code == 0
    assert "check" in ended.out
    assert "Say everything that is wrong" in ended.out


@pytest.mark.parametrize(
    ("path", "shell"), [("/bin/bash", "bash"), ("/usr/local/bin/fish", "fish"), ("/opt/pwsh", "powershell")]
)
def test_the_users_own_shell_is_the_default(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch, path: str, shell: str
) -> None:
    monkeypatch.setenv("SHELL", path)

    assert gpufleet("completion").out == gpufleet("completion", shell).out


@pytest.mark.parametrize("path", ["/bin/tcsh", ""])
def test_a_shell_without_a_script_is_wrong_usage_and_the_others_are_named(
    gpufleet: Run, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("SHELL", path)

    ended = gpufleet("completion")

    assert ended.code == 2
    assert "bash, zsh, fish, powershell" in ended.said


def test_stacks_are_completed_by_name_and_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)

    assert "local" in stack_names("lo")
    assert stack_names("no-such") == []
    assert "stacks/Pulumi.local.yaml" in stack_files("stacks/Pul")
    monkeypatch.chdir(CHECKOUT / "stacks")
    assert stack_files("Pulumi.loc") == ["Pulumi.local.yaml"]
