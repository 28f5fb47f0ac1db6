"""Reads a file's text, or says in one problem why it cannot.

Only regular files of a bounded size are read: a pipe or a device would block or never end. The text is UTF-8, with or
without a byte order mark; other encodings are named, not guessed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

from stacks.problems import Code, ConfigError, Place

LARGEST_BYTES: Final = 4 * 2**20  # the largest plausible file (ten thousand pools) has a third of it

_OTHER_ENCODINGS: Final = (  # by byte order mark; the longer ones first, as UTF-32's begins with UTF-16's
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def read_source(path: Path, name: str) -> str:
    """The text of a file; `name` is what problems call it.

    Raises:
        ConfigError: when it cannot be read as text.
    """
    return decode(_read(path, name), name)


def decode(content: bytes, name: str) -> str:
    """The text of a file's bytes, without a byte order mark.

    Raises:
        ConfigError: when they are too many, or not UTF-8.
    """
    if len(content) > LARGEST_BYTES:
        raise _wrong(name, f"is larger than {LARGEST_BYTES:,} bytes, the most that is read", code="too-large")
    for mark, encoding in _OTHER_ENCODINGS:
        if content.startswith(mark):
            raise _wrong(name, f"is {encoding} text, not UTF-8; save it as UTF-8")
    if b"\0" in content[:2] and content[:2].isascii():  # they pad ASCII with zeros, and YAML begins with it
        raise _wrong(name, "is UTF-16 or UTF-32 text, not UTF-8; save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = error.object[: error.start]  # without the byte order mark
        line, column = before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
        at = len(content) - len(error.object) + error.start
        reason = f"is not UTF-8 text: byte {at:,} is 0x{error.object[error.start]:02x}; save it as UTF-8"
        raise _wrong(name, reason, line, column) from None


def _read(path: Path, name: str) -> bytes:
    try:
        # A pipe without a writer must not block; it is told apart after it is open, so that nothing changes in between.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                kind = next((kind for is_kind, kind in _KINDS if is_kind(mode)), "no file")
                raise _wrong(name, f"is {kind}; name a file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return file.read(LARGEST_BYTES + 1)
        finally:
            os.close(descriptor)
    except ValueError:
        raise _wrong(name, "cannot be read: its name holds a NUL character") from None
    except OSError as error:
        raise _wrong(name, f"cannot be read: {error.strerror or error}") from None


def _wrong(name: str, reason: str, line: int = 0, column: int = 0, code: Code = "unreadable") -> ConfigError:
    return ConfigError([Place(name, line, column).problem(code, reason)])
