"""The catalogue against the cards of this machine, where it has any with MIG; it only reads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from stacks.catalogue import catalogue
from tests.conftest import ROOT
from tests.nvml.scenario import SONAME, VARIABLE

CODE = """
import json, sys
from dataclasses import asdict
from runtime.gpus.nvml import Nvml
from runtime.gpus.reader import ReaderDown, ReadingRefused, capture
try:
    reader = Nvml()
    print(json.dumps({"captured": [asdict(gpu) for gpu in capture(reader)]}))
    reader.close()
except (ReaderDown, ReadingRefused) as error:
    print(json.dumps({"reason": str(error)}))
"""


def test_real_cards_have_the_profiles_and_placements_of_the_catalogue() -> None:
    """In a process of its own, since a process that loaded the test NVML finds that one."""
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
    ran = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    answer = json.loads(ran.stdout)
    if "reason" in answer:
        pytest.skip(f"no card to compare with ({SONAME}): {answer['reason']}")
    models = {device: model for model in catalogue().gpus.values() for device in model.pci_device_ids}
    compared = 0
    for captured in answer["captured"]:
        model = models.get(f"{captured['pci_id'] >> 16:04X}")
        if model is None or model.mig is None:
            continue
        compared += 1
        assert captured["units"] == model.mig.units
        read = {profile["name"]: profile for profile in captured["profiles"]}
        assert set(read) >= set(model.mig.profiles)
        for name, known in model.mig.profiles.items():
            placed = (tuple(read[name]["starts"]), read[name]["size"], read[name]["max_count"], read[name]["number"])
            assert placed == (known.starts, known.size, known.max_count, known.number), name
            assert known.sms in (None, read[name]["sms"]), name
            assert known.profile_id in (None, read[name]["profile_id"]), name
    if not compared:
        pytest.skip("no card of this machine is a model of the catalogue with MIG")
