"""Finds the fleet object in a Pulumi stack file.

It does not know what belongs inside the object; that is the models' matter. What stands elsewhere in the stack file is
left alone, except for keys of our own namespace, where a typo would be lost without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from yaml import MappingNode, Node, ScalarNode

from stacks.model import Path
from stacks.problems import ConfigError, Place, Problem
from stacks.reading.document import Document, compose
from stacks.reading.positions import Positions
from stacks.reading.values import Builder
from stacks.suggest import nearest

KEY: Final = "gpufleet:fleet"
"""The one configuration key that holds the whole fleet."""

EXAMPLE: Final = "see stacks/Pulumi.local.yaml for an example"
_NAMESPACE, _NAME = KEY.split(":")
_BETWEEN_SECTIONS: Final = frozenset({"rule", "unknown-name"})
_SET_SECRET: Final = "if it is a secret, set it with pulumi config set --secret"


@dataclass(frozen=True, slots=True)
class Found:
    """The object of a file (None where there is none), the places of its parts, and what is wrong so far."""

    value: Any
    positions: Positions
    problems: tuple[Problem, ...] = ()
    name: Path = (KEY,)
    """What a problem of the whole object is said of; nothing where the places say it."""

    def and_wrong(self, problems: Iterable[Problem]) -> Found:
        """The same with more problems."""
        return replace(self, problems=(*self.problems, *problems))

    def problem(self, key: str, reason: str) -> Problem:
        """What is wrong with the value of a setting of the root."""
        return self.positions.of((key,)).problem("bad-value", reason, (key,))

    def unclaimed(self, problems: Iterable[Problem]) -> Iterator[Problem]:
        """Those that do not merely follow from one that is known already, at the same setting or above it.

        What is wrong between sections is left out where the values may not be what is written; a stray key beside the
        object changes none.
        """
        claimed = {known.path for known in self.problems}
        if "teams_file" in claimed:
            claimed.add("teams")
        is_certain = all(known.code == "unknown-setting" for known in self.problems)
        for problem in problems:
            parts = problem.path.split(".")
            above = any(".".join(parts[:length]) in claimed for length in range(1, len(parts) + 1))
            if not above and (is_certain or problem.code not in _BETWEEN_SECTIONS):
                yield problem


def find(text: str, name: str) -> Found:
    """The fleet object of a stack file's text.

    Raises:
        ConfigError: when the text is not YAML, or has no such object.
    """
    document = compose(text, name, inside=("config", KEY))
    config = _config(document, name)
    strays = list(_strays(config, name))
    node = value_of(config, KEY)
    if node is None:
        missing = Positions(name, document.root).of(("config",)).problem("not-a-stack-file", f"has no {KEY}; {EXAMPLE}")
        raise ConfigError([*document.problems, *strays] or [missing])
    if isinstance(node, ScalarNode):
        reason = f"must be a mapping of settings; {EXAMPLE}"
        if node.value not in ("", "~", "null"):
            reason = "must be a mapping; `pulumi config set` stores text: use it with --path, or edit the file"
        place = Positions(name, config).of((KEY,))
        raise ConfigError([*document.problems, *strays, place.problem("wrong-type", reason, (KEY,))])
    builder = Builder(name)
    value = builder.build(node)
    return Found(value, Positions(name, node), (*document.problems, *strays, *builder.problems))


def _config(document: Document, name: str) -> MappingNode:
    """The mapping `config` of a stack file."""
    root = document.root
    if root is None:
        raise ConfigError(
            [Place(name, 1, 1).problem("not-a-stack-file", f"is empty: it has no config.{KEY}; {EXAMPLE}")]
        )
    start = Positions(name, root).of(())
    if not isinstance(root, MappingNode):
        reason = f"must be a mapping with config: and below it {KEY}: (it has no config.{KEY}); {EXAMPLE}"
        raise ConfigError([*document.problems, start.problem("not-a-stack-file", reason)])
    node = value_of(root, "config")
    if node is None:
        raise ConfigError([*document.problems, _without_config(root, name)])
    if not isinstance(node, MappingNode):
        place = Positions(name, root).of(("config",))
        reason = f"must be a mapping (it has no config.{KEY}); {EXAMPLE}"
        raise ConfigError([*document.problems, place.problem("not-a-stack-file", reason, ("config",))])
    return node


def _without_config(root: MappingNode, name: str) -> Problem:
    keys = [key.value for key, _ in root.value if isinstance(key, ScalarNode)]
    positions = Positions(name, root)
    if KEY in keys:
        return positions.of((KEY,)).problem("not-a-stack-file", "stands at the top; put it below config:", (KEY,))
    lacks = f"has no config.{KEY}"
    for key in keys:
        if nearest(key, ["config"]):
            reason = f"did you mean config? (the file {lacks})"
            return positions.of((key,)).problem("not-a-stack-file", reason, (key,))
    return positions.of(()).problem("not-a-stack-file", f"{lacks}; {EXAMPLE}")


def value_of(mapping: MappingNode, name: str) -> Node | None:
    """The node at a key, its last one where it is written twice; merges are followed nowhere above the object."""
    found = [value for key, value in mapping.value if isinstance(key, ScalarNode) and key.value == name]
    return found[-1] if found else None


def _strays(config: MappingNode, name: str) -> Iterator[Problem]:
    """Keys of our namespace that nobody reads; Pulumi takes a key without a namespace to be the project's, ours."""
    for key, value in config.value:
        if not isinstance(key, ScalarNode) or key.value in (KEY, "<<"):
            continue
        namespace, colon, _ = key.value.partition(":")
        if (colon and namespace != _NAMESPACE) or _is_encrypted(value):
            continue
        place = Place(name, key.start_mark.line + 1, key.start_mark.column + 1)
        yield place.problem("unknown-setting", stray(key.value), (key.value,))


def stray(key: str) -> str:
    """What to say of a key of our namespace that is neither the object nor a secret."""
    _, colon, last = key.rpartition(":")
    hint = _SET_SECRET
    if last in (_NAME, _NAMESPACE):
        hint = f"write {KEY}"
    elif nearest(last, [_NAME]):
        hint = f"did you mean {KEY if colon else _NAME}?"
    return f"only {KEY} and secrets belong here; {hint}"


def _is_encrypted(node: Node) -> bool:
    return isinstance(node, MappingNode) and [key.value for key, _ in node.value] == ["secure"]
