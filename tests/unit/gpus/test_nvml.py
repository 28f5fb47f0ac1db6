"""Reading NVML, through the real pynvml and a library that answers as real cards do."""

from __future__ import annotations

import ctypes
import sys

import pytest

from runtime.gpus.events import NvmlEvents
from runtime.gpus.nvml import Nvml
from runtime.gpus.profiles import profile_name
from runtime.gpus.reader import EventKind, GpuEvent, ReaderDown, ReadingRefused, capture
from stacks.catalogue import GpuModel, catalogue
from tests.nvml.scenario import (
    DRIVER_NOT_LOADED,
    FUNCTION_NOT_FOUND,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    VERSION_MISMATCH,
    Card,
    Mig,
    Scenario,
    gpu_uuid,
    memory_mib,
)

BUSY = {1: 80.0, 2: 55.5, 5: 20.0, 10: 33.0}
WITH_MIG = [model for model in catalogue().gpus.values() if model.mig]


def test_a_gpu_without_mig_is_described_by_its_card(reader: Nvml) -> None:
    (gpu,) = reader.gpus()
    assert (gpu.uuid, gpu.index, gpu.name) == (gpu_uuid(0), 0, "NVIDIA H100-SXM-80GB")
    assert (gpu.memory_mib, gpu.sms, gpu.compute_capability) == (81559, 132, (9, 0))
    assert (f"{gpu.pci_id:08X}", gpu.bus_id) == ("233010DE", "00000000:01:00.0")
    assert (gpu.mig, gpu.mig_pending, gpu.devices) == (False, False, (gpu,))
    assert reader.driver() == "595.91.07"


def test_mig_devices_are_found_behind_gaps_in_their_indices(scenario: Scenario, reader: Nvml) -> None:
    instances = [Mig(1, 9, "1g.10gb"), Mig(4, 2, "3g.40gb"), Mig(5, 3, "1c.2g.20gb"), Mig(6, 3, "1c.2g.20gb", ci=1)]
    scenario.cards = [Card("h100-sxm-80gb", mig=True, instances=instances), Card("t4-16gb")]
    scenario.write()
    gpu, other = reader.gpus()
    assert [device.index for device in gpu.instances] == [1, 4, 5, 6]
    assert [device.profile for device in gpu.instances] == ["1g.10gb", "3g.40gb", "1c.2g.20gb", "1c.2g.20gb"]
    assert [(device.gpu_instance, device.compute_instance) for device in gpu.instances] == [
        (9, 0),
        (2, 0),
        (3, 0),
        (3, 1),
    ]
    assert [(device.sms, device.memory_mib) for device in gpu.instances[:2]] == [(16, 9984), (60, 40448)]
    assert gpu.devices == gpu.instances
    assert (other.mig, other.instances) == (None, ())


def test_a_new_layout_leaves_no_stale_device_behind(scenario: Scenario, reader: Nvml) -> None:
    scenario.cards = [Card("h100-sxm-80gb", mig=True, instances=[Mig(0, 7, "1g.10gb"), Mig(1, 8, "1g.10gb")])]
    scenario.write()
    (before,) = reader.gpus()
    assert len(reader.usage(before)) == 2
    scenario.cards[0].instances = [Mig(0, 7, "1g.10gb"), Mig(1, 2, "3g.40gb")]
    scenario.write()
    assert [usage.uuid for usage in reader.usage(before)] == [before.instances[0].uuid]
    (after,) = reader.gpus()
    assert [device.profile for device in after.instances] == ["1g.10gb", "3g.40gb"]
    assert len(reader.usage(after)) == 2


