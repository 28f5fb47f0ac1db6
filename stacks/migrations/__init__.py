"""Brings a stack file of an older schema version to the current one, with its comments and its layout.

One step per version; each changes the text from one version to the next and knows nothing of the others. It does not
judge the result: `stacks.load` does, once the file has the current form. It never downgrades.

Invariants: a current file comes back unchanged to the byte; where the old form is ambiguous, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from yaml import MappingNode

from stacks.editing.edits import Document, EditError
from stacks.editing.spans import BYTE_ORDER_MARK
from stacks.migrations import to_version_1
from stacks.migrations.lookup import inherited, plain_value
from stacks.problems import ConfigError
from stacks.reading.document import compose
from stacks.version import CURRENT, advice

__all__ = ["CURRENT", "STEPS", "Migration", "Step", "migrate"]

_VERSION: Final = "schema_version"


@dataclass(frozen=True, slots=True)
class Step:
    """What leads from one version to the next."""

    description: str
    edit: Callable[[Document, MappingNode], None]
    """Adds the edits of the fleet's mapping to the document; the version itself is written by `migrate`."""


STEPS: Final = (Step(to_version_1.DESCRIPTION, to_version_1.edit),)
"""The step at index N leads from version N to N + 1."""


@dataclass(frozen=True, slots=True)
class Migration:
    """A file in the current form, and how it came there."""

    text: str
    found: int
    """The version that the file had."""
    steps: tuple[str, ...]
    """What was done, one description per version; none where the file was current."""


def migrate(text: str, name: str, at: tuple[str, ...]) -> Migration:
    """Bring a file's text to the current version.

    Args:
        text: The file, with its own line ends and its byte order mark.
        name: What problems call the file.
        at: Path to the fleet's object.

    Raises:
        ConfigError: the text is not YAML, or has keys twice.
        EditError: the file has no fleet, is newer than this gpufleet, or cannot be changed safely.
    """
    if problems := compose(text.removeprefix(BYTE_ORDER_MARK), name, inside=at).problems:
        raise ConfigError(list(problems))
    document, fleet = _fleet(text, at)
    found = version = _version(document, fleet)
    done: list[str] = []
    while version < CURRENT:
        step = STEPS[version]
        step.edit(document, fleet)
        version += 1
        if stamp := inherited(document, fleet, _VERSION):
            document.replace(stamp, version)
        else:
            document.insert_first(fleet, _VERSION, version)
        text = document.result()
        done.append(step.description)
        if version < CURRENT:
            document, fleet = _fleet(text, at)
    return Migration(text, found, tuple(done))


def _fleet(text: str, at: tuple[str, ...]) -> tuple[Document, MappingNode]:
    document = Document(text)
    mapping = document.root
    for name in at:
        entry = document.entry(mapping, name)
        if entry is None or not isinstance(entry.value, MappingNode):
            raise EditError(f"has no {'.'.join(at)}; see stacks/Pulumi.local.yaml for an example", 1, 1)
        mapping = entry.value
    if [entry.name for entry in document.entries(mapping)] == ["secure"]:
        raise EditError(f"{'.'.join(at)} is encrypted; write it in plain text, with secrets beside it", 1, 1)
    return document, mapping


def _version(document: Document, fleet: MappingNode) -> int:
    entry = inherited(document, fleet, _VERSION)
    if entry is None:
        return 0
    version = plain_value(entry)
    if isinstance(version, bool) or not isinstance(version, int) or version < 0:
        raise entry.error(f"must be a whole number from 0 to {CURRENT} (got {version!r})")
    if version > CURRENT:
        raise entry.error(f"the file {advice(version)}")
    return version
