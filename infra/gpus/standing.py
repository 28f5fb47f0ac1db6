"""GPUs that are there, with the instances on each: read from YAML or JSON, as the agent and people write it.

    node-1/0: [3g.40gb@0, 1g.10gb@4]                       # in use
    node-1/1: {live: [2g.20gb@0], idle: [1g.10gb@6]}       # an idle instance may go
    node-1/2: []                                           # empty

Invariants: names are unique, and a name that is written twice is refused, because the instances of one of the two would
be lost; every instance has its start, as only a start says what an instance blocks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from yaml import MappingNode, ScalarNode
from yaml.constructor import ConstructorError

from infra.gpus.errors import DemandError
from infra.gpus.model import StandingGpu
from infra.replay.rows import shown
from stacks.catalogue import GpuModel
from stacks.mig import Layout, Placement, place, require_profiles
from stacks.quantities import parse_mig_profile_name

_INSTANCE: Final = re.compile(r"(.+)@([0-9]{1,2})")
_HELP: Final = "write `GPU: [PROFILE@START, ...]`, e.g. `node-1/0: [3g.40gb@0, 1g.10gb@4]`"
_MOST_BYTES: Final = 16 * 2**20  # some hundred thousand GPUs


class _TwiceError(ConstructorError):
    """A key is written twice."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that is written twice, also as a number once and as text once."""

    def construct_mapping(self, node: MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, ScalarNode):
                if key.value in seen:
                    problem = f"{shown(key.value)} is written twice, and one of the two would be lost; write it once"
                    raise _TwiceError(None, None, problem, key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_standing(gpu: GpuModel, path: Path) -> list[StandingGpu]:
    """The GPUs of a file, in its order.

    Raises:
        DemandError: the file cannot be read, has another form, or says what no GPU of the model can have.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise DemandError(f"{path}: has more than {_MOST_BYTES // 2**20} MiB; {_HELP}")
        loaded = yaml.load(path.read_text("utf-8"), _Loader)
    except OSError as error:
        raise DemandError(f"{path}: cannot be read: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:
        where = f"{path}:{error.problem_mark.line + 1}" if error.problem_mark else str(path)
        reason = error.problem if isinstance(error, _TwiceError) else f"is no YAML: {error.problem}; {_HELP}"
        raise DemandError(f"{where}: {reason}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise DemandError(f"{path}: is no YAML: {str(error).splitlines()[0]}; {_HELP}") from None
    if not isinstance(loaded, dict):
        raise DemandError(f"{path}: holds no map; {_HELP}")
    standing = []
    for name, value in loaded.items():
        try:
            standing.append(_gpu(gpu, name, value))
        except ValueError as error:
            raise DemandError(f"{path}: {shown(str(name))}: {error}") from None
    return standing


def parse_placement(gpu: GpuModel, text: object) -> Placement:
    """Read `3g.40gb@4`.

    Raises:
        ValueError: it is none, or not one of the model's profiles.
    """
    if not isinstance(text, str):
        raise ValueError(f"an instance is text, not a {type(text).__name__}; write PROFILE@START, e.g. 3g.40gb@0")
    match = _INSTANCE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{shown(text)} is no instance; write PROFILE@START, e.g. 3g.40gb@0")
    name = parse_mig_profile_name(match[1])
    return Placement(name, int(match[2]), require_profiles(gpu, [name]).profiles[name].size)


def _gpu(gpu: GpuModel, name: object, value: Any) -> StandingGpu:
    if not isinstance(name, str | int):
        raise ValueError(f"a GPU's name is text; {_HELP}")
    parts = value if isinstance(value, dict) else {"live": value}
    strange = [key for key in parts if key not in ("live", "idle")]
    if strange:
        raise ValueError(f"knows live and idle, not {shown(str(strange[0]))}; {_HELP}")
    live, idle = (_instances(gpu, parts.get(key)) for key in ("live", "idle"))
    place(gpu, (), beside=(*live, *idle))
    return StandingGpu(str(name), live, idle)


def _instances(gpu: GpuModel, value: Any) -> Layout:
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise ValueError(f"instances are a list; {_HELP}")
    return tuple(sorted((parse_placement(gpu, text) for text in value), key=lambda instance: instance.start))
