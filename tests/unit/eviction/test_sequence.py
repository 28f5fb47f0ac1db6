from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from runtime.eviction.marker import marker_from_json, marker_to_json
from runtime.eviction.notice import Certainty, Notice, NoticeKind
from runtime.eviction.sequence import plan, sent_on
from runtime.eviction.steps import Account, Ask, EvictPod, Mark, Step, Stop
from runtime.eviction.view import Answer, HeldWorkload, Marker, NodeView, Phase, PodView, View

NOW = 1_790_000_000.0


def notice(window: float | None = 120.0, kind: NoticeKind = NoticeKind.SPOT, **more: Any) -> Notice:
    certainty = Certainty.LIKELY if kind is NoticeKind.REBALANCE else Certainty.CERTAIN
    deadline = None if window is None else NOW + window
    return replace(Notice(f"{kind}-1", kind, "test", certainty, NOW, deadline), **more)


def node(name: str = "a", *notices: Notice, **more: Any) -> NodeView:
    return replace(NodeView(name, notices, present=True, ready=True, flavor="spot"), **more)


def pod(name: str = "p", on: str = "a", **more: Any) -> PodView:
    plain = PodView(
        uid=f"uid-{name}",
        namespace="team",
        name=name,
        node=on,
        gpus=8,
        workload="job",
        running=True,
        grace_seconds=30.0,
        asked="",
        answer=None,
        hook="",
        daemon=False,
        managed=True,
    )
    return replace(plain, **more)


def job(marker: Marker | None = None, **more: Any) -> HeldWorkload:
    plain = HeldWorkload(
        uid="uid-job",
        namespace="team",
        name="job",
        team="team",
        job_class="P1",
        gpus=8,
        active=True,
        holds_quota=True,
        finished=False,
        started_at=NOW - 3_600,
        marker=marker,
        last_checkpoint_at=NOW - 600,
        flavor="h100-aws-spot",
    )
    return replace(plain, **more)


def steps(
    jobs: Sequence[HeldWorkload], nodes: Sequence[NodeView], pods: Sequence[PodView], after: float = 0.0
) -> tuple[Step, ...]:
    return plan(View({node.name: node for node in nodes}, pods, jobs), NOW + after)


def only(found: tuple[Step, ...], kind: type[Any]) -> Any:
    assert [type(step) for step in found] == [kind]
    return found[0]


def asked(after: float = 0.0, **more: Any) -> Marker:
    """The marker that a first notice leaves."""
    step = only(steps([job()], [node("a", notice(**more))], [pod()], after), Ask)
    return marker_from_json(marker_to_json(step.marker))


def stopped() -> Marker:
    found = steps([job(asked())], [node("a", notice())], [pod(asked=asked().request)], 86)
    return marker_from_json(marker_to_json(only(found, Stop).marker))


def answer(marker: Marker, after: float = 10.0) -> Answer:
    return Answer(marker.request, 1_200, "s3://b/1200", NOW + after)


def test_pods_of_the_former_run_that_nobody_takes_away_do_not_stop_the_job_again() -> None:
    gone = [node("a", present=False, ready=False), node("b")]
    first = only(steps([job()], gone, [pod()]), Stop).marker
    again = job(sent_on(replace(first, gone_at=NOW + 1, accounted=True), NOW + 2))
    left_over = pod(leaving=True, running=False)
    assert steps([again], gone, [left_over, pod("new", "b")], 3) == ()
    assert only(steps([again], [*gone[:1], node("b", notice())], [left_over, pod("new", "b")], 3), Ask)


# The time to the deadline


def test_a_notice_of_two_minutes_first_asks_every_pod_and_leaves_them_their_grace_before_the_deadline() -> None:
    step = only(steps([job()], [node("a", notice()), node("b")], [pod("p"), pod("q", "b")]), Ask)
    assert [pod.name for pod in step.pods] == ["p", "q"]
    assert step.marker.phase is Phase.ASKED
    assert step.request.id == step.marker.request != ""
    assert step.request.deadline == NOW + 120 - 5 - 30


