from __future__ import annotations

from typing import Any

import pytest

from runtime.routing.local import LocalRoom
from runtime.routing.snapshot import Job, Stage
from stacks.agent_config import AgentConfig
from tests.builders import LOCAL, NOON, a_config, a_flavor, a_job, a_team


def teams(vision: dict[str, Any] | None = None, nlp: dict[str, Any] | None = None) -> AgentConfig:
    return a_config(teams={"vision": a_team("vision", **(vision or {})), "nlp": a_team("nlp", **(nlp or {}))})


def holding(gpus: int, team: str = "vision", uid: str = "holder") -> Job:
    return a_job(uid, team=team, gpus=gpus, stage=Stage.RUNNING_LOCAL, flavor=LOCAL)


def room(config: AgentConfig, *jobs: Job, capacity: dict[str, int] | None = None) -> LocalRoom:
    local = LocalRoom(config, capacity or {})
    for job in jobs:
        local.count(job)
    return local


@pytest.mark.parametrize(
    ("config", "held", "fits"),
    [
        (teams(), [], 16),
        (teams(), [holding(8)], 8),
        (teams(), [holding(6, "nlp")], 10),
        (teams(vision={"borrow": {LOCAL: 2}}), [], 10),
        (teams(vision={"borrow": {LOCAL: 0}}), [], 8),
        (teams(nlp={"lend": {LOCAL: 3}}), [], 11),
        (teams(nlp={"lend": {LOCAL: 0}}), [], 8),
        # What another team borrowed comes back as soon as it is asked for.
        (teams(), [holding(16, "nlp")], 8),
        (teams(vision={"quota": {}}), [holding(8, "nlp")], 0),
    ],
)
def test_room_is_ones_own_quota_and_what_others_lend(config: AgentConfig, held: list[Job], fits: int) -> None:
    local = room(config, *held)
    assert local.fits(a_job(gpus=fits))
    assert not local.fits(a_job(gpus=fits + 1))


def test_nodes_that_are_gone_give_no_room() -> None:
    local = room(teams(), capacity={LOCAL: 4})
    assert (local.fits(a_job(gpus=4)), local.fits(a_job(gpus=5)), local.ever_fits(a_job(gpus=5))) == (
        True,
        False,
        False,
    )


def test_a_busy_flavor_fits_nobody_now_but_may_later() -> None:
    local = room(teams(), holding(8), holding(8, "nlp"))
    assert (local.fits(a_job(gpus=1)), local.ever_fits(a_job(gpus=16))) == (False, True)


@pytest.mark.parametrize("job", [{"gpus": 17}, {"gpus": 16, "pod_gpus": 16}, {"gpu": "b200"}, {"team": "gone"}])
def test_what_no_local_flavor_could_hold_never_fits(job: dict[str, Any]) -> None:
    local = room(teams())
    assert (local.ever_fits(a_job(**job)), local.fits(a_job(**job))) == (False, False)


def test_a_job_of_one_model_does_not_fit_another() -> None:
    config = a_config(flavors={LOCAL: a_flavor("onprem", 16, "0", gpu="a100")}, burst_order=())
    assert room(config).fits(a_job(gpu="a100"))
    assert not room(config).fits(a_job(gpu="h100"))


def test_the_end_of_a_local_job_is_noticed() -> None:
    ended = a_job("ended", stage=Stage.FINISHED, flavor=LOCAL, released_quota_at=NOON - 5)
    local = room(teams(), ended)
    assert (local.freed_since(NOON - 6), local.freed_since(NOON)) == (True, False)
    assert local.fits(a_job(gpus=16))
