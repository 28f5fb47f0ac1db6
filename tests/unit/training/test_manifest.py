"""Manifests that somebody else wrote: nothing in them is believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.training import Checkpoint, TornCheckpoint
from runtime.training.manifest import MAX_BYTES, Entry, Manifest, parse_manifest, valid_name

GOOD = {"name": "state", "size": 3, "sha256": "0" * 64}


def text_of(*files: Any, **changes: Any) -> bytes:
    return json.dumps({"version": 1, "step": 7, "saved_at": 1.0, "files": list(files)} | changes).encode()


def test_a_manifest_reads_as_it_was_written() -> None:
    manifest = Manifest(7, 1.5, (Entry("a/b", 3, "0" * 64), Entry("shared/.metadata", 0, "f" * 64)))

    assert parse_manifest(manifest.to_json(), 7) == manifest


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 200_000, "not JSON"),
        (b"[]", "not of version 1"),
        (text_of(GOOD, version=2), "not of version 1"),
        (text_of(GOOD, step=8), "step 8"),
        (text_of(GOOD, saved_at="now"), "saved_at"),
        (text_of(GOOD, saved_at=10**400), "saved_at"),
        (text_of(files={}), "must be a list"),
        (text_of(GOOD, GOOD), "twice"),
        (text_of("state"), "no checkpoint may hold"),
        (text_of(GOOD | {"size": -1}), "no number of bytes"),
        (text_of(GOOD | {"size": True}), "no number of bytes"),
        (text_of(GOOD | {"size": 1e300}), "no number of bytes"),
        (text_of(GOOD | {"sha256": "0" * 63}), "no SHA-256"),
        (text_of(GOOD | {"sha256": None}), "no SHA-256"),
        (b" " * (MAX_BYTES + 1), "more than"),
        *(
            (text_of(GOOD | {"name": name}), "no checkpoint may hold")
            for name in ("../x", "/x", "a//b", "a/./b", "", 7)
        ),
        *(
            (text_of(GOOD | {"name": name}), "no checkpoint may hold")
            for name in ("a\0b", "a\\b", "x" * 5_000, "manifest.json")
        ),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(TornCheckpoint, match=reason):
        parse_manifest(data, 7)


@settings(max_examples=200)
@given(st.text(max_size=30))
def test_no_name_that_is_allowed_leaves_the_checkpoint(name: str) -> None:
    root = Path("/store/step")
    if valid_name(name):
        assert (root / name).resolve().is_relative_to(root)
        assert (root / name).resolve() != root


def test_a_manifest_that_leads_through_a_link_is_torn(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "state").write_bytes(b"abc")
    step = tmp_path / "step-000000000007"
    step.mkdir()
    (step / "inner").symlink_to(tmp_path / "outside")
    (step / "manifest.json").write_bytes(text_of(GOOD | {"name": "inner/state"}))

    with pytest.raises(TornCheckpoint, match="leads out"):
        Checkpoint.open(step).verify()


def test_a_huge_size_in_a_manifest_takes_no_memory(tmp_path: Path) -> None:
    step = tmp_path / "step-000000000007"
    step.mkdir()
    (step / "state").write_bytes(b"abc")
    (step / "manifest.json").write_bytes(text_of(GOOD | {"size": 10**300}))

    with pytest.raises(TornCheckpoint, match="has 3 bytes"):
        Checkpoint.open(step).verify()


@pytest.mark.parametrize(
    "name", ["step-7", "step-00000000000x", "step-٠٠٠٠٠٠٠٠٠٠٠٧", "other", ".saving-000000000007-x"]
)
def test_a_directory_of_another_name_is_no_checkpoint(tmp_path: Path, name: str) -> None:
    with pytest.raises(TornCheckpoint, match="no name of a checkpoint"):
        Checkpoint.open(tmp_path / name)
