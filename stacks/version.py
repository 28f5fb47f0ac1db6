"""The version of the file's form, and what to tell a person whose file has another."""

from __future__ import annotations

from typing import Any, Final

CURRENT: Final = 1
"""The schema version that this gpufleet reads."""

MISSING: Final = f"is required; write {CURRENT}, or run `gpufleet migrate` on a file from before there were versions"


def advice(version: int) -> str:
    """What to tell a person whose file has another version than the current one, to follow the file's name."""
    if version > CURRENT:
        return f"is written in schema version {version}, and this gpufleet reads {CURRENT}; upgrade gpufleet"
    return f"is written in schema version {version}; run `gpufleet migrate` on it"


def other_version(fleet: Any) -> int | None:
    """The version that the object says it has, where it says one and it is not the current one."""
    found = _written(fleet)
    return found if isinstance(found, int) and not isinstance(found, bool) and found != CURRENT else None


def no_version(fleet: Any) -> str | None:
    """What is wrong with a version that the models would take for the current one, as Python takes true for 1."""
    return f"must be {CURRENT} (got true)" if _written(fleet) is True else None


def _written(fleet: Any) -> Any:
    return fleet.get("schema_version") if isinstance(fleet, dict) else None