def test_nothing_is_written_again_while_the_answer_is_awaited() -> None:
    marker = asked()
    assert steps([job(marker)], [node("a", notice())], [pod(asked=marker.request)], 84) == ()


def test_a_job_that_never_answers_is_stopped_when_its_time_is_over() -> None:
    marker = asked()
    step = only(steps([job(marker)], [node("a", notice())], [pod(asked=marker.request)], 85), Stop)
    assert (step.marker.phase, step.marker.attempts, step.marker.flavor) == (Phase.STOPPED, 1, "h100-aws-spot")


def test_a_job_is_stopped_as_soon_as_all_its_pods_have_answered() -> None:
    marker = asked()
    said = pod("p", asked=marker.request, answer=answer(marker))
    silent = pod("q", "b", asked=marker.request)
    here = [node("a", notice()), node("b")]
    assert steps([job(marker)], here, [said, silent], 11) == ()
    step = only(steps([job(marker)], here, [said, replace(silent, answer=answer(marker, 11))], 12), Stop)
    assert (step.marker.step, step.marker.answer_at) == (1_200, NOW + 11)


def test_an_answer_to_an_older_request_stops_nothing() -> None:
    marker = asked()
    late = pod(asked=marker.request, answer=Answer("spot-interruption-7", 3, "", NOW + 1))
    assert steps([job(marker)], [node("a", notice())], [late], 2) == ()


@pytest.mark.parametrize(("window", "kind"), [(30, Stop), (44, Stop), (46, Ask), (0, Stop), (-300, Stop)])
def test_what_does_not_fit_before_the_deadline_is_left_out(window: float, kind: type[Step]) -> None:
    step = only(steps([job()], [node("a", notice(window))], [pod()]), kind)
    assert (step.marker.request == "") == (kind is Stop)


def test_a_pod_with_a_grace_period_longer_than_the_notice_gets_all_of_it() -> None:
    assert only(steps([job()], [node("a", notice())], [pod(grace_seconds=600)]), Stop)


def test_pods_that_need_no_grace_are_stopped_early_enough_for_another_agent_to_take_over() -> None:
    step = only(steps([job()], [node("a", notice())], [pod(grace_seconds=0.0)]), Ask)
    assert step.request.deadline == NOW + 120 - 5 - 10


def test_a_notice_without_a_deadline_gives_two_minutes() -> None:
    marker = asked(window=None, kind=NoticeKind.REPAIR)
    here = [node("a", notice(None, NoticeKind.REPAIR))]
    assert steps([job(marker)], here, [pod(asked=marker.request)], 119) == ()
    assert only(steps([job(marker)], here, [pod(asked=marker.request)], 120), Stop)


def test_maintenance_in_three_days_leaves_what_runs_alone_until_ten_minutes_before() -> None:
    here = [node("a", notice(3 * 86_400, NoticeKind.MAINTENANCE))]
    assert steps([job()], here, [pod()]) == ()
    assert only(steps([job()], here, [pod()], 3 * 86_400 - 600), Ask)


@pytest.mark.parametrize("behind", [1.0, 20.0])
def test_a_clock_that_is_behind_the_nodes_makes_the_deadline_earlier_and_keeps_it(behind: float) -> None:
    skewed = notice(120, noticed_at=NOW + behind)
    marker = only(steps([job()], [node("a", skewed)], [pod()]), Ask).marker
    assert marker.deadline == NOW + 120 - behind
    # When our clock has caught up with the stamp, nothing shows that it is wrong, and the marker still knows.
    assert steps([job(marker)], [node("a", skewed)], [pod(asked=marker.request)], behind + 1) == ()
    found = steps([job(marker)], [node("a", skewed)], [pod(asked=marker.request)], 85 - behind)
    assert only(found, Stop).marker.deadline == NOW + 120 - behind


def test_a_deadline_years_before_its_own_notice_is_nonsense_and_stops_nobody() -> None:
    loose = pod("loose", workload="")
    assert steps([job()], [node("a", notice(deadline=12.0))], [pod(), loose]) == ()


