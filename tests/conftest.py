"""Options that every suite shares."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing them")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with a file under tests/golden, or writes it with --update-golden."""
    return Golden(update=bool(request.config.getoption("--update-golden")))


class Golden:
    """Golden files, which reviewers read as part of a change."""

    def __init__(self, *, update: bool) -> None:
        self._update = update

    def check(self, name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if self._update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing; run pytest with --update-golden and review what it writes"
        assert text == path.read_text(), f"differs from {path}; run pytest with --update-golden and review the change"
