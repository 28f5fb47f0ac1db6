"""The base of every model of the fleet file: frozen, closed, and documented by its attribute docstrings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

Path = tuple[str | int, ...]
"""Keys and indexes that lead to a place in the file."""


class Model(BaseModel):
    """A frozen value read from the fleet file; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, serialize_by_alias=True)
