"""What was read from real cards: which model each is, the TOML that overrides the catalogue, and how the two differ.

It reads no card: `runtime.gpus` does. A file that is put into `stacks/catalog/captured/` stands for the shipped MIG
table of its models; it is reviewed like any other change.

Invariants: writing and reading back gives equal geometries; a card whose model is not certain is never guessed.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any, Final

from infra.gpus.errors import CaptureError
from runtime.gpus.reader import CapturedGpu, Profile
from stacks.catalogue import Engines, GpuModel, MigGeometry, MigProfile, catalogue
from stacks.catalogue.mig_tables import captured_geometries
from stacks.catalogue.tables import read_table

_MIB_PER_GIB: Final = 1024
_MEMORY_DRIFT_MIB: Final = 512  # by which drivers differ for one profile of one card
_COMPARED: Final = ("slices", "starts", "size", "max_count", "sms", "profile_id", "number")


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure in which a card and the catalogue differ."""

    model: str
    what: str
    """E.g. `3g.40gb starts`."""
    catalogue: str
    card: str

    def __str__(self) -> str:
        return f"{self.model}: {self.what}: the catalogue says {self.catalogue}, the card {self.card}"


def model_of_card(card: CapturedGpu, known: Mapping[str, GpuModel]) -> str:
    """Id of the card's model: by its PCI device id, else the only model of its capability, memory and SMs.

    Raises:
        CaptureError: no model fits, or several do.
    """
    device = f"{card.pci_id >> 16:04X}"
    for gpu in known.values():
        if device in gpu.pci_device_ids:
            return gpu.id
    memory = math.ceil(card.memory_mib / _MIB_PER_GIB)
    able = [
        gpu.id
        for gpu in known.values()
        if gpu.compute_capability == card.compute_capability
        and gpu.memory_gib == memory
        and (card.sms is None or gpu.sms in (None, card.sms))
    ]
    if len(able) == 1:
        return able[0]
    what = f"can be any of {', '.join(able)}" if able else "is no model of the catalogue; add it to gpus.toml first"
    raise CaptureError(f"{card.name} (PCI device {device}, {memory} GiB) {what}; say which it is with --gpu MODEL")


def captured_toml(cards: Sequence[tuple[str, CapturedGpu]], today: date) -> str:
    """The file for these cards, each with the id of its model."""
    lines = [
        "# Read from cards by `gpufleet gpu capture`. In stacks/catalog/captured/ it stands for the shipped MIG table",
        "# of these models; compare first with `gpufleet gpu diff FILE`.",
        f"as_of = {today.isoformat()}",
        'source = "NVML, read by gpufleet gpu capture"',
    ]
    for model, card in cards:
        lines += [
            "",
            f"[types.{model}]",
            'certainty = "card"',
            f"source = {_text(f'NVML of {card.name} (0x{card.pci_id:08X}), driver {card.driver}')}",
            f"units = {card.units}",
            "profiles = [",
            *(f"    {_row(profile)}," for profile in _in_order(card.profiles)),
            "]",
        ]
    return "\n".join(lines) + "\n"


def read_captured(path: Path) -> dict[str, MigGeometry]:
    """The geometries of a captured file, by model.

    Raises:
        CaptureError: the file cannot be read, or has another form.
    """
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise CaptureError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CaptureError(f"{path}: is no TOML: {error}") from None
    return captured_of(document, str(path))


def captured_of(document: Mapping[str, Any], where: str) -> dict[str, MigGeometry]:
    """The geometries of a captured table, by model.

    Raises:
        CaptureError: it has another form.
    """
    shipped = {gpu.id: gpu.mig for gpu in catalogue().gpus.values() if gpu.mig}
    try:
        found = captured_geometries(dict(document), read_table("gpus"), shipped)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise CaptureError(f"{where}: is no captured table: {reason}; `gpufleet gpu capture` writes one") from None
    if not found:
        raise CaptureError(f"{where}: has no model under [types]; `gpufleet gpu capture` writes it")
    return found


def differences(model: GpuModel, read: MigGeometry) -> Iterator[Difference]:
    """Where a card and the catalogue differ; what the catalogue does not know is no difference."""
    known = model.mig
    if known is None:
        yield Difference(model.id, "MIG", "none", f"{len(read.profiles)} profiles")
        return
    if known.units != read.units:
        yield Difference(model.id, "memory units", str(known.units), str(read.units))
    for name in dict.fromkeys((*known.profiles, *read.profiles)):
        ours, theirs = known.profiles.get(name), read.profiles.get(name)
        if ours is None or theirs is None:
            yield Difference(model.id, name, _has(ours), _has(theirs))
            continue
        for what, said, found in _figures(ours, theirs):
            yield Difference(model.id, f"{name} {what}", said, found)


def _has(profile: MigProfile | None) -> str:
    return "there is none" if profile is None else "there is one"


def _figures(ours: MigProfile, theirs: MigProfile) -> Iterator[tuple[str, str, str]]:
    for what in _COMPARED:
        said, found = getattr(ours, what), getattr(theirs, what)
        if said is not None and said != found:
            yield what.replace("_", " "), str(said), str(found)
    for kind in fields(Engines):
        said, found = getattr(ours.engines, kind.name), getattr(theirs.engines, kind.name)
        if said != found:
            yield f"{kind.name.replace('_', ' ')} engines", str(said), str(found)
    both = (ours.memory_mib, theirs.memory_mib)
    if None not in both and abs((ours.memory_mib or 0) - (theirs.memory_mib or 0)) > _MEMORY_DRIFT_MIB:
        yield "memory", f"{ours.memory_mib} MiB", f"{theirs.memory_mib} MiB"


def _row(profile: Profile) -> str:
    engines = (
        f"copy = {profile.copy_engines}, decoders = {profile.decoders}, encoders = {profile.encoders}, "
        f"jpeg = {profile.jpeg_engines}, optical_flow = {profile.ofa_engines}"
    )
    return (
        f"{{ name = {_text(profile.name)}, slices = {profile.slices}, starts = {list(profile.starts)}, "
        f"size = {profile.size}, max_count = {profile.max_count}, id = {profile.profile_id}, "
        f"number = {profile.number}, sms = {profile.sms}, memory_mib = {profile.memory_mib}, "
        f"engines = {{ {engines} }} }}"
    )


def _in_order(profiles: Sequence[Profile]) -> list[Profile]:
    """As in the shipped table: small ones first."""
    return sorted(profiles, key=lambda profile: (profile.slices, profile.size, profile.number))


def _text(value: str) -> str:
    """A TOML basic string of what a driver says, whatever that holds."""
    plain = "".join(char if char.isprintable() else "?" for char in value)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