def test_a_driver_that_names_no_mig_devices_has_them_named(scenario: Scenario, reader: Nvml) -> None:
    instances = [Mig(0, 2, "3g.40gb"), Mig(1, 3, "1c.2g.20gb")]
    scenario.cards = [Card("h100-sxm-80gb", mig=True, instances=instances)]
    scenario.errors = [("nvmlDeviceGetName", NOT_SUPPORTED, -1)]
    scenario.write()
    (gpu,) = reader.gpus()
    assert [device.profile for device in gpu.instances] == ["3g.40gb", "1c.2g.20gb"]


def test_sms_are_counted_for_every_model_that_the_catalogue_counts(scenario: Scenario, reader: Nvml) -> None:
    models = [model for model in catalogue().gpus.values() if model.sms and model.vendor == "nvidia"]
    for first in range(0, len(models), 8):
        scenario.cards = [Card(model.id) for model in models[first : first + 8]]
        scenario.write()
        assert [gpu.sms for gpu in reader.gpus()] == [model.sms for model in models[first : first + 8]]


def test_mig_being_turned_on_shows_as_pending(scenario: Scenario, reader: Nvml) -> None:
    scenario.cards = [Card("a100-sxm-80gb", mig=False, settings={"pending": 1})]
    scenario.write()
    (gpu,) = reader.gpus()
    assert (gpu.mig, gpu.mig_pending) == (False, True)


def test_use_of_an_instance_comes_from_gpm_at_the_second_reading(scenario: Scenario, reader: Nvml) -> None:
    instances = [Mig(0, 7, "1g.10gb", used=2048, gpm=BUSY), Mig(3, 2, "3g.40gb", gpm={1: float("nan")})]
    scenario.cards = [Card("h100-sxm-80gb", mig=True, instances=instances, processes=[(11, 7, 0), (12, 2, 0)])]
    scenario.write()
    (gpu,) = reader.gpus()
    first = reader.usage(gpu)[0]
    assert (first.memory_used_mib, first.active, first.processes) == (2048, None, 1)
    second, other = reader.usage(gpu)
    assert (second.active, second.sm_active) == (0.8, 0.555)
    assert (second.tensor_active, second.memory_bandwidth) == (0.2, 0.33)
    assert (other.active, other.sm_active) == (None, None)


def test_samples_are_given_back_with_their_devices(scenario: Scenario, reader: Nvml) -> None:
    held = ctypes.CDLL("libnvidia-ml.so.1").nvml_test_samples
    before = held()
    scenario.cards = [Card("h100-sxm-80gb", mig=True, instances=[Mig(at, at + 7, "1g.10gb") for at in range(7)])]
    scenario.write()
    for _ in range(3):
        (gpu,) = reader.gpus()
        reader.usage(gpu)
    assert held() == before + 7
    scenario.cards[0].instances = scenario.cards[0].instances[:2]
    scenario.write()
    reader.gpus()
    assert held() == before + 2


def test_an_instance_before_hopper_has_memory_but_no_utilisation(scenario: Scenario, reader: Nvml) -> None:
    scenario.cards = [Card("a100-sxm-80gb", mig=True, instances=[Mig(0, 7, "1g.10gb", used=100)])]
    scenario.write()
    (gpu,) = reader.gpus()
    for _ in range(2):
        (usage,) = reader.usage(gpu)
    assert (usage.memory_used_mib, usage.active, usage.sm_active) == (100, None, None)


def test_a_whole_gpu_before_hopper_has_the_old_utilisation(scenario: Scenario, reader: Nvml) -> None:
    scenario.cards = [Card("a10g-24gb", settings={"util": 37})]
    scenario.write()
    (usage,) = reader.usage(reader.gpus()[0])
    assert (usage.active, usage.sm_active) == (0.37, None)


def test_what_a_card_does_not_give_is_none_and_not_zero(scenario: Scenario, reader: Nvml) -> None:
    scenario.cards = [Card("t4-16gb", settings={"retired": 1})]
    scenario.errors = [("nvmlDeviceGetComputeRunningProcesses_v3", NO_PERMISSION, -1)]
    scenario.write()
    (gpu,) = reader.gpus()
    (usage,) = reader.usage(gpu)
    (health,) = reader.health()
    assert (usage.active, usage.processes) == (None, None)
    assert (health.watts, health.recovery, health.remap_failed, health.remapped_rows) == (None, None, None, None)
    assert health.remap_pending is True
    assert health.celsius == 40


