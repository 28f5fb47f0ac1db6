"""What of a value may be shown in a message, and how.

A value that may be secret is never shown: which keys are taken to hold secrets is decided here, and that a URL may hold
a password wherever it stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from stacks.problems import printable

_LONGEST_VALUE: Final = 80  # characters; the file is at hand for the rest
_LARGEST_PLAIN: Final = 1e15  # beyond, a whole float is written with an exponent
_MADE_OF_THE_VALUE: Final = re.compile(r"; (?:try|did you mean) .*", re.DOTALL)
_SHORTEST_SECRET: Final = 4  # characters; what is shorter stands in any sentence
_NOT_SHOWN: Final = "value not shown"

_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_SECRET_WORDS: Final = frozenset(
    (
        *("accesskey", "apikey", "credential", "credentials", "key", "keys", "pass", "passphrase", "passwd"),
        *("password", "passwords", "pem", "privatekey", "psk", "secret", "secretkey", "secrets", "token", "tokens"),
    )
)
_CREDENTIALS: Final = re.compile(r"(?<=://)\S*@")  # of a URL; up to the last @, as a password may hold / and @


def looks_secret(path: Sequence[str | int]) -> bool:
    """Whether a value at this path may be a secret, by the words of its keys."""
    return any(word.lower() in _SECRET_WORDS for part in path if isinstance(part, str) for word in _WORD.findall(part))


def masked(text: str) -> str:
    """The text without the user names and passwords of the URLs in it."""
    return _CREDENTIALS.sub("…@", text)


def shown(value: Any) -> str:
    """A value as it would be written in the file."""
    if isinstance(value, dict | list):
        return "a mapping" if isinstance(value, dict) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    whole = int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_PLAIN else value
    return printable(masked(repr(whole)), _LONGEST_VALUE)


def with_value(reason: str, value: object, *, secret: bool = False) -> str:
    """The reason and, behind it, what the file has."""
    if secret and not isinstance(value, dict | list):
        return _with_remark(_without(reason, str(value)), _NOT_SHOWN)
    return _with_remark(_without_credentials(reason, value), f"got {shown(value)}")


def with_value_once(reason: str, value: object, *, secret: bool = False) -> str:
    """The same where the reason does not name the value itself; collections are left out."""
    if secret:
        return _without(reason, str(value))
    if isinstance(value, str | int | float) and not _names(reason, value):
        return with_value(reason, value)
    return _without_credentials(reason, value)


def _without(reason: str, secret: str) -> str:
    """The reason without the secret, and without what was made of it."""
    kept = masked(_MADE_OF_THE_VALUE.sub("", reason))
    return kept.replace(secret, "…") if len(secret) >= _SHORTEST_SECRET else kept


def _without_credentials(reason: str, value: object) -> str:
    return _without(reason, "") if isinstance(value, str) and masked(value) != value else masked(reason)


def _names(reason: str, value: str | float) -> bool:
    if isinstance(value, bool):
        return False
    spellings = {str(value) or "''"} if isinstance(value, str) else {str(value), f"{value:,}"}
    return any(re.search(rf"(?<![\w.-]){re.escape(spelling)}(?![\w%-]|\.\d)", reason) for spelling in spellings)


def _with_remark(reason: str, remark: str) -> str:
    sentence, near, name = reason.rpartition("; did you mean ")
    if near and " " not in name:
        return f"{sentence} ({remark}{near}{name})"
    return f"{reason[:-1]}; {remark})" if reason.endswith(")") else f"{reason} ({remark})"
