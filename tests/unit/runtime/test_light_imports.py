"""What runs on every GPU node, and what jobs import, is small: the standard library, and at most our names."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

OUR_LIGHT_MODULES = ("runtime/logs.py", "runtime/clock.py", "stacks/labels.py")
"""What the node agent shares with the rest; held to the same rule."""

NODE_AGENT = ("runtime/node", "runtime/eviction/notice.py", "runtime/eviction/sources", *OUR_LIGHT_MODULES)
GPU_PART = ROOT / "runtime/node/gpus.py"
"""The door to the reader of GPUs, for nodes where that is on."""

ITS_OWN = tuple(place.removesuffix(".py").replace("/", ".") for place in NODE_AGENT)


def sources(place: str) -> list[Path]:
    path = ROOT / place
    return [path] if path.is_file() else sorted(path.rglob("*.py"))


def imported(path: Path, *, only_at_import: bool = False) -> Iterator[str]:
    """What a file imports, by full names; what only functions import is left out where asked for."""
    tree = ast.parse(path.read_text("utf-8"))
    inside = {
        child
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_for_types(node)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if only_at_import and node in inside:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            here = path.relative_to(ROOT).parts[: -node.level] if node.level else ()
            module = ".".join([*here, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in packages)


@pytest.mark.parametrize("place", NODE_AGENT)
def test_the_node_agent_imports_the_standard_library_and_our_names_alone(place: str) -> None:
    assert sources(place)
    for path in sources(place):
        if path != GPU_PART:
            foreign = {one for one in imported(path) if one.split(".")[0] not in sys.stdlib_module_names}
            assert not {one for one in foreign if not is_within(one, ITS_OWN)}, path
            assert not [one for one in imported(path, only_at_import=True) if is_within(one, ("runtime.node.gpus",))]


def test_the_reader_of_gpus_imports_their_libraries_only_when_it_is_used() -> None:
    for path in [GPU_PART, *sources("runtime/gpus")]:
        foreign = {one for one in imported(path) if one.split(".")[0] not in sys.stdlib_module_names}
        others = {one for one in foreign if not is_within(one, ("runtime.gpus", "runtime.node", *ITS_OWN))}
        assert {one.split(".")[0] for one in others} <= {"pynvml", "grpc"}, path
        assert not [one for one in imported(path, only_at_import=True) if is_within(one, ("pynvml", "grpc"))], path


def test_the_training_helper_imports_nothing_of_ours_and_torch_only_when_it_is_used() -> None:
    assert sources("runtime/training")
    for path in sources("runtime/training"):
        foreign = {one for one in imported(path) if one.split(".")[0] not in sys.stdlib_module_names}
        others = {one for one in foreign if not is_within(one, ("runtime.training",))}
        assert {one.split(".")[0] for one in others} <= {"torch"}, path
        assert not [one for one in imported(path, only_at_import=True) if is_within(one, ("torch",))], path
