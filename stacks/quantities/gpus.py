"""GPU models by their catalogue id, and counts of GPUs.

The catalogue decides which models exist. A short name is accepted only while one model answers to it: which of two
cards was meant is never guessed.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import Field, GetJsonSchemaHandler, PlainValidator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

import stacks.catalogue  # as a module, so that the catalogue may itself read quantities
from stacks.quantities.text import text_of
from stacks.suggest import did_you_mean

_SEPARATORS: Final = re.compile(r"[\s_/.-]+")
_SOCKET: Final = re.compile(r"sxm[2-9]")
_NOISE: Final = re.compile(r"nvidia|tesla|hbm.*|")
_EXAMPLE: Final = "h100-sxm-80gb"

GpuCount = Annotated[int, Field(ge=0, le=1_000_000, strict=True)]
"""A number of whole GPUs."""


def parse_gpu_name(value: object) -> str:
    """Read the name of a GPU model; the result is its catalogue id.

    Case, separators and what product names add (`NVIDIA`, `SXM5`, `HBM3`) do not matter.

    Raises:
        ValueError: for an unknown model, naming the nearest, and for a name that several models share, naming them.
    """
    text = text_of(value, "a GPU model", _EXAMPLE)
    models = stacks.catalogue.catalogue().gpus
    if text in models:
        return text
    words = _words(text)
    exact = [model for model in models if "".join(_words(model)) == "".join(words)]
    if len(exact) == 1:
        return exact[0]
    candidates = sorted(key for key, model in models.items() if set(words) <= {*_words(key), *_words(model.name)})
    if not words or not candidates:
        raise ValueError(f"not a GPU model of the catalogue{did_you_mean('-'.join(words), models)}")
    if len(candidates) > 1:
        raise ValueError(f"{text} can be any of {', '.join(candidates)}; write which")
    return candidates[0]


def _words(text: str) -> list[str]:
    words = (_SOCKET.sub("sxm", word) for word in _SEPARATORS.split(text.lower()))
    return [word for word in words if not _NOISE.fullmatch(word)]


class _CatalogueIds:
    """Puts the ids of the catalogue into the JSON schema at the time it is asked for."""

    def __get_pydantic_json_schema__(self, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {
            "type": "string",
            "description": "A GPU model by its catalogue id.",
            "enum": sorted(stacks.catalogue.catalogue().gpus),
            "examples": [_EXAMPLE],
        }


GpuName = Annotated[str, PlainValidator(parse_gpu_name), _CatalogueIds()]
"""The catalogue id of a GPU model, for example `h100-sxm-80gb`."""
