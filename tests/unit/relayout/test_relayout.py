"""Changes of a node's MIG layout, step by step."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.kube import NODES
from runtime.relayout.record import LONGEST_RECORD, Phase, Record, record_from_json
from stacks.labels import AGENT_DRAIN_TAINT, DRAIN_TAINT, MIG_STATE_LABEL
from stacks.layouts import MIG_CONFIG_LABEL
from tests.builders import NOON, a_config
from tests.fakes.cluster import Denied
from tests.unit.relayout.yard import NEVER, Yard, configured


def two_nodes(wanted: str = "b", **changes: Any) -> Yard:
    """Two nodes with layout a, which are to have another."""
    yard = Yard(configured({"pool": wanted}, **changes))
    for name in ("n1", "n2"):
        yard.add(name, "pool", "pool-a")
    return yard


def taints(yard: Yard, name: str) -> list[str]:
    return [taint["key"] for taint in yard.cluster.get(NODES, name)["spec"].get("taints") or ()]


def until(yard: Yard, name: str, phase: str, *, finish: bool = True) -> None:
    """Let time pass until a node is so far."""
    for _ in range(40):
        if yard.phase(name) == phase:
            return
        yard.tick(6)
        yard.jobs_leave()
        yard.mig_managers(finish=finish)
    pytest.fail(f"{name} is {yard.phase(name)}, not {phase}")


# The way to the new layout


def test_nodes_get_the_new_layout_one_after_the_other_and_are_given_back() -> None:
    yard = two_nodes()
    yard.put_pod("train", "n1")
    yard.tick()
    assert (yard.phase("n1"), yard.phase("n2")) == ("draining", "none")
    assert taints(yard, "n1") == [AGENT_DRAIN_TAINT]
    yard.tick(60)
    assert yard.node("n1").label == "pool-a", "a pod is still there"
    yard.jobs_leave()
    yard.tick()
    assert (yard.phase("n1"), yard.node("n1").label, yard.node("n1").state) == ("applying", "pool-b", "")
    yard.mig_managers()
    yard.mig_managers()
    yard.tick()
    assert taints(yard, "n1") == [AGENT_DRAIN_TAINT], "it has to be right for a while"
    yard.tick(6)
    assert (yard.phase("n1"), taints(yard, "n1")) == ("none", [])
    yard.run()
    assert {yard.node(name).label for name in ("n1", "n2")} == {"pool-b"}
    assert [event.reason for event in yard.told] == ["LayoutChanged", "LayoutChanged"]
    assert not yard.alarms()
    assert not yard.agent.under_way


def test_the_label_waits_until_every_kubelet_knows_the_new_layout() -> None:
    yard = two_nodes(replay_speed=1)
    yard.tick()
    yard.tick(118)
    assert yard.phase("n1") == "draining"
    yard.tick(3)
    assert yard.phase("n1") == "applying"


def test_nothing_is_written_where_every_node_has_its_layout() -> None:
    yard = two_nodes("a")
    yard.run(5)
    assert not yard.cluster.writes()
    yard.config = a_config()
    yard.tick()
    assert not yard.cluster.writes()


def test_a_node_without_a_layout_gets_one_and_would_go_back_to_whole_gpus() -> None:
    yard = Yard(configured({"pool": "b"}))
    yard.add("n1", "pool")
    until(yard, "n1", "draining")
    record = yard.record("n1")
    assert record is not None
    assert record.good == "all-disabled"
    yard.broken.add(("n1", "pool-b"))
    until(yard, "n1", "refused")
    assert yard.node("n1").label == "all-disabled"


def test_what_has_begun_goes_on_when_the_window_closes_and_nothing_begins_outside() -> None:
    yard = two_nodes()
    yard.tick()
    yard.config = configured({"pool": "b"}, window=NEVER)
    yard.run()
    assert (yard.node("n1").label, yard.node("n2").label) == ("pool-b", "pool-a")


def test_as_many_nodes_as_allowed_change_at_once_over_all_pools() -> None:
    yard = Yard(configured({"p": "b", "q": "b"}, most=3))
    for name in ("n1", "n2", "n3"):
        yard.add(f"p-{name}", "p", "p-a")
        yard.add(f"q-{name}", "q", "q-a")
    yard.tick()
    assert sum(node.tainted for node in yard.seen()) == 3
    yard.run(60)
    assert {node.label for node in yard.seen()} == {"p-b", "q-b"}


def test_a_cache_that_is_behind_lets_no_node_too_many_begin() -> None:
    yard = two_nodes()
    stale = yard.seen()
    yard.tick(seen=stale)
    yard.tick(seen=stale)
    assert [yard.phase(name) for name in ("n1", "n2")] == ["draining", "none"]


@pytest.mark.parametrize(
    "change",
    [
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": DRAIN_TAINT, "value": "maintenance.1", "effect": "NoSchedule"}]}},
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
    ],
    ids=["cordoned", "drained", "not-ready"],
)
def test_a_node_that_others_work_on_is_left_alone(change: dict[str, Any]) -> None:
    yard = Yard(configured({"pool": "b"}))
    yard.add("n1", "pool", "pool-a", **change)
    yard.run(3)
    assert yard.phase("n1") == "none"


@pytest.mark.parametrize("state", ["pending", "rebooting"])
def test_a_node_whose_mig_manager_works_does_not_begin(state: str) -> None:
    yard = two_nodes()
    for name in ("n1", "n2"):
        yard.label(name, MIG_STATE_LABEL, state)
    yard.tick()
    assert not yard.cluster.writes()


def test_a_pool_whose_nodes_are_replaced_is_left_alone() -> None:
    config = configured({"pool": "b"})
    assert config.gpu_layouts is not None
    pools = {"pool": config.gpu_layouts.pools["pool"].model_copy(update={"mode_change": "replace"})}
    yard = two_nodes()
    yard.config = config.model_copy(update={"gpu_layouts": config.gpu_layouts.model_copy(update={"pools": pools})})
    yard.run(3)
    assert not yard.cluster.writes()


def test_a_dry_run_writes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    yard = two_nodes(dry_run=True)
    with caplog.at_level("INFO"):
        yard.run(3)
    assert not yard.cluster.writes()
    assert [record.message for record in caplog.records] == ["would change a layout"]


def test_who_does_not_lead_writes_nothing() -> None:
    yard = two_nodes()
    yard.leads = False
    yard.run(3)
    assert not yard.cluster.writes()


# What the MIG manager and the device plugin say


def test_reboots_are_waited_for() -> None:
    yard = two_nodes()
    until(yard, "n1", "applying", finish=False)
    yard.label("n1", MIG_STATE_LABEL, "rebooting")
    yard.tick(2_000)
    assert yard.phase("n1") == "applying"


def test_a_success_of_the_former_layout_is_not_taken_for_one_of_the_new() -> None:
    yard = two_nodes()
    yard.deaf.add("n1")
    until(yard, "n1", "applying")
    yard.tick(60)
    assert yard.phase("n1") == "applying"
    assert yard.node("n1").state == ""


def test_a_success_that_does_not_last_is_none() -> None:
    yard = two_nodes()
    until(yard, "n1", "applying")
    yard.mig_managers()
    yard.tick()
    record = yard.record("n1")
    assert record is not None
    assert record.steady_since is not None
    yard.label("n1", MIG_STATE_LABEL, "pending")
    yard.tick(60)
    record = yard.record("n1")
    assert record is not None
    assert (record.phase, record.steady_since) == (Phase.APPLYING, None)


@pytest.mark.parametrize("way", ["failed", "silent", "wrong"])
def test_what_fails_goes_back_and_is_not_tried_again_until_another_is_wanted(way: str) -> None:
    yard = two_nodes()
    if way == "failed":
        yard.broken.add(("n1", "pool-b"))
    until(yard, "n1", "applying", finish=way == "failed")
    if way == "wrong":
        yard.applied["n1"] = "pool-b"
        yard.label("n1", MIG_STATE_LABEL, "success")
    if way != "failed":
        yard.tick(3_000)
    until(yard, "n1", "refused")
    assert (yard.node("n1").label, taints(yard, "n1")) == ("pool-a", [])
    yard.run()
    assert yard.alarms() == {"n1": "layout-failed"}
    assert yard.phase("n2") == "none", "no other node of the pool tries it"
    assert [event.reason for event in yard.told] == ["LayoutFailed"]
    yard.config = configured({"pool": "c"})
    yard.run(60)
    assert {node.label for node in yard.seen()} == {"pool-c"}
    assert not yard.alarms()


def test_where_the_way_back_fails_too_the_node_stays_out_until_it_is_right() -> None:
    yard = two_nodes()
    yard.broken |= {("n1", "pool-b"), ("n1", "pool-a")}
    until(yard, "n1", "stuck")
    yard.run()
    assert (taints(yard, "n1"), yard.alarms()) == ([AGENT_DRAIN_TAINT], {"n1": "layout-stuck"})
    assert yard.phase("n2") == "none"
    yard.offer("n1", "pool-a")
    yard.label("n1", MIG_STATE_LABEL, "success")
    until(yard, "n1", "refused")
    yard.tick()
    assert (taints(yard, "n1"), yard.alarms()) == ([], {"n1": "layout-failed"})


def test_a_stuck_node_tries_another_layout() -> None:
    yard = two_nodes()
    yard.broken |= {("n1", "pool-b"), ("n1", "pool-a")}
    until(yard, "n1", "stuck")
    yard.config = configured({"pool": "c"})
    yard.run(60)
    assert {node.label for node in yard.seen()} == {"pool-c"}
    assert not yard.alarms()


def test_a_stuck_node_that_somebody_gives_back_is_in_service() -> None:
    yard = two_nodes()
    yard.broken |= {("n1", "pool-b"), ("n1", "pool-a")}
    until(yard, "n1", "stuck")
    yard.untaint("n1")
    yard.tick()
    assert yard.phase("n1") == "refused"


# What people do meanwhile


def test_a_node_that_cannot_be_emptied_is_given_back_and_tried_again_later() -> None:
    yard = two_nodes()
    yard.put_pod("stays", "n1")
    yard.tick()
    yard.tick(2_000)
    yard.tick()
    assert (yard.phase("n1"), yard.node("n1").label, taints(yard, "n1")) == ("held", "pool-a", [])
    assert yard.alarms() == {"n1": "layout-held"}
    yard.tick()
    assert yard.phase("n2") == "draining", "the next one has its turn"
    yard.run()
    yard.tick(4_000)
    yard.tick()
    assert yard.phase("n1") == "draining"


def test_who_takes_the_taint_back_before_the_change_calls_it_off() -> None:
    yard = two_nodes()
    yard.put_pod("train", "n1")
    yard.tick()
    yard.untaint("n1")
    yard.tick()
    assert (yard.phase("n1"), yard.pods_on("n1")) == ("held", ["train"])


def test_who_takes_the_taint_away_during_the_change_does_not_end_it() -> None:
    yard = two_nodes()
    until(yard, "n1", "applying", finish=False)
    yard.untaint("n1")
    yard.tick()
    assert taints(yard, "n1") == [AGENT_DRAIN_TAINT]


def test_a_label_that_somebody_else_sets_is_not_fought_for() -> None:
    yard = two_nodes()
    until(yard, "n1", "applying", finish=False)
    yard.label("n1", MIG_CONFIG_LABEL, "theirs")
    yard.tick()
    assert (yard.phase("n1"), yard.node("n1").label) == ("returning", "pool-a")
    yard.label("n1", MIG_CONFIG_LABEL, "theirs")
    yard.tick()
    assert (yard.phase("n1"), yard.node("n1").label) == ("stuck", "theirs")


def test_a_change_that_is_not_wanted_any_more_is_called_off_before_and_ended_after_the_label() -> None:
    yard = two_nodes()
    yard.tick()
    yard.config = configured({"pool": "a"})
    yard.tick()
    assert (yard.phase("n1"), taints(yard, "n1")) == ("none", [])
    yard.config = configured({"pool": "b"})
    until(yard, "n1", "applying")
    yard.config = configured({"pool": "a"})
    yard.run()
    assert (yard.node("n1").label, yard.phase("n1")) == ("pool-a", "none")
    assert not yard.alarms()


def test_a_pool_that_has_no_layout_any_more_leaves_no_node_out_of_service_without_a_word() -> None:
    yard = two_nodes()
    yard.tick()
    yard.config = a_config()
    yard.tick()
    assert (yard.phase("n1"), taints(yard, "n1")) == ("none", [])
    yard.config = configured({"pool": "b"})
    until(yard, "n1", "applying", finish=False)
    yard.config = a_config()
    yard.tick()
    assert yard.alarms() == {"n1": "layout-stuck"}
    yard.run()
    assert (yard.phase("n1"), taints(yard, "n1")) == ("none", [])


# What is remembered


@pytest.mark.parametrize("phase", list(Phase))
def test_a_record_reads_back_as_it_was_written(phase: Phase) -> None:
    record = Record(phase=phase, target="pool-b", devices={"nvidia.com/gpu": 7}, good="a", since=NOON, reason="why")
    assert record_from_json(record.to_json()) == record


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "null", "nonsense", "{" * 9_000, '{"phase":"done","target":"a","devices":{},"since":1}'),
        '{"phase":"stuck","target":"a b","devices":{},"since":1}',
        '{"phase":"stuck","target":"a","devices":{},"since":NaN}',
        '{"phase":"stuck","target":"a","devices":{},"since":1e300}',
        '{"phase":"stuck","target":"a","devices":{},"since":1,"more":1}',
        '{"version":2,"phase":"stuck","target":"a","devices":{},"since":1}',
        '{"phase":"stuck","target":"a","devices":{"x":-1},"since":1}',
    ],
)
def test_a_record_that_is_not_as_it_should_be_is_not_read(text: str) -> None:
    assert len(text) < LONGEST_RECORD or text.startswith("{{")
    with pytest.raises(ValueError, match=r"\w"):
        record_from_json(text)


def test_what_cannot_be_read_counts_as_nothing_and_is_told() -> None:
    yard = two_nodes()
    yard.annotate("n2", "garbage")
    yard.tick()
    assert yard.alarms() == {"n2": "layout-unreadable"}
    assert yard.phase("n1") == "none", "a node that nobody understands speaks against another"
    yard.run(60)
    assert {node.label for node in yard.seen()} == {"pool-b"}
    assert not yard.alarms()


def test_a_node_whose_record_was_lost_stays_out_until_it_is_right() -> None:
    yard = two_nodes()
    until(yard, "n1", "applying", finish=False)
    yard.annotate("n1", "garbage")
    yard.deaf.add("n1")
    yard.tick(60)
    assert taints(yard, "n1") == [AGENT_DRAIN_TAINT]
    assert yard.agent.alarms
    yard.deaf.clear()
    yard.run(60)
    assert {node.label for node in yard.seen()} == {"pool-b"}
    assert not yard.alarms()


def test_a_write_that_is_refused_is_tried_again_and_keeps_no_other_node_waiting() -> None:
    yard = Yard(configured({"p": "b", "q": "b"}, most=2))
    yard.add("n1", "p", "p-a")
    yard.add("n2", "q", "q-a")

    def refuses(method: str, path: str, body: Any) -> None:
        if method == "PATCH" and path.endswith("/n1"):
            raise Denied(403)

    yard.cluster.rule = refuses
    yard.run()
    assert (yard.node("n1").label, yard.node("n2").label) == ("p-a", "q-b")


@pytest.mark.parametrize("lost", [True, False], ids=["after-the-write", "before-the-write"])
@pytest.mark.parametrize("fails", [True, False], ids=["that-fails", "that-works"])
def test_an_agent_that_dies_at_any_write_is_followed_by_one_that_goes_on(lost: bool, fails: bool) -> None:
    for death in range(8):
        yard = two_nodes()
        yard.put_pod("train", "n1")
        if fails:
            yard.broken.add(("n1", "pool-b"))
        for number in range(20):
            if number == death:
                (yard.lose_the_next_answer if lost else yard.refuse_the_next_write)()
                yard.tick(6)
                yard.restart()
            yard.run(1)
        yard.run(20)
        expected = {"n1": "pool-a", "n2": "pool-a"} if fails else {"n1": "pool-b", "n2": "pool-b"}
        assert {node.name: node.label for node in yard.seen()} == expected, death
        assert not any(node.tainted for node in yard.seen())
        assert yard.alarms() == ({"n1": "layout-failed"} if fails else {})
