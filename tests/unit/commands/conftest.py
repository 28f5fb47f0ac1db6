from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra import cli


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def said(self) -> str:
        """Standard error as one line, without the frame that typer draws around wrong usage."""
        return " ".join(self.err.replace("│", " ").split())


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home and an unused state directory, so that no cluster of the developer's is ever found."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GPUFLEET_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


@pytest.fixture
def gpufleet(home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Runs the command line as a shell would, in this process; it must end by itself and with no traceback."""

    def run(*arguments: str) -> Ended:
        monkeypatch.setattr("sys.argv", ["gpufleet", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capfd.readouterr()
        code = ended.value.code
        return Ended(code if isinstance(code, int) else 0, captured.out, captured.err)

    return run
