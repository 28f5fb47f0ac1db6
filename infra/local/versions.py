"""What `tools/versions.toml` says, as values."""

from __future__ import annotations

import functools
import platform
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.errors import ToolchainError

TOOLS_DIRECTORY = Path(__file__).parent / "tools"
_ARCHITECTURES = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


@dataclass(frozen=True)
class Platform:
    """Operating system and processor, as Go names them."""

    os: str
    arch: str

    def __str__(self) -> str:
        return f"{self.os}-{self.arch}"


@dataclass(frozen=True)
class Tool:
    """One binary: which version, and every way to get it; one `on_demand` is not part of the embedded stack."""

    name: str
    version: str
    module: str
    package: str
    builds: str = ""
    on_demand: bool = False
    version_arguments: tuple[str, ...] = ()
    url: str = ""
    member: str = ""
    checksums: str = ""
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def built_name(self) -> str:
        """What `go install` calls the binary."""
        return self.builds or self.name

    def filled(self, template: str, target: Platform) -> str:
        """Return a URL template with this version and platform."""
        return template.format(
            version=self.version,
            bare=self.version.removeprefix("v"),
            os=target.os,
            arch=target.arch,
            arch_x64="x64" if target.arch == "amd64" else target.arch,
        )


@dataclass(frozen=True)
class Versions:
    """The whole file."""

    tools: Mapping[str, Tool]
    ldflags: Mapping[str, str]
    go_minimum: tuple[int, ...]
    go_wheel: str


@functools.cache
def load(path: Path = TOOLS_DIRECTORY / "versions.toml") -> Versions:
    """Read the file."""
    content = tomllib.loads(path.read_text())
    tools = {
        name: Tool(name, **{**entry, "version_arguments": tuple(entry.get("version_arguments", ()))})
        for name, entry in content["tools"].items()
    }
    return Versions(
        tools=tools,
        ldflags={name: module["ldflags"] for name, module in content["modules"].items()},
        go_minimum=tuple(int(part) for part in content["go"]["minimum"].split(".")),
        go_wheel=content["go"]["wheel"],
    )


def this_platform() -> Platform:
    """Return the platform of this process.

    Raises:
        ToolchainError: nobody builds for it.
    """
    system, machine = platform.system().lower(), platform.machine().lower()
    if system not in ("linux", "darwin") or machine not in _ARCHITECTURES:
        raise ToolchainError(f"{system} on {machine}: the tools exist for linux and darwin on amd64 and arm64 only")
    return Platform(system, _ARCHITECTURES[machine])
