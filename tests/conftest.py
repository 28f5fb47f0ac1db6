"""Options that every suite shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
from rich.console import Console

from infra.local import toolchain
from infra.local.controlplane import ControlPlane
from infra.local.embedded import TOOLS, kwok_pool
from infra.local.errors import ToolchainError
from infra.local.state import State
from infra.local.toolchain import Toolchain
from stacks.load import load_file

ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run the tests that take minutes")
    parser.addoption("--update-golden", action="store_true", help="write the golden files instead of comparing them")


def pytest_configure(config: pytest.Config) -> None:
    """Property tests try the same examples in every run, and others with --long; no run depends on the clock."""
    explores = bool(config.getoption("--long"))
    unhurried = hypothesis.settings(
        deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], database=None, derandomize=not explores
    )
    hypothesis.settings.register_profile("unhurried", unhurried)
    hypothesis.settings.load_profile("unhurried")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests out; try one of a real engine or controllers once more, and count and list it as a rerun."""
    real = [ROOT / "tests" / "engine", ROOT / "tests" / "e2e"]
    for item in items:
        if any(item.path.is_relative_to(suite) for suite in real):
            item.add_marker(pytest.mark.flaky(reruns=1))
    if not config.getoption("--long"):
        skip = pytest.mark.skip(reason="takes minutes; run with --long (make test-all)")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compares text with a file under tests/golden, or writes it with --update-golden."""
    return Golden(update=bool(request.config.getoption("--update-golden")))


@dataclass(frozen=True)
class Plane:
    """The session's control plane."""

    control: ControlPlane
    state: State

    @property
    def kubeconfig(self) -> Path:
        return self.control.kubeconfig


@pytest.fixture(scope="session")
def tools() -> Toolchain:
    """The binaries, which `make tools` (part of `make test`) has found, downloaded or built."""
    try:
        return toolchain.resolve(TOOLS, console=Console(quiet=True), only_present=True)
    except ToolchainError as error:
        pytest.skip(f"the embedded control plane's binaries are not there; run make tools: {error}")


@pytest.fixture(scope="session")
def plane(tools: Toolchain, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """One real control plane for the whole session, with the nodes of stack local."""
    state = State.at(tmp_path_factory.mktemp("plane") / "state", "local")
    control = ControlPlane(state, tools)
    pools = load_file(ROOT / "stacks" / "Pulumi.local.yaml").pools
    control.start([kwok_pool(name, pool) for name, pool in pools.items()], console=Console(quiet=True))
    yield Plane(control, state)
    control.stop()


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
