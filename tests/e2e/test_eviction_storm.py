"""Storms of notices on the real control plane: no job is lost, each goes on once for each stop, in its place.

Single nodes one after the other, six within seconds, a gang of sixteen pods of which several go and that is hit again,
an agent that is killed, a node that is told twice, notices that are taken back. What is true at the end is read from
the API server's audit log, from the ledger, and from what the jobs themselves know of their checkpoints.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from runtime.eviction.view import Phase
from tests.e2e.aftermath import all_is_well
from tests.e2e.conftest import FLEET_FILE, Stack, condition, wait_for
from tests.e2e.evicting import SPOT, phase, pods
from tests.e2e.storm import NODE_GPUS, STORM, STORM_FLEET_FILE, THRIFTY, Storm, submit
from tests.e2e.storming import Cloud, Trainers, training

SEED: Final = 6
GANG_PODS: Final = 16


@pytest.fixture(scope="module")
def wide_cloud(stack: Stack) -> Iterator[Stack]:
    stack.reshape(STORM_FLEET_FILE)
    yield stack
    stack.reshape(FLEET_FILE)


@pytest.fixture
def raise_storm(wide_cloud: Stack) -> Iterator[Callable[[int], Storm]]:
    """Starts a storm over a gang and so many single jobs: half of them honour the contract, some must save money."""
    begun: list[Storm] = []

    def start(singles: int) -> Storm:
        gang = submit(wide_cloud, STORM, GANG_PODS)
        names = [submit(wide_cloud, STORM, 1) for _ in range(singles)]
        pairs = [submit(wide_cloud, STORM, 2) for _ in range(2)]
        thrifty = {submit(wide_cloud, THRIFTY, 1) for _ in range(3)}
        honest = {gang, pairs[0], *names[: singles // 2]}
        deaf = {pairs[1], *names[singles // 2 :]}
        storm = Storm(wide_cloud, Cloud(wide_cloud.kube), random.Random(SEED), gang, honest, deaf, thrifty)
        begun.append(storm)
        storm.begin()
        storm.audit_from = wide_cloud.plane.state.audit_log.stat().st_size
        return storm

    yield start
    for storm in begun:
        storm.cloud.restore()
    for team in (STORM, THRIFTY):
        wide_cloud.clear(team)


def test_a_dozen_evictions_of_every_sort_lose_no_job(raise_storm: Callable[[int], Storm]) -> None:
    storm = raise_storm(8)
    trainers = Trainers(storm.stack.kube, storm.honest, SEED)
    began = time.time()
    with training(trainers):
        storm.threaten()
        storm.strike_gang(3)
        storm.strike_many()
        storm.strike_without_agent(2)
        storm.strike_twice()
        storm.strike_many(4)
        storm.cloud.calm()
        storm.settle()
    assert all_is_well(storm, trainers, began) >= 12


@pytest.mark.long
def test_a_hundred_evictions_in_sequence_and_in_bulk_lose_no_job(raise_storm: Callable[[int], Storm]) -> None:
    storm = raise_storm(20)
    trainers = Trainers(storm.stack.kube, storm.honest, SEED)
    began = time.time()
    with training(trainers):
        for _ in range(12):
            storm.strike_one()
        number = 0
        while storm.stops() < 100:
            assert time.time() < began + 420, f"only {storm.stops()} evictions in seven minutes"
            storm.strike_many()
            strikes = (storm.strike_gang, storm.strike_without_agent, storm.strike_twice, storm.threaten)
            strikes[number % len(strikes)]()
            storm.cloud.wait(6)
            number += 1
        storm.cloud.calm()
        storm.settle()
    assert all_is_well(storm, trainers, began) >= 100


def test_a_job_whose_node_went_runs_again_before_a_younger_one_that_waited_for_room(wide_cloud: Stack) -> None:
    stack, cloud = wide_cloud, Cloud(wide_cloud.kube)
    spot, on_demand = (stack.fleet.pools[name].gpus // NODE_GPUS for name in ("spot", "od"))
    try:
        _, filler = submit(stack, STORM, spot - 1)
        wait_for("the filler", lambda: stack.flavor(STORM, filler) == SPOT)
        _, older = submit(stack, STORM, 1, end_seconds=4)
        wait_for("the older on the last node", lambda: stack.flavor(STORM, older) == SPOT)
        wait_for("its pods to be ready", lambda: condition(stack.workload(STORM, older), "PodsReady"))
        _, beside = submit(stack, STORM, on_demand)
        wait_for("the filler of what else there is", lambda: stack.flavor(STORM, beside))
        _, younger = submit(stack, STORM, 1)
        wait_for("the younger to wait", lambda: stack.verdict(STORM, younger).get("code") == "cloud-full")
        [pod] = pods(stack, STORM, older)
        cloud.say(pod["spec"]["nodeName"], 20)

        wait_for("the stop", lambda: phase(stack, STORM, older) is Phase.STOPPED)
        wait_for("the older to be let in again", lambda: _is_back(stack, older))

        assert stack.flavor(STORM, younger) is None
        cloud.calm()
        wait_for("it to run", lambda: condition(stack.workload(STORM, older), "PodsReady"))
        assert stack.flavor(STORM, younger) is None
    finally:
        cloud.restore()
        stack.clear(STORM)


def _is_back(stack: Stack, job: str) -> bool:
    return phase(stack, STORM, job) is Phase.DONE and stack.flavor(STORM, job) == SPOT