def test_a_clock_of_a_node_that_is_years_ahead_shortens_nothing() -> None:
    far = notice(120, noticed_at=NOW + 1e8)
    assert only(steps([job()], [node("a", far)], [pod()]), Ask).marker.deadline == NOW + 120
    assert steps([job()], [node("a", replace(far, deadline=NOW + 1e8 + 120))], [pod()]) == ()


# Warnings


def test_a_warning_asks_once_and_never_stops() -> None:
    here = [node("a", notice(None, NoticeKind.REBALANCE))]
    step = only(steps([job()], here, [pod()]), Ask)
    assert (step.marker.certain, step.request.certain, step.request.deadline) == (False, False, None)
    for after in (1, 600, 86_400):
        assert steps([job(step.marker)], here, [pod(asked=step.marker.request)], after) == ()


def test_the_answer_to_a_warning_is_noted_and_the_job_runs_on() -> None:
    here, marker = [node("a", notice(None, NoticeKind.REBALANCE))], asked(window=None, kind=NoticeKind.REBALANCE)
    said = pod(asked=marker.request, answer=answer(marker))
    step = only(steps([job(marker)], here, [said], 20), Mark)
    assert (step.marker.phase, step.marker.step) == (Phase.ASKED, 1_200)
    assert steps([job(step.marker)], here, [said], 21) == ()


@pytest.mark.parametrize(
    ("answered", "after", "kind", "anew"),
    [(False, 30, Mark, False), (False, 61, Ask, True), (True, 13, Stop, False), (True, 300, Ask, True)],
)
def test_a_warning_that_comes_true_is_asked_about_again_unless_the_first_request_is_fresh(
    answered: bool, after: float, kind: type[Step], anew: bool
) -> None:
    marker = asked(after=10.0 if answered and after < 20 else 0.0, window=None, kind=NoticeKind.REBALANCE)
    there = pod(asked=marker.request, answer=answer(marker) if answered else None)
    both = node("a", notice(None, NoticeKind.REBALANCE), notice(after + 120))
    step = only(steps([job(marker)], [both], [there], after), kind)
    assert step.marker.certain
    assert (step.marker.request != marker.request) == anew
    assert step.marker.deadline == NOW + after + 120


def test_a_certain_notice_that_leaves_a_warning_behind_asks_nobody_again() -> None:
    marker = asked()
    step = only(
        steps([job(marker)], [node("a", notice(None, NoticeKind.REBALANCE))], [pod(asked=marker.request)], 5), Mark
    )
    assert (step.marker.certain, step.marker.deadline, step.marker.request) == (False, None, marker.request)


# Nodes that go, and others who drain


def test_a_node_that_is_gone_stops_its_job_at_once() -> None:
    step = only(steps([job()], [node("a", present=False, ready=False)], [pod()]), Stop)
    assert step.marker.kind is NoticeKind.LOSS


def test_a_node_that_nobody_knows_is_not_a_node_that_is_gone() -> None:
    assert steps([job()], [], [pod()]) == ()


def test_a_node_that_was_under_notice_and_is_not_known_any_more_is_gone() -> None:
    marker = asked()
    assert only(steps([job(marker)], [], [pod(asked=marker.request)], 3), Stop)


def test_a_job_whose_pods_were_made_anew_elsewhere_before_the_stop_is_left_alone() -> None:
    marker = asked()
    assert only(steps([job(marker)], [node("b")], [pod("new", "b")], 3), Mark).marker is None


def test_an_unreachable_node_stops_its_job_at_once() -> None:
    assert only(steps([job()], [node("a", notice(None, NoticeKind.LOSS), ready=False)], [pod()]), Stop)


def test_a_node_that_stops_answering_during_its_notice_leaves_no_time() -> None:
    marker = asked()
    assert only(steps([job(marker)], [node("a", notice(), ready=False)], [pod(asked=marker.request)], 3), Stop)


def test_a_node_that_is_not_ready_and_has_no_notice_is_no_reason() -> None:
    assert steps([job()], [node("a", ready=False)], [pod()]) == ()
    likely = notice(None, NoticeKind.REBALANCE)
    assert only(steps([job()], [node("a", likely, ready=False)], [pod()]), Ask)


