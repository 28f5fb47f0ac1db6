"""The editor's language server, installed by the lock file beside this one into the cache that all checkouts share."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from infra.local.toolchain import cache_root
from tests.editor.client import LanguageServer

_HERE: Final = Path(__file__).parent
_ENTRY_POINT: Final = Path("node_modules/yaml-language-server/bin/yaml-language-server")
_INSTALL: Final = ("ci", "--omit=dev", "--ignore-scripts", "--no-audit", "--no-fund")
_INSTALL_SECONDS: Final = 60.0
_SETTINGS: Final = {
    "yaml": {
        "validate": True,
        "hover": True,
        "completion": True,
        "schemaStore": {"enable": False},  # the schema is named by the file's first line; nothing is fetched
        "kubernetesCRDStore": {"enable": False},
    }
}


@pytest.fixture(scope="session")
def editor() -> Iterator[LanguageServer]:
    """A running language server, as an editor has it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        pytest.skip(f"{'npm' if node else 'node'} is not on PATH; the language server needs Node.js")
    with LanguageServer([node, str(_installed(npm) / _ENTRY_POINT), "--stdio"], _SETTINGS) as server:
        yield server


def _installed(npm: str) -> Path:
    """The folder with the packages of the lock file; filled at the first use, by one rename."""
    lock = (_HERE / "package-lock.json").read_bytes()
    folder = cache_root() / "editor" / hashlib.sha256(lock).hexdigest()[:16]
    if (folder / _ENTRY_POINT).exists():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as temporary:
        new = Path(temporary, "packages")
        new.mkdir()
        for name in ("package.json", "package-lock.json"):
            shutil.copy(_HERE / name, new)
        try:
            done = subprocess.run([npm, *_INSTALL], cwd=new, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
        except subprocess.TimeoutExpired:
            pytest.skip(f"npm could not install the language server within {_INSTALL_SECONDS:.0f} s")
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if line.startswith("npm error")]
            pytest.skip(f"npm could not install the language server: {'; '.join(errors[:2]) or done.stderr[-200:]}")
        try:
            os.rename(new, folder)  # noqa: PTH104 - another process may have been first, which only os tells apart
        except OSError:
            if not (folder / _ENTRY_POINT).exists():
                raise
    return folder