def test_health_of_a_gpu_is_read(scenario: Scenario, reader: Nvml) -> None:
    settings = {"uncorrectable": 3, "remap_pending": 1, "remap_failed": 1, "recovery": 4, "milliwatts": 612_500}
    scenario.cards = [Card("h100-sxm-80gb", mig=False, settings=settings | {"reasons": 0x40, "celsius": 91})]
    scenario.write()
    (health,) = reader.health()
    assert (health.remapped_rows, health.remap_pending, health.remap_failed) == (3, True, True)
    assert (health.recovery, health.watts, health.celsius) == ("drain-and-reset", 612.5, 91)
    assert (health.thermal_slowdown, health.power_brake) == (True, False)


def test_a_lost_gpu_hides_no_other_and_keeps_its_name(scenario: Scenario, reader: Nvml) -> None:
    scenario.cards = [Card("h100-sxm-80gb", mig=False) for _ in range(3)]
    scenario.write()
    before = reader.gpus()
    scenario.cards[1].settings = {"lost": 1}
    scenario.errors = [("nvmlDeviceGetUUID", RESET_REQUIRED, 2)]
    scenario.write()
    assert [gpu.index for gpu in reader.gpus()] == [0]
    assert reader.usage(before[1]) == []
    well, lost, to_reset = reader.health()
    assert [health.uuid for health in (well, lost, to_reset)] == [gpu_uuid(at) for at in range(3)]
    assert [(health.lost, health.reset_required) for health in (well, lost, to_reset)] == [
        (False, False),
        (True, False),
        (False, True),
    ]


def test_a_gpu_that_was_never_seen_is_lost_under_its_index(scenario: Scenario, reader: Nvml) -> None:
    scenario.errors = [("nvmlDeviceGetHandleByIndex_v2", UNKNOWN, 0)]
    scenario.write()
    (health,) = reader.health()
    assert (health.uuid, health.lost) == ("index-0", True)
    assert reader.gpus() == []


@pytest.mark.parametrize(
    ("code", "said", "restart"),
    [
        (DRIVER_NOT_LOADED, "the driver is not loaded", False),
        (VERSION_MISMATCH, "of different versions", True),
    ],
)
def test_a_driver_that_goes_is_said_and_found_again(
    scenario: Scenario, reader: Nvml, code: int, said: str, restart: bool
) -> None:
    assert len(reader.gpus()) == 1
    scenario.down = code
    scenario.write()
    for _ in range(2):  # while it is open, and when it is to be opened
        with pytest.raises(ReaderDown, match=said) as caught:
            reader.gpus()
        assert caught.value.restart is restart
    scenario.down = 0
    scenario.write()
    (gpu,) = reader.gpus()
    assert reader.usage(gpu)


def test_without_pynvml_the_reader_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ReaderDown, match="install nvidia-ml-py"):
        Nvml().gpus()


@pytest.mark.parametrize("model", WITH_MIG, ids=lambda model: model.id)
def test_what_is_captured_is_what_the_catalogue_says(scenario: Scenario, reader: Nvml, model: GpuModel) -> None:
    assert model.mig is not None
    scenario.cards = [Card(model.id, mig=True), Card(model.id, mig=False), Card("l4-24gb")]
    scenario.write()
    (captured,) = capture(reader)
    assert (captured.units, captured.compute_capability) == (model.mig.units, model.compute_capability)
    by_name = {profile.name: profile for profile in captured.profiles}
    assert by_name.keys() == model.mig.profiles.keys()
    for name, known in model.mig.profiles.items():
        read = by_name[name]
        assert (read.slices, read.starts, read.size) == (known.slices, known.starts, known.size)
        assert (read.max_count, read.number, read.sms) == (known.max_count, known.number, known.sms or 0)
        assert known.profile_id in (None, read.profile_id)
        assert read.memory_mib == memory_mib(model, known)
        engines = (read.copy_engines, read.decoders, read.encoders, read.jpeg_engines, read.ofa_engines)
        assert engines == known.engines.counts