def test_karpenter_evicts_at_once_so_the_job_is_stopped_first_unless_its_pods_are_shielded() -> None:
    here = [node("a", notice(None, NoticeKind.DISRUPTION))]
    assert only(steps([job()], here, [pod()]), Stop)
    assert only(steps([job()], here, [pod(shielded=True)]), Ask)


def test_a_pod_that_somebody_else_evicts_during_the_notice_stops_the_job_at_once() -> None:
    marker = asked()
    leaving = pod(asked=marker.request, leaving=True)
    assert only(steps([job(marker)], [node("a", notice())], [leaving], 2), Stop)


def test_a_job_with_no_running_pod_yet_has_nothing_to_save() -> None:
    assert only(steps([job(started_at=None)], [node("a", notice())], [pod(running=False)]), Stop)


def test_pods_that_have_ended_keep_nobody() -> None:
    assert steps([job()], [node("a", notice())], [pod(ended=True, running=False)]) == ()


# One gang, many nodes


def test_six_of_sixteen_nodes_with_different_deadlines_make_one_marker_with_the_earliest() -> None:
    windows = {f"n{number:02}": 120.0 - number for number in range(6)}
    nodes = [node(name, notice(window, id=f"spot-{name}")) for name, window in windows.items()]
    nodes += [node(f"n{number:02}") for number in range(6, 16)]
    pods = [pod(f"p{number:02}", f"n{number:02}") for number in range(16)]
    step = only(steps([job()], nodes, pods), Ask)
    assert len(step.pods) == 16
    assert step.marker.nodes == tuple(sorted(windows))
    assert (step.marker.deadline, step.marker.notice) == (NOW + 115, "spot-n05")


def test_a_second_hit_while_asked_moves_the_deadline_forward_under_the_same_request() -> None:
    marker = asked()
    nodes = [node("a", notice()), node("b", notice(70, id="spot-2"))]
    pods = [pod("p", asked=marker.request), pod("q", "b", asked=marker.request)]
    step = only(steps([job(marker)], nodes, pods, 5), Mark)
    assert (step.marker.nodes, step.marker.deadline, step.marker.request) == (("a", "b"), NOW + 70, marker.request)
    assert only(steps([job(step.marker)], nodes, pods, 35), Stop).marker.attempts == 1


def test_a_second_hit_after_the_stop_changes_nothing() -> None:
    found = steps(
        [job(stopped(), active=False)], [node("a", notice()), node("b", notice(30))], [pod(), pod("q", "b")], 90
    )
    assert found == ()


def test_a_second_hit_after_the_job_went_on_is_a_second_eviction() -> None:
    done = replace(sent_on(stopped(), NOW + 95), gone_at=NOW + 94, lost_gpu_seconds=80.0, accounted=True)
    here = [node("b", notice(400, id="spot-2"))]
    marker = only(steps([job(done)], here, [pod("new", "b")], 200), Ask).marker
    assert (marker.attempts, marker.lost_gpu_seconds, marker.stopped_at) == (1, 0.0, None)
    there = pod("new", "b", asked=marker.request)
    assert only(steps([job(marker)], here, [there], 365), Stop).marker.attempts == 2


def test_a_loss_that_could_not_be_accounted_is_owed_with_the_next() -> None:
    owed = replace(sent_on(stopped(), NOW + 95), gone_at=NOW + 94, lost_gpu_seconds=80.0)
    here = [node("b", notice(10, id="spot-2"))]
    second = only(steps([job(owed)], here, [pod("new", "b")]), Stop).marker
    settled = only(steps([job(second, active=False, holds_quota=False)], here, [], 5), Mark).marker
    assert (settled.lost_gpu_seconds, settled.owed_gpu_seconds) == (8 * 600, 80.0)
    account = only(steps([job(settled, active=False, holds_quota=False)], here, [], 6), Account)
    assert (account.lost_gpu_seconds, account.owed_gpu_seconds, account.marker.attempts) == (8 * 600, 80.0, 2)


def test_a_job_that_hops_back_to_a_node_under_the_same_notice_is_moved_again() -> None:
    done = replace(sent_on(stopped(), NOW + 90), gone_at=NOW + 89, accounted=True)
    assert only(steps([job(done)], [node("a", notice())], [pod("new")], 91), Stop).marker.attempts == 2


