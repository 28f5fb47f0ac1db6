"""Find a tool on PATH, if it is exactly the version we want."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from infra.local.versions import Tool

_VERSION_TIMEOUT_SECONDS = 20
_VERSION = re.compile(r"\bv?(\d+\.\d+\.\d+)\b")


def on_path(tool: Tool) -> tuple[Path | None, str]:
    """Return the binary on PATH if it is exactly the wanted version, else why not."""
    if not tool.version_arguments:
        return None, "PATH: not looked at, it cannot tell its version"
    found = shutil.which(tool.name)
    if found is None:
        return None, f"PATH: no {tool.name}"
    try:
        answer = subprocess.run(
            [found, *tool.version_arguments],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=_VERSION_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"PATH: {found} cannot be asked for its version ({error})"
    match = _VERSION.search(answer.stdout)
    if match and match.group(1) == tool.version.removeprefix("v"):
        return Path(found), ""
    return None, f"PATH: {found} is {match.group(1) if match else 'of unknown version'}, {tool.version} is needed"