def test_a_driver_without_names_of_profiles_still_gives_them(scenario: Scenario, reader: Nvml) -> None:
    scenario.cards = [Card("h100-sxm-80gb", mig=True)]
    scenario.errors = [("nvmlDeviceGetGpuInstanceProfileInfoV", FUNCTION_NOT_FOUND, -1)]
    scenario.write()
    model = catalogue().gpus["h100-sxm-80gb"]
    assert model.mig is not None
    assert {profile.name for profile in reader.profiles(reader.gpus()[0])} == set(model.mig.profiles)


@pytest.mark.parametrize(("code", "remedy"), [(NO_PERMISSION, "run as root"), (NOT_SUPPORTED, "turn MIG on")])
def test_placements_that_are_not_told_are_refused_with_a_remedy(
    scenario: Scenario, reader: Nvml, code: int, remedy: str
) -> None:
    scenario.errors = [("nvmlDeviceGetGpuInstancePossiblePlacements_v2", code, -1)]
    scenario.write()
    with pytest.raises(ReadingRefused, match=remedy):
        capture(reader)


@pytest.mark.parametrize(
    ("slices", "memory", "total", "name"),
    [
        (1, 4864, 40960, "1g.5gb"),
        (1, 9984, 81559, "1g.10gb"),
        (1, 16384, 143771, "1g.18gb"),
        (3, 71168, 143771, "3g.71gb"),
        (1, 22272, 183359, "1g.23gb"),
        (2, 5952, 24576, "2g.6gb"),
        (1, 24192, 97887, "1g.24gb"),
    ],
)
def test_profile_names_derive_as_nvidias_tools_do_it(slices: int, memory: int, total: int, name: str) -> None:
    assert profile_name(slices, memory, total) == name


def test_xids_arrive_with_their_gpu_and_instance(scenario: Scenario, events: NvmlEvents) -> None:
    scenario.cards = [Card("h100-sxm-80gb", mig=True, instances=[Mig(0, 7, "1g.10gb")]), Card("h100-sxm-80gb")]
    scenario.write()
    scenario.report(0, 8, 13)  # of before anybody listened
    assert events.events(0) == []
    scenario.report(0, 8, 94, gi=7)
    scenario.report(1, 8, 79)
    scenario.report(1, 0x4000)
    scenario.report(1, 0x4, 2)  # a change of clocks, which nobody asked for
    assert events.events(60) == [
        GpuEvent(gpu_uuid(0), EventKind.XID, 94, 7),
        GpuEvent(gpu_uuid(1), EventKind.XID, 79),
        GpuEvent(gpu_uuid(1), EventKind.UNAVAILABLE, 0),
    ]


def test_events_go_on_after_the_driver_came_back(scenario: Scenario, events: NvmlEvents) -> None:
    assert events.events(0) == []
    scenario.down = DRIVER_NOT_LOADED
    scenario.write()
    with pytest.raises(ReaderDown):
        events.events(0)
    scenario.down = 0
    scenario.write()
    assert events.events(0) == []
    scenario.report(0, 8, 79)
    assert [event.number for event in events.events(60)] == [79]


def test_an_error_while_waiting_is_no_endless_loop(scenario: Scenario, events: NvmlEvents) -> None:
    scenario.errors = [("nvmlEventSetWait_v2", UNKNOWN, -1)]
    scenario.write()
    with pytest.raises(ReaderDown, match="waiting for events failed"):
        events.events(60)