def test_a_job_that_hops_back_under_a_notice_without_deadline_does_not_go_round_and_round() -> None:
    marker = asked(window=None, kind=NoticeKind.REPAIR)
    done = replace(marker, phase=Phase.DONE, attempts=1, stopped_at=NOW + 20, accounted=True)
    here = [node("a", notice(None, NoticeKind.REPAIR))]
    assert steps([job(done)], here, [pod("new")], 60) == ()
    assert only(steps([job(done)], here, [pod("new")], 620), Ask)


# Who answers


def test_pods_with_a_hook_answer_for_the_whole_job() -> None:
    marker = asked()
    leader = pod("leader", asked=marker.request, hook="http://10.0.0.1:8080/", answer=answer(marker))
    worker = pod("worker", "b", asked=marker.request)
    assert only(steps([job(marker)], [node("a", notice()), node("b")], [leader, worker], 12), Stop)


def test_a_hook_is_called_until_it_answers_because_a_restarted_agent_knows_of_no_call() -> None:
    marker = asked()
    leader = pod("leader", asked=marker.request, hook="http://10.0.0.1:8080/")
    step = only(steps([job(marker)], [node("a", notice())], [leader], 12), Ask)
    assert (step.pods, step.marker) == ((leader,), marker)


def test_a_launcher_without_gpus_is_asked_and_not_waited_for() -> None:
    marker = asked()
    worker, launcher = pod("worker", asked=marker.request, answer=answer(marker)), pod("launcher", "b", gpus=0)
    assert only(steps([job(marker)], [node("a", notice()), node("b")], [worker, launcher], 12), Stop)


def test_an_ask_that_was_cut_off_goes_on_with_the_same_request() -> None:
    marker = asked()
    told, untold = pod("p", asked=marker.request), pod("q", "b")
    step = only(steps([job(marker)], [node("a", notice()), node("b")], [told, untold], 4), Ask)
    assert (step.pods, step.marker) == ((untold,), marker)


# Called off, or overtaken


def test_a_notice_that_is_called_off_before_the_stop_leaves_nothing() -> None:
    assert only(steps([job(asked())], [node("a")], [pod()], 5), Mark).marker is None


def test_a_notice_that_is_called_off_keeps_the_record_of_former_losses() -> None:
    former = replace(asked(), attempts=2, accounted=True)
    step = only(steps([job(former)], [node("a")], [pod()], 5), Mark)
    assert (step.marker.phase, step.marker.attempts) == (Phase.DONE, 2)
    assert steps([job(step.marker)], [node("a")], [pod()], 6) == ()


def test_a_notice_that_is_called_off_after_the_stop_changes_nothing() -> None:
    step = only(steps([job(stopped(), active=False, holds_quota=False)], [node("a")], [], 90), Mark)
    assert (step.marker.phase, step.marker.gone_at) == (Phase.STOPPED, NOW + 90)


def test_a_marker_whose_notice_nobody_knows_is_crossed_out() -> None:
    stray = Marker("who-knows", NoticeKind.UPGRADE, ("z",), Phase.ASKED, request="r", asked_at=NOW - 5)
    assert only(steps([job(stray)], [node("a")], [pod()]), Mark).marker is None


@pytest.mark.parametrize("marker", [None, "asked", "done"])
def test_a_job_that_its_owner_stopped_is_never_touched(marker: str | None) -> None:
    mine = {None: None, "asked": asked(), "done": replace(stopped(), phase=Phase.DONE, accounted=True)}[marker]
    found = steps([job(mine, active=False)], [node("a", notice())], [pod()], 5)
    assert not [step for step in found if isinstance(step, Stop | Ask)]
    if marker == "asked":
        assert only(found, Mark).marker is None
    else:
        assert found == ()


def test_a_job_that_kueue_took_the_quota_from_meanwhile_is_kueues() -> None:
    found = steps([job(asked(), holds_quota=False)], [node("a", notice())], [pod(leaving=True)], 5)
    assert only(found, Mark).marker is None


