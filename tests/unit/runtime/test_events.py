from __future__ import annotations

import re
from typing import Any

import pytest

from runtime import events
from runtime.events import Event
from stacks.kinds import JOB_KINDS, JobKind
from stacks.labels import AGENT_NAME, SYSTEM_NAMESPACE
from tests.builders import NOON, a_job

NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
"""A DNS subdomain, which the name of every object is."""


def body(event: Event) -> dict[str, Any]:
    return events.body(event, "pod-1", NOON)


@pytest.mark.parametrize("kind", JOB_KINDS, ids=lambda kind: kind.kind)
def test_an_event_stands_on_the_object_that_the_user_submitted_whatever_its_kind(kind: JobKind) -> None:
    made = body(events.released(a_job(owner_kind=kind.kind, owner_version=kind.api_version), "because"))
    assert (made["regarding"]["apiVersion"], made["regarding"]["kind"]) == (kind.api_version, kind.kind)
    assert (made["related"]["kind"], made["related"]["uid"]) == ("Workload", "job-1")
    assert (made["reason"], made["note"], made["type"]) == ("ReleasedToBurst", "because", "Normal")


def test_what_needs_somebody_to_act_is_a_warning() -> None:
    warnings = [
        make(a_job(), "because")
        for make in (
            events.held_by_budget,
            events.never_fits,
            events.project_refused,
            events.data_refused,
            events.taken_back,
            events.bad_expected_runtime,
        )
    ]
    assert {event.type for event in warnings} == {"Warning"}
    assert len({event.reason for event in warnings}) == len(warnings)


def test_a_change_of_target_is_another_event_for_each_target() -> None:
    spot, on_demand = (events.retargeted(a_job(), target, "because") for target in ("spot", "on-demand"))
    assert spot != on_demand
    assert spot == events.retargeted(a_job(), "spot", "because")


def test_money_of_a_team_is_told_of_in_its_namespace_and_that_of_the_fleet_at_the_agent() -> None:
    team = body(events.budget_threshold(events.on_namespace("vision"), "team vision/day/2026-11-21/80", "80 %"))
    assert team["metadata"]["namespace"] == team["regarding"]["namespace"] == "vision"
    assert (team["regarding"]["kind"], team["regarding"]["name"]) == ("Namespace", "vision")
    fleet = body(events.top_up_recorded(events.on_config_map(SYSTEM_NAMESPACE), "t-1", "100 USD more"))
    assert (fleet["regarding"]["kind"], fleet["regarding"]["name"]) == ("ConfigMap", AGENT_NAME)
    assert "related" not in fleet
    assert "uid" not in fleet["regarding"]


def test_the_same_threshold_has_the_same_name_and_another_one_another() -> None:
    subject = events.on_namespace("vision")
    names = [
        body(events.budget_threshold(subject, threshold, sentence))["metadata"]["name"]
        for threshold, sentence in (("day/80", "at noon"), ("day/80", "later"), ("day/100", "at noon"))
    ]
    assert names[0] == names[1] != names[2]
    assert all(NAME.fullmatch(name) for name in names)


@pytest.mark.parametrize("name", ["j" * 253, "a" * 199 + ".b" * 20, "a" * 199 + "-b" * 20])
def test_a_long_name_still_gives_a_valid_one(name: str) -> None:
    generated = body(events.released(a_job(owner_name=name), "because"))["metadata"]["generateName"]
    assert NAME.fullmatch(generated + "x7k2p")
    assert len(generated) < 253 - 5


@pytest.mark.parametrize("sentence", ["é" * 2_000, "x" * 100_000, "\ud800" * 600, ""])
def test_a_note_fits_whatever_it_says(sentence: str) -> None:
    assert len(body(events.cleared(a_job(), sentence))["note"].encode()) <= 1_024
