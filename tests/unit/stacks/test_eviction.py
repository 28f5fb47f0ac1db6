"""The section `eviction`: what it takes, what it refuses, and whether it reaches a node."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from runtime.eviction.sources.azure import PREEMPT_WINDOW_SECONDS
from runtime.eviction.timing import DEFAULT_TERMS
from stacks.agent_config import agent_config
from stacks.eviction import SPOT_NOTICES, STOPPING, Eviction
from stacks.fleet import Fleet
from stacks.rules.advice import notices_reach_a_node, saving_fits_the_notice
from tests.unit.stacks.rules.cases import LENT, REMOVED, all_on_gke, changed

URL = "http://broker.acme.internal/notices"
CLOUD_ONLY = {"pools.rack": REMOVED, "teams.vision.quota": {}, "teams.nlp.quota": {}}


def warnings(**changes: Any) -> list[tuple[str, str]]:
    found = notices_reach_a_node(Fleet.model_validate(changed(changes)))
    return [(".".join(map(str, one.path)), one.reason) for one in found]


def test_everything_may_be_left_out() -> None:
    assert Eviction() == Eviction(
        node_agent=True, notices_url=None, gcp_notice=timedelta(seconds=30), on_demand_after=3
    )


@pytest.mark.parametrize("notice", ["0s", "30s", "120s", "2m"])
def test_the_notices_of_google_cloud_are_taken_in_any_spelling(notice: str) -> None:
    assert Eviction.model_validate({"gcp_notice": notice}).gcp_notice.total_seconds() in (0, 30, 120)


@pytest.mark.parametrize("notice", ["29s", "31s", "1h", "-30s", 30, None, True, ""])
def test_no_other_notice_is_taken(notice: object) -> None:
    with pytest.raises(ValidationError):
        Eviction.model_validate({"gcp_notice": notice})


@pytest.mark.parametrize("url", [URL, "https://10.0.0.7:8443", "http://[fd00::1]:8080/a/b", "http://broker/"])
def test_an_address_over_http_is_taken(url: str) -> None:
    assert Eviction.model_validate({"notices_url": url}).notices_url == url


@pytest.mark.parametrize(
    "url",
    ["file:///run/notices", "broker:8080", "http://", "http:///notices", "http://user@broker/", "http://u:p@broker/",
     "http://broker/a?token=b", "http://broker/#a", "http://broker/a b", "http://broker/\n", "HTTP://broker/", "",
     "http://broker/" + "a" * 2_048, 7, ["http://broker/"]],
)  # fmt: skip
def test_credentials_other_schemes_and_half_addresses_are_refused(url: object) -> None:
    with pytest.raises(ValidationError):
        Eviction.model_validate({"notices_url": url})


@pytest.mark.parametrize("losses", [-1, 101, 1.5, "3", True])
def test_losses_are_a_small_whole_number(losses: object) -> None:
    with pytest.raises(ValidationError):
        Eviction.model_validate({"on_demand_after": losses})


def test_the_agent_is_told_after_how_many_losses_a_job_is_offered_on_demand() -> None:
    fleet = Fleet.model_validate(changed({"eviction": {"on_demand_after": 5}}))
    assert agent_config(fleet).eviction.on_demand_after == 5


def test_an_address_that_racks_or_brokers_can_ask_earns_no_warning() -> None:
    assert warnings(eviction={"notices_url": URL}) == []
    assert (
        warnings(
            **CLOUD_ONLY, **{"pools.lent": LENT, "burst.order": ["spot", "od", "lent"]}, eviction={"notices_url": URL}
        )
        == []
    )


def test_an_address_that_nobody_asks_earns_one() -> None:
    assert warnings(**CLOUD_ONLY, eviction={"notices_url": URL}) == [
        ("eviction.notices_url", "is asked by nobody, as no pool is on-prem or a broker's")
    ]
    assert warnings(eviction={"notices_url": URL, "node_agent": False}) == [
        ("eviction.notices_url", "is asked by nobody, as node_agent is false")
    ]


def test_azure_is_a_broker_with_a_metadata_service() -> None:
    azure = {"pools.lent": {**LENT, "provider": "azure"}, "burst.order": ["spot", "od", "lent"]}
    assert warnings(**CLOUD_ONLY, **azure, eviction={"notices_url": URL})


def too_long(**changes: Any) -> list[str]:
    return [one.reason for one in saving_fits_the_notice(Fleet.model_validate(changed(changes)))]


@pytest.mark.parametrize(
    ("notice", "grace", "words"),
    [
        ("30s", "15s", []),
        ("30s", "16s", ["the 15s that a job on h100-gcp-spot has", "its notice is 30s"]),
        ("120s", "105s", []),
        ("0s", "1s", ["the 0s that a job"]),
    ],
)
def test_a_save_that_no_notice_leaves_time_for_earns_one(notice: str, grace: str, words: list[str]) -> None:
    said = too_long(**all_on_gke(market="spot"), **{"eviction.gcp_notice": notice, "spot.checkpoint.grace": grace})
    assert len(said) == bool(words)
    assert all(word in said[0] for word in words)


def test_a_save_is_not_compared_where_nobody_said_how_long_it_takes_or_no_notice_is_known() -> None:
    assert too_long(**all_on_gke(market="spot")) == []
    lent = {"pools.spot": {**LENT, "market": "spot"}, "pools.od": REMOVED, "burst.order": ["spot"]}
    assert too_long(**lent, **{"spot.checkpoint.grace": "120s"}) == []


def test_the_shortest_notice_counts_and_the_times_are_those_of_the_agent() -> None:
    azure = {"pools.lent": {**LENT, "provider": "azure", "market": "spot"}, "burst.order": ["spot", "od", "lent"]}
    [said] = too_long(**azure, **{"spot.checkpoint.grace": "90s"})
    assert "azure-spot" in said
    assert SPOT_NOTICES["azure"].total_seconds() == PREEMPT_WINDOW_SECONDS
    assert STOPPING.total_seconds() == DEFAULT_TERMS.reserve_seconds + DEFAULT_TERMS.least_end_seconds
