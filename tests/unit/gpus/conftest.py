"""The test NVML, built once and loaded before pynvml looks for the real one."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.gpus.events import NvmlEvents
from runtime.gpus.nvml import Nvml
from tests.nvml.scenario import VARIABLE, Card, Scenario, build


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built library."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the test NVML with; install gcc")
    return build(compiler, tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def scenario(nvml_library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scenario:
    """An H100 without MIG; a test changes the cards and writes it anew. pynvml finds the library by its soname."""
    ctypes.CDLL(str(nvml_library), mode=ctypes.RTLD_GLOBAL)
    found = Scenario(tmp_path / "scenario", [Card("h100-sxm-80gb", mig=False)])
    monkeypatch.setenv(VARIABLE, str(found.path))
    found.write()
    return found


@pytest.fixture
def reader(scenario: Scenario) -> Iterator[Nvml]:
    found = Nvml()
    yield found
    scenario.down = 0
    scenario.write()
    found.close()


@pytest.fixture
def events(scenario: Scenario) -> Iterator[NvmlEvents]:
    found = NvmlEvents()
    yield found
    scenario.down = 0
    scenario.write()
    found.close()
