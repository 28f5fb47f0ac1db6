"""Storms of notices over a simulated fleet, with an agent that forgets, drops, repeats and is away."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.eviction.marker import marker_from_json
from runtime.eviction.notice import NoticeKind
from runtime.eviction.sequence import plan
from runtime.eviction.steps import Ask, EvictPod, Stop
from runtime.eviction.view import Phase
from tests.unit.eviction.simulator import RESERVE, START, Chaos, SimJob, World, shuffled

ROUGH = Chaos(drop=0.05, repeat=0.1, cut=0.1, outage_seconds=12.0)
HONEST = ("hook", "file")


def fleet() -> list[SimJob]:
    ways = ("hook", "file", "sigterm", "deaf")
    return [
        SimJob("gang", 16, save_seconds=8.0),
        *(SimJob(f"team-{number}", 3, ways[number % 4], save_seconds=2.0 + number) for number in range(4)),
        *(SimJob(f"one-{number}", 1, ways[number % 4], grace=15.0 * (number % 3)) for number in range(8)),
    ]


def stops(world: World) -> int:
    return sum(job.stops for job in world.jobs.values())


def living(world: World) -> list[str]:
    return [name for name, node in world.nodes.items() if node.died_at is None and not node.notices]


def storm(world: World, evictions: int, *, meddling: bool = False) -> None:
    """Six nodes a minute, with notices of different length, until so many jobs were evicted; then rest."""
    rng = random.Random(world.rng.random())
    while stops(world) < evictions:
        assert world.now < START + 400 * evictions, "the fleet has come to a standstill"
        for name in rng.sample(living(world), min(6, len(living(world)))):
            world.run(rng.choice((0, 1, 3)))
            if name in world.nodes:
                begin(world, name, rng, meddling)
        if meddling:
            meddle(world, rng)
        world.run(rng.choice((5, 40, 60)))
        relieve(world, rng)
    world.settle()


def relieve(world: World, rng: random.Random) -> None:
    """Let warnings come true or pass, and maintenance end."""
    for name, node in world.nodes.items():
        kinds = {notice.kind for notice in node.notices if world.now - notice.noticed_at > 60}
        if node.died_at is not None or node.dies_at is not None:
            continue
        if NoticeKind.REBALANCE in kinds and rng.random() < 0.5:
            world.notify(name, 120.0)
        elif kinds and all(notice.deadline is None or notice.deadline < world.now for notice in node.notices):
            world.cancel(name)


def begin(world: World, name: str, rng: random.Random, sudden: bool) -> None:
    roll = rng.random()
    if roll < 0.15:
        world.notify(name, 0.0, NoticeKind.REBALANCE)
    elif roll < 0.25:
        world.notify(name, 300.0, NoticeKind.MAINTENANCE, kills=False)
    elif roll < 0.3 and sudden:
        world.nodes[name].dies_at = world.now
    else:
        world.notify(name, rng.choice((30.0, 60.0, 120.0)))


def meddle(world: World, rng: random.Random) -> None:
    """Owners, Kueue and providers do what they like."""
    job = rng.choice(list(world.jobs.values()))
    rng.choice((world.stop_by_owner, world.preempt, world.start_by_owner, world.start_by_owner))(job)
    for name in list(world.nodes):
        node = world.nodes[name]
        if node.died_at is None and (any(n.kind is not NoticeKind.SPOT for n in node.notices) or rng.random() < 0.1):
            world.cancel(name)


def assert_nobody_was_lost(world: World) -> None:
    for job in world.jobs.values():
        assert job.needless_failures == 0, f"{job.name} failed though there was time"
        assert job.active != job.owner_stopped, f"{job.name} is not as its owner left it"
        marker = None if job.marker is None else marker_from_json(job.marker)
        if job.stops:
            assert marker is not None, job.name
            assert (marker.phase, marker.attempts, marker.accounted) == (Phase.DONE, job.stops, True)
            assert world.ledger.keys() >= {(f"uid-{job.name}", job.stops)}


@pytest.mark.parametrize("seed", [1, 2])
def test_in_a_storm_no_job_is_lost_and_each_goes_on_exactly_once_for_each_eviction(seed: int) -> None:
    world = World(seed, nodes=40, jobs=fleet(), chaos=ROUGH, tick=1.0)
    storm(world, 60)
    assert_nobody_was_lost(world)
    for job in world.jobs.values():
        assert (job.stops, job.failures) == (job.requeues, 0)
        assert max((count for uid, count in world.ledger if uid == f"uid-{job.name}"), default=0) == job.stops


def test_owners_kueue_and_sudden_losses_in_the_middle_lose_no_job_either() -> None:
    world = World(3, nodes=40, jobs=fleet(), chaos=ROUGH, tick=1.0)
    storm(world, 60, meddling=True)
    assert_nobody_was_lost(world)
    assert all(job.requeues <= job.stops for job in world.jobs.values())


def test_jobs_that_honour_the_contract_lose_at_most_the_reserve_for_each_eviction_with_a_notice_of_a_minute() -> None:
    world = World(4, nodes=40, jobs=fleet(), chaos=Chaos(drop=0.02, repeat=0.1), tick=1.0)
    rng = random.Random(4)
    while stops(world) < 40:
        for name in rng.sample(living(world), min(6, len(living(world)))):
            world.notify(name, rng.choice((60.0, 120.0)))
        world.run(150)
    world.settle()
    assert_nobody_was_lost(world)
    honest = [
        job
        for job in world.jobs.values()
        if job.way in HONEST or (job.way == "sigterm" and job.grace >= job.save_seconds)
    ]
    in_time = [(job, loss) for job in honest for loss in job.losses if loss[2]]
    assert len(in_time) > 15
    for job, (truly, told, _) in in_time:
        assert truly <= RESERVE * job.size, job
        assert told <= RESERVE * job.size, job


def test_what_is_told_of_a_loss_is_never_less_than_it_was() -> None:
    world = World(5, nodes=40, jobs=fleet(), chaos=Chaos(drop=0.05), tick=1.0)
    storm(world, 40)
    for job in world.jobs.values():
        for truly, told, _ in job.losses:
            # Kueue lets a job run on for a moment after the stop that is told of.
            assert told >= truly - 3 * job.size, job


def test_a_gang_of_sixteen_of_which_six_get_notices_is_asked_once_and_stopped_once() -> None:
    world = World(6, nodes=20, jobs=[SimJob("gang", 16, save_seconds=8.0)])
    world.run(10)
    gang = world.jobs["gang"]
    for number, name in enumerate(sorted({pod.node for pod in gang.pods})[:6]):
        world.run(1)
        world.notify(name, 120.0 - 10 * number)
    world.run(60)
    assert (gang.stops, gang.requeues, gang.failures) == (1, 1, 0)
    world.settle()
    assert len(world.ledger) == 1


def test_a_node_that_dies_without_a_word_costs_no_failure_where_it_is_seen_before_its_pods_count_as_lost() -> None:
    world = World(7, nodes=20, jobs=[SimJob("gang", 16, "deaf"), SimJob("one", 1, "deaf")])
    world.run(10)
    for job in world.jobs.values():
        world.nodes[job.pods[0].node].dies_at = world.now
    world.run(120)
    assert [(job.stops, job.requeues, job.failures) for job in world.jobs.values()] == [(1, 1, 0), (1, 1, 0)]


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_plan_is_the_same_twice_in_any_order_and_leaves_nothing_to_do_once_it_is_carried_out(
    seed: int, order: int
) -> None:
    world = World(seed, nodes=12, jobs=[SimJob("gang", 8), *(SimJob(f"one-{n}", 1, "file") for n in range(4))])
    world.run(5)
    rng = random.Random(seed)
    for name in rng.sample(sorted(world.nodes), 4):
        begin(world, name, rng, False)
        world.run(rng.choice((0, 2, 20)))
    view = world.view()
    found = plan(view, world.now)
    assert plan(view, world.now) == found
    assert plan(shuffled(view, order), world.now) == found
    for step in found:
        world.carry_out(step)
    again = plan(world.view(), world.now)
    # A hook is called until it answers; else nothing is said twice.
    assert [step for step in again if isinstance(step, Stop | EvictPod)] == []
    assert all(isinstance(step, Ask) and step.marker == step.workload.marker for step in again if isinstance(step, Ask))
    for step in again:
        writes = world.writes
        world.carry_out(step)
        assert not isinstance(step, Ask) or world.writes == writes


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 14))
def test_a_thousand_evictions_lose_no_job(seed: int) -> None:
    world = World(seed, nodes=40, jobs=fleet(), chaos=ROUGH)
    storm(world, 1_000, meddling=seed % 2 == 1)
    assert_nobody_was_lost(world)


@pytest.mark.long
def test_a_thousand_evictions_one_after_the_other_lose_no_job() -> None:
    world = World(20, nodes=6, jobs=[SimJob("one", 1), SimJob("pair", 2, "file")], chaos=ROUGH)
    while stops(world) < 1_000:
        busy = [pod.node for job in world.jobs.values() for pod in job.pods if not world.nodes[pod.node].notices]
        if busy:
            world.notify(busy[0], world.rng.choice((30.0, 120.0)))
        world.run(60)
    world.settle()
    assert_nobody_was_lost(world)
    assert all(job.stops == job.requeues for job in world.jobs.values())