def test_a_job_without_quota_is_nothing_to_evict() -> None:
    assert steps([job(holds_quota=False)], [node("a", notice())], [pod()]) == ()


@pytest.mark.parametrize("marker", [None, "asked", "stopped"])
def test_a_job_that_finished_meanwhile_is_done_with(marker: str | None) -> None:
    mine = {None: None, "asked": asked(), "stopped": stopped()}[marker]
    assert steps([job(mine, finished=True, active=marker != "stopped")], [node("a", notice())], [pod()], 90) == ()


def test_a_loss_is_accounted_even_if_the_job_has_finished_since() -> None:
    owed = replace(stopped(), phase=Phase.DONE, gone_at=NOW + 90, lost_gpu_seconds=7.0)
    account = only(steps([job(owed, finished=True)], [], [], 9_000), Account)
    assert (account.lost_gpu_seconds, account.marker.accounted) == (7.0, True)


def test_a_job_that_somebody_else_let_go_on_is_theirs_and_its_loss_stays() -> None:
    step = only(steps([job(stopped(), active=True, holds_quota=False)], [node("a")], [], 100), Mark)
    assert (step.marker.phase, step.marker.attempts) == (Phase.DONE, 1)
    assert step.marker.lost_gpu_seconds == 8 * (600 + 86)


# After the stop


def test_a_stopped_job_waits_for_its_quota_and_its_pods() -> None:
    here = [node("a", notice())]
    assert steps([job(stopped(), active=False)], here, [], 88) == ()
    assert steps([job(stopped(), active=False, holds_quota=False)], here, [pod(leaving=True)], 88) == ()
    assert only(steps([job(stopped(), active=False, holds_quota=False)], here, [], 89), Mark).marker.gone_at == NOW + 89


@pytest.mark.parametrize("where", [node("a", ready=False), node("a", present=False), None])
def test_pods_on_a_node_that_does_not_answer_any_more_are_not_waited_for(where: NodeView | None) -> None:
    nodes = [] if where is None else [where]
    found = steps([job(stopped(), active=False, holds_quota=False)], nodes, [pod(leaving=True)], 89)
    assert only(found, Mark).marker.gone_at == NOW + 89


def test_a_pod_that_never_goes_does_not_keep_its_job_for_ever() -> None:
    hung, here = pod("q", "b", leaving=True), [node("b")]
    assert steps([job(stopped(), active=False, holds_quota=False)], here, [hung], 86 + 329) == ()
    assert only(steps([job(stopped(), active=False, holds_quota=False)], here, [hung], 86 + 330), Mark)


def test_last_words_after_the_stop_count() -> None:
    words = pod(leaving=True, answer=Answer("", 1_300, "s3://b/1300", NOW + 88))
    here = [node("a", notice())]
    noted = only(steps([job(stopped(), active=False)], here, [words], 89), Mark).marker
    assert (noted.step, noted.gone_at) == (1_300, None)
    assert steps([job(noted, active=False)], here, [words], 90) == ()
    settled = only(steps([job(noted, active=False, holds_quota=False)], here, [], 91), Mark).marker
    assert settled.lost_gpu_seconds == 0.0


def test_what_is_lost_counts_from_the_last_checkpoint_that_anybody_knows_of() -> None:
    def lost(**known: Any) -> float:
        marker = only(steps([job(**known)], [node("a", notice(0))], [pod()]), Stop).marker
        gone = steps(
            [job(marker, active=False, holds_quota=False, started_at=None, last_checkpoint_at=None)], [], [], 3
        )
        found: float = only(gone, Mark).marker.lost_gpu_seconds
        return found

    assert lost() == 8 * 600
    assert lost(last_checkpoint_at=None) == 8 * 3_600
    assert lost(last_checkpoint_at=NOW - 9_000) == 8 * 3_600
    assert lost(last_checkpoint_at=NOW + 50) == 0.0
    assert lost(last_checkpoint_at=None, started_at=None) == 0.0


