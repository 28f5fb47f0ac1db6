"""Puts the embedded plugins into a Pulumi home, each only where the official one is absent.

How Pulumi looks a plugin up: PATH, then the folder of the `pulumi` program (language hosts), then
`$PULUMI_HOME/plugins`. The embedded ones go to the last place, so that whatever is found earlier wins without our
help; an official provider in the user's own home, which our home hides, is linked instead. Invariants: installing
twice changes nothing; a plugin folder is complete or absent.
"""

from __future__ import annotations

import importlib.metadata
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

# The language host is asked for without a version, so any will do; the provider with its SDK's exact version.
LANGUAGE_HOST_FOLDER = "language-python-v0.1.0"
LANGUAGE_HOST_PROGRAM = "pulumi-language-python"
PROVIDER_PROGRAM = "pulumi-resource-kubernetes"
SDK_DISTRIBUTION = "pulumi-kubernetes"


def install(home: Path, pulumi: Path, python: Path) -> list[str]:
    """Install what is absent into `home`; return one line about each plugin: which one will be used."""
    plugins = home / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    return [_install_language_host(plugins, pulumi, python), _install_provider(plugins, python)]


def _install_language_host(plugins: Path, pulumi: Path, python: Path) -> str:
    target = plugins / LANGUAGE_HOST_FOLDER
    beside = pulumi.resolve().parent / LANGUAGE_HOST_PROGRAM
    official = shutil.which(LANGUAGE_HOST_PROGRAM) or (str(beside) if os.access(beside, os.X_OK) else None)
    if official:
        _remove(target)
        return f"{LANGUAGE_HOST_PROGRAM}: {official}"
    _place_launcher(target, LANGUAGE_HOST_PROGRAM, python, "infra.local.plugins.language_host")
    return f"{LANGUAGE_HOST_PROGRAM}: the embedded one"


def _install_provider(plugins: Path, python: Path) -> str:
    name = f"resource-kubernetes-v{importlib.metadata.version(SDK_DISTRIBUTION)}"
    target = plugins / name
    on_path = shutil.which(PROVIDER_PROGRAM)
    if on_path:
        _remove(target)
        return f"{PROVIDER_PROGRAM}: {on_path}"
    for user_home in _user_homes():
        cached = user_home / "plugins" / name
        if os.access(cached / PROVIDER_PROGRAM, os.X_OK) and cached.resolve() != target.resolve():
            _replace(target, partial(_link_all, cached))
            return f"{PROVIDER_PROGRAM}: {cached / PROVIDER_PROGRAM}"
    _place_launcher(target, PROVIDER_PROGRAM, python, "infra.local.plugins.kubernetes")
    return f"{PROVIDER_PROGRAM}: the embedded one"


def _user_homes() -> list[Path]:
    """The homes that the user's own plugins may be in; PULUMI_HOME may be ours, where its user exported it."""
    named = os.environ.get("PULUMI_HOME")
    return [*([Path(named)] if named else []), Path.home() / ".pulumi"]


def _place_launcher(target: Path, program: str, python: Path, module: str) -> None:
    """Write a program that starts one of our modules. `-P` keeps the working directory off its import path."""
    launcher = f'#!/bin/sh\nexec {shlex.quote(str(python.absolute()))} -P -m {module} "$@"\n'

    def fill(folder: Path) -> None:
        path = folder / program
        path.write_text(launcher, encoding="utf-8")
        path.chmod(0o755)

    present = target / program
    if not present.is_symlink() and present.is_file() and present.read_text(encoding="utf-8") == launcher:
        return
    _replace(target, fill)


def _link_all(source: Path, folder: Path) -> None:
    # Pulumi skips a plugin folder that is itself a link, so the entries are linked one by one.
    for entry in source.iterdir():
        (folder / entry.name).symlink_to(entry.absolute())


def _replace(target: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder anew beside its place, then move it there."""
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        fill(fresh)
        fresh.chmod(0o755)
        _remove(target)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _remove(target: Path) -> None:
    shutil.rmtree(target, ignore_errors=True)
