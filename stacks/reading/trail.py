"""Follows a pydantic error location through the models, to the path that a person would follow through the file.

Pydantic adds parts to a location that are in no file: the tag of a discriminated union, the name of another union's
branch, `[key]`. Only the types tell them from keys that happen to have the same name, so this module steps through the
annotations of the models beside the location.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stacks.model import Path

_KEY_ITSELF: Final = "[key]"


class Choice(NamedTuple):
    """One branch of a union without a discriminator, as far as an error lies in it."""

    union: Path
    """Location of the union."""
    label: str
    """Pydantic's name of the branch."""
    path: Path
    """Path of the value that the union reads."""
    model: type[BaseModel] | None
    """The branch, where it is a model."""


@dataclass(frozen=True, slots=True)
class Trail:
    """Where a location leads: the path through the file, the branches taken, and the types that may stand there."""

    path: Path
    choices: tuple[Choice, ...]
    types: tuple[Any, ...]
    parents: tuple[Any, ...]
    """The types of the mapping or list that the last part of the path is in."""
    examples: tuple[str, ...] = ()
    """Values that the models give as examples of what may stand here."""
    discriminator: str | None = None
    """The setting that tells the types apart."""

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings that the models here have."""
        return settings_of(self.types)

    @property
    def siblings(self) -> tuple[str, ...]:
        """The settings beside the last part of the path."""
        return settings_of(self.parents)

    @property
    def openings(self) -> tuple[str, ...]:
        """The setting to begin with in each kind of mapping that may stand here."""
        return (self.discriminator,) if self.discriminator else openings_of(self.types)

    def alias(self, name: str) -> str:
        """How a setting of the models here is written in the file, by that name or by Python's."""
        fields = (model.model_fields.get(name) for one in self.types for model in _models(one))
        return next((field.alias for field in fields if field and field.alias), name)

    def tags(self, discriminator: str) -> tuple[str, ...]:
        """The values of a field by which the types here are told apart."""
        found = [tag for one in self.types for model in _models(one) for tag in _tags(model, discriminator)]
        return tuple(dict.fromkeys(map(str, found)))


def settings_of(types: Sequence[Any]) -> tuple[str, ...]:
    """The settings that models have, as they are written in the file."""
    models = [model for one in types for model in _models(one)]
    return tuple(dict.fromkeys(field.alias or name for model in models for name, field in model.model_fields.items()))


def openings_of(types: Sequence[Any]) -> tuple[str, ...]:
    """The setting to begin with in each of the models: the one that tells it apart, or the first that it requires."""
    return tuple(dict.fromkeys(_opening(model) for one in types for model in _models(one)))


def _opening(model: type[BaseModel]) -> str:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    tagged = (name for name, field in fields.items() if get_origin(field.annotation) is Literal and field.is_required())
    required = (name for name, field in fields.items() if field.is_required())
    return next(tagged, None) or next(required, None) or next(iter(fields))


def follow(model: type[BaseModel], location: Path) -> Trail:
    """Follow a location from a model."""
    types, discriminator = _options(model, None)
    parents: tuple[Any, ...] = ()
    path: list[str | int] = []
    choices: list[Choice] = []
    last: tuple[Any, FieldInfo | None] = (None, None)
    for index, part in enumerate(location):
        if part == _KEY_ITSELF and index == len(location) - 1 and path:
            last = (get_args(parents[0])[0] if parents and get_args(parents[0]) else None, None)
            break
        if len(types) > 1:
            branches = _branches(types, discriminator, part)
            if not discriminator:
                models = [model for one in branches for model in _models(one)]
                choices.append(Choice(location[:index], str(part), tuple(path), models[0] if models else None))
            types, discriminator = _options(branches[0], None) if len(branches) == 1 else (branches, None)
            continue
        parents, last = types, _inside(types[0] if types else None, part)
        types, discriminator = _options(*last) if last[0] is not None else ((), None)
        path.append(part)
    return Trail(tuple(path), tuple(choices), types, parents, _examples(*last), discriminator)


def _inside(one: Any, part: str | int) -> tuple[Any, FieldInfo | None]:
    """The annotation of a part of a mapping or list, and the field that it is."""
    if _is_model(one):
        for name, field in one.model_fields.items():
            if part in (name, field.alias):
                return field.annotation, field
        return None, None
    arguments = get_args(one)
    if isinstance(get_origin(one), type) and issubclass(get_origin(one), Mapping) and len(arguments) == 2:
        return arguments[1], None
    if get_origin(one) is tuple and isinstance(part, int) and arguments:
        return arguments[0 if arguments[-1] is Ellipsis else min(part, len(arguments) - 1)], None
    if get_origin(one) in (list, set, frozenset) and arguments:
        return arguments[0], None
    return None, None


def _examples(annotation: Any, field: FieldInfo | None) -> tuple[str, ...]:
    found = list(field.examples or ()) if field else []
    if get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        for extra in extras:
            found += (extra.examples or ()) if isinstance(extra, FieldInfo) else ()
        return (*map(str, found), *_examples(annotation, None))
    if get_origin(annotation) in (Union, UnionType):
        return (*map(str, found), *(one for member in get_args(annotation) for one in _examples(member, None)))
    return tuple(map(str, found))


def _options(annotation: Any, field: FieldInfo | None) -> tuple[tuple[Any, ...], str | None]:
    """The types that an annotation allows, None left out, and the field that tells them apart."""
    discriminator = field.discriminator if field else None
    while get_origin(annotation) is Annotated:
        annotation, *extras = get_args(annotation)
        found = [extra.discriminator for extra in extras if isinstance(extra, FieldInfo) and extra.discriminator]
        discriminator = discriminator or (found[0] if found else None)
    if get_origin(annotation) not in (Union, UnionType):
        return (annotation,), None
    members = [member for member in get_args(annotation) if member is not NoneType]
    if len(members) == 1:
        return _options(members[0], None)
    return tuple(members), discriminator if isinstance(discriminator, str) else None


def _branches(types: tuple[Any, ...], discriminator: str | None, part: str | int) -> tuple[Any, ...]:
    """The branches that a part of the location may mean; a branch may be a union itself."""
    if discriminator:
        return tuple(one for one in types if any(part in _tags(model, discriminator) for model in _models(one)))
    if named := [one for one in types if any(model.__name__ == part for model in _models(one))]:
        return tuple(named)
    return tuple(one for one in types if not _models(one))


def _models(annotation: Any) -> list[type[BaseModel]]:
    if _is_model(annotation):
        return [annotation]
    options, _ = _options(annotation, None)
    return [model for one in options if one is not annotation for model in _models(one)]


def _tags(model: type[BaseModel], discriminator: str) -> tuple[Any, ...]:
    field = model.model_fields.get(discriminator)
    return get_args(field.annotation) if field and get_origin(field.annotation) is Literal else ()


def _is_model(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, BaseModel)