def test_a_loss_is_accounted_once_it_is_known_and_only_once() -> None:
    gone = replace(stopped(), gone_at=NOW + 90, lost_gpu_seconds=16.0)
    step = only(steps([job(gone, active=False, holds_quota=False)], [], [], 91), Account)
    assert (step.lost_gpu_seconds, step.marker) == (16.0, replace(gone, accounted=True))
    assert steps([job(step.marker, active=False, holds_quota=False)], [], [], 92) == ()


def test_a_marker_of_an_older_version_that_knows_no_times_still_goes_on() -> None:
    bare = Marker("", NoticeKind.SPOT, (), Phase.STOPPED)
    found = steps([job(bare, active=False, holds_quota=False)], [], [], 5)
    assert only(found, Mark).marker.gone_at == NOW + 5
    asking = Marker("spot-interruption-1", NoticeKind.SPOT, (), Phase.ASKED)
    assert only(steps([job(asking)], [node("a", notice())], [pod()], 5), Ask).marker.request != ""


# Pods that Kueue does not own


def test_gpu_pods_of_ours_that_kueue_does_not_own_are_evicted() -> None:
    step = only(steps([], [node("a", notice())], [pod(workload="")]), EvictPod)
    assert step.pod.uid == "uid-p"


@pytest.mark.parametrize(
    "other",
    [{"gpus": 0}, {"daemon": True}, {"managed": False}, {"leaving": True}, {"ended": True}, {"workload": "else"}],
)
def test_other_pods_are_left_to_whoever_drains(other: dict[str, Any]) -> None:
    assert steps([], [node("a", notice())], [pod(**{"workload": "", **other})]) == ()


@pytest.mark.parametrize(
    "where",
    [
        node("a", notice(None, NoticeKind.REBALANCE)),
        node("a", notice(None, NoticeKind.DISRUPTION)),
        node("a", notice(None, NoticeKind.LOSS)),
        node("a", notice(), ready=False),
        node("a", notice(), present=False),
        node("a", notice(86_400, NoticeKind.MAINTENANCE)),
        node("a"),
    ],
)
def test_no_pod_is_evicted_on_a_doubtful_notice_or_where_somebody_else_drains(where: NodeView) -> None:
    assert steps([], [where], [pod(workload="")]) == ()


def test_a_shielded_pod_is_ours_to_evict_because_karpenter_does_not() -> None:
    assert only(
        steps([], [node("a", notice(None, NoticeKind.DISRUPTION))], [pod(workload="", shielded=True)]), EvictPod
    )


# Notices about one job


def test_a_notice_about_one_job_moves_it_once_wherever_it_runs() -> None:
    move = notice(None, NoticeKind.MOVE)
    marker = only(steps([job(notices=(move,))], [node("a")], [pod()]), Ask).marker
    said = pod(asked=marker.request, answer=answer(marker))
    halted = only(steps([job(marker, notices=(move,))], [node("a")], [said], 11), Stop).marker
    done = replace(sent_on(halted, NOW + 15), accounted=True)
    assert steps([job(done, notices=(move,))], [node("a")], [pod("new")], 3_600) == ()


def test_what_two_sources_say_of_one_event_gives_the_same_plan_in_any_order() -> None:
    said = (notice(None, NoticeKind.MOVE), notice(None, NoticeKind.UPGRADE, id="move-1"))
    here = [node("a", *said)]
    assert steps([job(notices=said)], here, [pod()]) == tuple(
        replace(step, workload=job(notices=said))
        for step in steps([job(notices=said[::-1])], [node("a", *said[::-1])], [pod()])
        if isinstance(step, Ask)
    )


def test_stops_come_first_and_the_earliest_deadline_among_them() -> None:
    jobs = [replace(job(), uid=f"uid-{name}", name=name) for name in "wxyz"]
    nodes = [node("w", notice(400)), node("x", notice(20)), node("y", notice(10)), node("z", notice(120))]
    pods = [pod(name, name, workload=name) for name in "wxyz"]
    found = steps(jobs, nodes, [*pods, pod("loose", "w", workload="")])
    assert [(type(step), step.workload.name) for step in found if not isinstance(step, EvictPod)] == [
        (Stop, "y"),
        (Stop, "x"),
        (Ask, "z"),
        (Ask, "w"),
    ]
    assert isinstance(found[-1], EvictPod)
