"""The fleet object as Pulumi resolved it: from Pulumi.yaml's defaults, a stack file and the command line together.

Reads the three forms in which Pulumi gives it away as JSON: `pulumi config --json`, the variable PULUMI_CONFIG of a
running program, and the bare object. There is no stack file behind any of them, so problems name paths, not lines.
"""

from __future__ import annotations

import json
from typing import Any, Final, Never

from stacks.problems import Code, ConfigError, Place
from stacks.reading.stackfile import KEY, stray
from stacks.suggest import nearest

_ENTRY: Final = frozenset({"value", "objectValue", "secret"})  # of `pulumi config --json`


def object_of(text: str, name: str) -> Any:
    """The fleet object in a JSON text.

    Raises:
        ConfigError: when there is none.
    """
    document = _json(text, name)
    if not isinstance(document, dict) or not any(":" in key for key in document):
        return document
    _refuse_strays(document, name)
    if KEY not in document:
        near = "".join(f"; did you mean {KEY} by {key}?" for key in nearest(KEY, document))
        raise _wrong(name, "not-a-stack-file", f"has no {KEY}{near}")
    value = document[KEY]
    if isinstance(value, dict) and value and value.keys() <= _ENTRY:
        if value.get("secret"):
            reason = "holds an encrypted value; make it a sibling secret and name it in the object"
            raise _wrong(name, "secret-inside", f"{KEY} {reason}")
        value = value.get("objectValue", value.get("value"))
    return _json(value, f"{name}: {KEY}") if isinstance(value, str) else value


def _refuse_strays(document: dict[str, Any], name: str) -> None:
    """Only `pulumi config --json` tells secrets, which may stand beside the object, from other keys."""
    namespace = KEY.partition(":")[0] + ":"
    strays = [
        Place(name).problem("unknown-setting", stray(key), (key,))
        for key, entry in document.items()
        if key.startswith(namespace) and key != KEY and isinstance(entry, dict) and entry.get("secret") is False
    ]
    if strays:
        raise ConfigError(strays)


def _json(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise ConfigError(
            [Place(name, error.lineno, error.colno).problem("yaml-syntax", f"not JSON: {error.msg}")]
        ) from None
    except RecursionError:
        raise _wrong(name, "too-large", "is nested too deeply") from None
    except ValueError as error:
        raise _wrong(name, "yaml-syntax", f"not JSON: {error}") from None


def _refuse_constant(word: str) -> Never:
    raise ValueError(f"{word} is no number")


def _wrong(name: str, code: Code, reason: str) -> ConfigError:
    return ConfigError([Place(name).problem(code, reason)])
