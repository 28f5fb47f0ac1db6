"""Plain Python values in place of protobuf ones, and what is not known yet.

Invariant: a request's Struct is never indexed (`fields["x"]` inserts an empty value, and the engine panics on it);
it is converted as a whole, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format, struct_pb2

# How the engine writes a value that only `up` will know (sdk/go/common/resource/plugin/rpc.go, UnknownStringValue).
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"

# The other placeholders of the same file, by the kind of value they stand for.
UNKNOWNS = frozenset(
    {
        UNKNOWN,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # bool
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)


def is_unknown(value: Any) -> bool:
    """Whether this very value is not known yet."""
    return isinstance(value, str) and value in UNKNOWNS


def has_unknowns(value: Any) -> bool:
    """Whether anything inside the value is not known yet."""
    if isinstance(value, Mapping):
        return any(has_unknowns(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknowns(item) for item in value)
    return is_unknown(value)


def plain(struct: struct_pb2.Struct) -> dict[str, Any]:
    """A Struct as a manifest: whole numbers become `int` again (16.0 → 16), absent values (null) disappear."""
    return {name: _plain(value) for name, value in json_format.MessageToDict(struct).items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def struct(value: Mapping[str, Any]) -> struct_pb2.Struct:
    """A manifest as a Struct."""
    message = struct_pb2.Struct()
    message.update(value)
    return message
