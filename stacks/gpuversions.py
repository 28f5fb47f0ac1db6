"""Versions of NVIDIA's software: how they are written, compared, and how old they may be.

It knows what its sources knew on `AS_OF`; a hole that was found later is not in it.

Invariants: the comparison of two versions is that of their numbers; a driver branch (`580`) stands for its newest
release, which is not older than any release of the branch.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator, Field

AS_OF: Final = "2026-08-31"

TOOLKIT_FLOOR: Final = "v1.17.8"
"""The oldest NVIDIA Container Toolkit without a known way out of a container: CVE-2025-23266 reaches up to 1.17.7,
CVE-2025-23359 to 1.17.3, CVE-2024-0135 to 1.17.2, CVE-2024-0132 to 1.16.1 (NVIDIA's security bulletins)."""

OPERATOR_FLOOR: Final = "v25.3.1"
"""The oldest GPU Operator that installs such a toolkit by itself (the same bulletins)."""

OPERATOR_OLD: Final = "v26.0.0"
"""Operators of earlier years are behind by more than two minor versions; NVIDIA mends the newest two."""

OPERATOR: Final = "v26.7.0"
TOOLKIT: Final = "v1.20.0"
DRIVER: Final = "595.91.07"
"""What GPU Operator v26.7.0 was released with: the versions that this release of gpufleet was written for."""

CLIENT_LABEL_OPERATOR: Final = "v26.7.0"
"""The first GPU Operator that labels nodes with `nvidia.com/gpu.deploy.client`."""

NETWORK_OPERATOR: Final = "26.1.0"
NETWORK_OPERATOR_FLOOR: Final = "25.7.0"
"""The first whose images are all tagged `network-operator-v<version>` (its documentation)."""

DRA_DRIVER_FLOOR: Final = "565"
"""The oldest driver branch of NVIDIA's DRA driver."""

FIRST_BRANCH: Final = {"ampere": "450", "ada": "520", "hopper": "520", "blackwell": "570", "blackwell-ultra": "570"}
"""The oldest driver branch with an architecture at all: that of the CUDA release which brought it (from memory)."""

LAST_BRANCH: Final = {"volta": "580"}
"""The newest driver branch that supports an architecture, where support has ended (NVIDIA's driver lifecycle)."""

_NUMBER: Final = re.compile(r"[0-9]+")


def _is_tag(text: str) -> str:
    return text if text.startswith("v") else f"v{text}"


Tag = Annotated[
    str, Field(pattern=r"^v?[0-9]{1,3}(\.[0-9]{1,3}){2}$", examples=[TOOLKIT, "25.3.4"]), AfterValidator(_is_tag)
]
"""A version as images are tagged, e.g. `v1.20.0`; the `v` may be left out."""

DriverVersion = Annotated[str, Field(pattern=r"^[0-9]{3}(\.[0-9]{1,3}(\.[0-9]{2})?)?$", examples=["595.91.07", "580"])]
"""A driver release (`595.91.07`), or a branch (`580`), of which precompiled modules are used. Quote it: YAML reads
a bare 595.91 as a number."""

ChartVersion = Annotated[str, Field(pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){2}$", examples=["26.1.0"])]
"""Version of a Helm chart without a leading `v`."""


def is_branch(version: str) -> bool:
    """Whether it names a driver branch and no release."""
    return "." not in version


def is_older(version: str, floor: str) -> bool:
    """Whether a version is older than another; a branch counts as its newest release, whichever that is."""
    mine, least = (tuple(map(int, _NUMBER.findall(one))) for one in (version, floor))
    length = 1 if is_branch(version) else max(len(mine), len(least))
    return _padded(mine, length) < _padded(least, length)


def _padded(numbers: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (*numbers, *(0,) * length)[:length]
