"""Cards against the catalogue: which model a card is, the file that overrides the table, and what differs."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from infra.gpus.captured import captured_of, captured_toml, differences, model_of_card, read_captured
from infra.gpus.errors import CaptureError
from runtime.gpus.reader import CapturedGpu, Profile
from stacks.catalogue import GpuModel, catalogue
from stacks.catalogue.tables import read_table

GPUS = catalogue().gpus
H100 = GPUS["h100-sxm-80gb"]
TODAY = date(2026, 11, 22)
WITH_MIG = [gpu for gpu in GPUS.values() if gpu.mig]


def card(gpu: GpuModel) -> CapturedGpu:
    """A card that is as the catalogue says; what that does not know is made up."""
    assert gpu.mig is not None
    profiles = tuple(
        Profile(
            name=one.name,
            slices=one.slices,
            profile_id=99 if one.profile_id is None else one.profile_id,
            number=one.number,
            starts=one.starts,
            size=one.size,
            max_count=one.max_count,
            sms=one.sms or 10 * one.slices,
            memory_mib=one.memory_mib or 1000 * one.size,
            copy_engines=one.engines.copy,
            decoders=one.engines.decoders,
            encoders=one.engines.encoders,
            jpeg_engines=one.engines.jpeg,
            ofa_engines=one.engines.optical_flow,
        )
        for one in gpu.mig.profiles.values()
    )
    device = int(gpu.pci_device_ids[0] if gpu.pci_device_ids else "FFFF", 16)
    return CapturedGpu(
        name="NVIDIA card",
        pci_id=(device << 16) + 0x10DE,
        memory_mib=gpu.memory_gib * 1024 - 361,
        sms=gpu.sms,
        compute_capability=gpu.compute_capability,
        driver="595.91.07",
        units=gpu.mig.units,
        profiles=tuple(sorted(profiles, key=lambda profile: profile.number)),
    )


@pytest.mark.parametrize("gpu", WITH_MIG, ids=lambda gpu: gpu.id)
def test_a_card_like_the_catalogue_is_known_written_read_back_and_agrees(gpu: GpuModel, tmp_path: Path) -> None:
    made = card(gpu)
    assert model_of_card(made, GPUS) == gpu.id
    file = tmp_path / "captured.toml"
    file.write_text(captured_toml([(gpu.id, made)], TODAY), "utf-8")
    [(model, read)] = read_captured(file).items()
    assert model == gpu.id
    assert gpu.mig is not None
    assert list(differences(gpu, read)) == []
    assert (read.units, read.certainty, read.as_of, read.engines) == (gpu.mig.units, "card", TODAY, gpu.mig.engines)
    assert set(read.profiles) == set(gpu.mig.profiles)
    for name, theirs in read.profiles.items():
        ours = gpu.mig.profiles[name]
        read_id = theirs.profile_id if ours.profile_id is None else ours.profile_id
        assert replace(ours, sms=theirs.sms, memory_mib=theirs.memory_mib, profile_id=read_id) == theirs


def test_every_figure_that_differs_is_named() -> None:
    made = card(H100)
    first, second, *rest = made.profiles
    changed = (
        replace(first, starts=(0, 1), max_count=2, sms=14),
        replace(second, decoders=5, memory_mib=second.memory_mib + 2000),
        *rest[:-1],
        replace(rest[-1], name="1g.21gb"),
    )
    table = tomllib.loads(captured_toml([(H100.id, replace(made, profiles=changed, units=9))], TODAY))
    found = [str(one) for one in differences(H100, captured_of(table, "here")[H100.id])]
    assert found == [
        "h100-sxm-80gb: memory units: the catalogue says 8, the card 9",
        "h100-sxm-80gb: 1g.10gb starts: the catalogue says (0, 1, 2, 3, 4, 5, 6), the card (0, 1)",
        "h100-sxm-80gb: 1g.10gb max count: the catalogue says 7, the card 2",
        "h100-sxm-80gb: 1g.10gb sms: the catalogue says 16, the card 14",
        "h100-sxm-80gb: 1g.20gb: the catalogue says there is one, the card there is none",
        "h100-sxm-80gb: 2g.20gb decoders engines: the catalogue says 2, the card 5",
        "h100-sxm-80gb: 2g.20gb memory: the catalogue says 20096 MiB, the card 22096 MiB",
        "h100-sxm-80gb: 1g.21gb: the catalogue says there is none, the card there is one",
    ]


def test_a_card_is_known_by_its_figures_where_its_pci_id_is_not() -> None:
    assert model_of_card(replace(card(GPUS["b200-sxm-180gb"]), pci_id=0xFFFF10DE), GPUS) == "b200-sxm-180gb"


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        pytest.param(
            replace(card(GPUS["a100-sxm-80gb"]), pci_id=0xFFFF10DE),
            "can be any of a100-pcie-80gb, a100-sxm-80gb; say which it is with --gpu MODEL",
            id="several",
        ),
        pytest.param(
            replace(card(H100), pci_id=0xFFFF10DE, compute_capability=(13, 0)),
            r"NVIDIA card \(PCI device FFFF, 80 GiB\) is no model of the catalogue; add it to gpus.toml first",
            id="none",
        ),
    ],
)
def test_a_card_that_is_not_certain_is_not_guessed(made: CapturedGpu, reason: str) -> None:
    with pytest.raises(CaptureError, match=reason):
        model_of_card(made, GPUS)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[", "is no TOML"),
        ("a = 1", "'types' is missing"),
        ("[types]", "has no model"),
        ("types = 1", "is no captured table"),
        ("[types.x]\nunits = 8\nprofiles = []", "x is not a GPU model of the catalogue"),
        ("[types.h100-sxm-80gb]\nunits = 8", "'profiles' is missing"),
        ("[types.h100-sxm-80gb]\nunits = 8\nprofiles = [{name = 1}]", "is missing"),
        ("[types.h100-sxm-80gb]\nunits = 8\nprofiles = []", "has no profiles"),
        ("[types.h100-sxm-80gb]\nunits = '8'\nprofiles = []", "must be a whole number"),
    ],
)
def test_what_is_no_captured_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "captured.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(CaptureError, match=reason):
        read_captured(file)
    with pytest.raises(CaptureError, match="cannot be read"):
        read_captured(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("figure", "reason"),
    [
        ({"starts": (0, 7), "size": 2}, "does not stand within the 8 memory units"),
        ({"starts": ()}, "needs a start"),
        ({"max_count": 0}, "at least 1 slice, size and max_count"),
    ],
)
def test_a_captured_profile_stands_on_its_line(tmp_path: Path, figure: dict[str, Any], reason: str) -> None:
    made = card(H100)
    file = tmp_path / "captured.toml"
    wrong = replace(made, profiles=(replace(made.profiles[0], **figure), *made.profiles[1:]))
    file.write_text(captured_toml([(H100.id, wrong)], TODAY), "utf-8")
    with pytest.raises(CaptureError, match=reason):
        read_captured(file)


def test_what_a_driver_says_is_text_in_the_file_whatever_it_holds() -> None:
    odd = replace(card(H100), name='a"b\\c\n[types.x]', driver="\x1b[31m")
    table = tomllib.loads(captured_toml([(H100.id, odd)], TODAY))
    assert list(table["types"]) == [H100.id]


def test_a_captured_file_goes_before_the_shipped_table(monkeypatch: pytest.MonkeyPatch) -> None:
    made = card(H100)
    changed = replace(made, profiles=(replace(made.profiles[0], name="1g.11gb"), *made.profiles[1:]))
    table = tomllib.loads(captured_toml([(H100.id, changed)], TODAY))
    monkeypatch.setattr("stacks.catalogue.tables.captured_tables", lambda: [table])
    fresh = catalogue.__wrapped__()
    mig = fresh.gpus[H100.id].mig
    assert mig is not None
    assert "1g.11gb" in mig.profiles
    assert mig.certainty == "card"
    assert fresh.gpus["a30-24gb"] == GPUS["a30-24gb"]
    assert read_table("mig")["families"]
