"""Azure's scheduled events, played by a server on loopback."""

from __future__ import annotations

import json
from collections.abc import Iterator
from email.utils import formatdate

import pytest

from runtime.eviction.notice import Certainty, NoticeKind
from runtime.eviction.sources import SourceDown
from runtime.eviction.sources.azure import AzureSource
from tests.fakes.metadata import VM_NAME, FakeMetadata

NOW = 1_790_000_000.0
EVENT_ID = "602d9444-d2cd-49c7-8624-8643e7171297"


@pytest.fixture
def fake() -> Iterator[FakeMetadata]:
    with FakeMetadata() as server:
        yield server


def source(fake: FakeMetadata) -> AzureSource:
    return AzureSource(fake.url, now=lambda: NOW)


def event(**changes: object) -> dict[str, object]:
    return {
        "EventId": EVENT_ID,
        "EventType": "Preempt",
        "EventStatus": "Scheduled",
        "ResourceType": "VirtualMachine",
        "Resources": ["other-vm", "GPU-VM-1"],
        "NotBefore": formatdate(NOW + 29, usegmt=True),
        "Description": "",
        "EventSource": "Platform",
    } | changes


def test_a_preemption_names_its_deadline(fake: FakeMetadata) -> None:
    fake.events = [event()]
    azure = source(fake)
    (notice,) = azure.read()
    assert (notice.id, notice.kind, notice.deadline) == (f"azure-{EVENT_ID}", NoticeKind.SPOT, NOW + 29)
    assert azure.read() == (notice,)
    assert fake.count(f"GET {VM_NAME}") == 1


def test_a_clock_that_is_behind_gives_a_preemption_no_more_than_its_window(fake: FakeMetadata) -> None:
    fake.events = [event(NotBefore=formatdate(NOW + 900, usegmt=True))]
    assert source(fake).read()[0].deadline == NOW + 30


@pytest.mark.parametrize(
    ("type_", "kind", "certainty"),
    [
        ("Terminate", NoticeKind.SCALE_IN, Certainty.CERTAIN),
        ("Reboot", NoticeKind.MAINTENANCE, Certainty.CERTAIN),
        ("Redeploy", NoticeKind.MAINTENANCE, Certainty.CERTAIN),
        ("Freeze", NoticeKind.MAINTENANCE, Certainty.LIKELY),
        ("Levitate", NoticeKind.MAINTENANCE, Certainty.LIKELY),
    ],
)
def test_each_type_of_event(fake: FakeMetadata, type_: str, kind: NoticeKind, certainty: Certainty) -> None:
    fake.events = [event(EventType=type_, NotBefore=formatdate(NOW + 900, usegmt=True))]
    (notice,) = source(fake).read()
    assert (notice.kind, notice.certainty) == (kind, certainty)
    assert notice.deadline == (NOW + 900 if certainty is Certainty.CERTAIN else None)


def test_an_event_of_another_vm_and_one_that_is_cancelled_do_not_count(fake: FakeMetadata) -> None:
    fake.events = [event(Resources=["gpu-vm-10"]), event(EventStatus="Canceled"), event(Resources=[])]
    assert source(fake).read() == ()


@pytest.mark.parametrize(
    ("named", "machines"), [(["gpu-vm-1"], 1), (["GPU-VM-1", "gpu-vm-1"], 1), (["other-vm", "gpu-vm-1", "third"], 3)]
)
def test_a_notice_says_how_many_machines_its_event_names(fake: FakeMetadata, named: list[str], machines: int) -> None:
    fake.events = [event(Resources=named)]
    assert [notice.machines for notice in source(fake).read()] == [machines]


def test_an_event_that_began_has_no_time_left(fake: FakeMetadata) -> None:
    fake.events = [event(EventType="Reboot", EventStatus="Started", NotBefore="")]
    assert source(fake).read()[0].deadline == NOW


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        '{"Events": {}}',
        '{"Events": [7]}',
        json.dumps({"Events": [event(NotBefore="soon")]}),
        json.dumps({"Events": [event(NotBefore=None)]}),
        json.dumps({"Events": [event(EventId="a b\n")]}),
        json.dumps({"Events": [event(Resources="gpu-vm-1")]}),
    ],
)
def test_garbage_is_down(fake: FakeMetadata, text: str) -> None:
    fake.events_text = text or " "
    with pytest.raises(SourceDown):
        source(fake).read()


@pytest.mark.parametrize("name", ["", "\x00", "x" * 500])
def test_without_its_own_name_no_event_counts(fake: FakeMetadata, name: str) -> None:
    fake.vm, fake.events = name, [event(Resources=[name])]
    with pytest.raises(SourceDown, match="without its name"):
        source(fake).read()


def test_an_acknowledgement_names_the_event(fake: FakeMetadata) -> None:
    fake.events = [event()]
    azure = source(fake)
    azure.acknowledge(azure.read()[0])
    assert fake.acknowledged == [EVENT_ID]


def test_an_acknowledgement_that_is_refused_says_so_and_changes_nothing(fake: FakeMetadata) -> None:
    fake.events, fake.acknowledge_status = [event()], 400
    azure = source(fake)
    before = azure.read()
    with pytest.raises(SourceDown, match=f"azure-{EVENT_ID}: 400"):
        azure.acknowledge(before[0])
    assert azure.read() == before
