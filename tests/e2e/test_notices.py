"""From what a provider says on a machine to a job that runs elsewhere, with every part of ours a real one.

The node agents, the agent, Kueue, the API server and our admission policies are those that are deployed; machines are
pretended, and so are metadata services (tests.fakes.metadata, truthful to the providers' documents; AWS' own mock is
asked in tests/e2e/test_aws_mock.py).

The end-to-end scripts of aws-node-termination-handler (28 in test/e2e), and what stands for them here:

    spot-interruption-test, -events-on              JOBS[aws-spot-terminate], and test_people_are_told...
    spot-interruption-test-host-networking-off      test_a_metadata_service_that_cannot_be_believed...[hop-limit]
    imds-v2-test                                    the same [no-tokens], and test_a_token_that_expires...
    maintenance-event-test                          JOBS[aws-reboot], JOBS[aws-maintenance]
    maintenance-event-cancellation-test             test_a_maintenance_that_is_called_off...
    maintenance-event-reboot-test                   test_a_node_agent_that_is_killed..., its last part
    asg-lifecycle-imds-test                         JOBS[aws-scale-in]
    rebalance-recommendation-test, cordon-only-test JOBS[aws-rebalance]: no new pods, and the job runs on
    rebalance-recommendation-drain-test             test_a_warning_that_becomes_certain...: a warning alone stops nothing
    rebalance-recommendation-sqs-node-not-found-test
                                                    test_a_node_that_is_deleted_and_comes_back...
    emit-events-test                                test_people_are_told...
    prometheus-metrics-test                         test_the_metrics_of_a_node_agent...

Without a meaning here:

- spot-interruption-dry-run-test, maintenance-event-dry-run-test, rebalance-recommendation-dry-run-test: the node agent
  has no dry run. The agent has one (`agent.dry_run`), shown in tests/unit/runtime/test_evictions.py.
- asg-launch-lifecycle-sqs-test, asg-lifecycle-sqs-test, asg-lifecycle-sqs-heartbeat-test, ec2-state-change-sqs-test,
  prometheus-metrics-sqs-test, rebalance-recommendation-sqs-test, scheduled-change-event-sqs-test,
  spot-interruption-sqs-test: no queue is read. What Karpenter or the handler itself reads from one shows on Nodes, which
  tests/unit/eviction/test_nodes.py tries.
- webhook-test, webhook-secret-test, webhook-http-proxy-test: no webhook is called. People are told by events and
  alerts, and jobs by requests that they answer.
"""

from __future__ import annotations

import json
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest

from runtime.eviction.notice import NoticeKind
from runtime.eviction.timing import DEFAULT_TERMS
from runtime.eviction.view import Marker, Phase
from stacks.labels import (
    CORDONED_ANNOTATION,
    EVICTING_TAINT,
    EVICTION_ANNOTATION,
    NOTICES_ANNOTATION,
)
from tests.e2e import evicting, machines, yard
from tests.e2e.conftest import KUEUE, Stack, wait_for
from tests.e2e.evicting import MERGE
from tests.e2e.machines import AWS, AZURE, BROKERED, FILE, GCP, Machine, Say
from tests.e2e.sayings import (
    aws_says,
    azure,
    both,
    broker,
    file,
    gcp,
    half_written,
    rebalance,
    scale_in,
    scheduled,
    set_up,
    spot,
)
from tests.e2e.test_chaos import patiently
from tests.e2e.yard import OTHERS_TAINT, TEAM, Yard
from tests.fakes import metadata, nodeagent

STEP = 1200
"""The step at which a job that answers has saved."""

A_WHILE_SECONDS = 4.0
"""How long it is watched that something does not happen which would else take a second."""

SEVERAL_LOOKS_SECONDS = 1.5
"""In which files and spot notices are read three times, and everything else at least once."""

SPARE_JOBS = 4
FLEET_NODES, BARE_NODES = 52, 24


@dataclass(frozen=True)
class Case:
    """What is said of the machine of one job, and what becomes of the job.

    `asked` jobs have the time to save, `answers` says that they do; one that `stays` is asked, and not stopped.
    """

    name: str
    arguments: tuple[str, ...]
    say: Say
    kind: NoticeKind
    asked: bool = True
    answers: bool = False
    stays: bool = False
    grace: int = 5
    beside: tuple[NoticeKind, ...] = ()


JOBS = [
    Case("aws-spot-terminate", AWS, spot("terminate", 120), NoticeKind.SPOT, answers=True),
    Case("aws-spot-stop", AWS, spot("stop", 30), NoticeKind.SPOT),
    Case("aws-spot-hibernate", AWS, spot("hibernate", 120), NoticeKind.SPOT, asked=False),
    Case("aws-spot-deadline-passed", AWS, spot("terminate", -60), NoticeKind.SPOT, asked=False),
    Case("aws-reboot", AWS, scheduled("system-reboot", 90), NoticeKind.MAINTENANCE, answers=True),
    Case("aws-scale-in", AWS, scale_in, NoticeKind.SCALE_IN, answers=True),
    Case(
        "aws-two-at-once",
        AWS,
        both(rebalance, spot("terminate", 120)),
        NoticeKind.SPOT,
        answers=True,
        beside=(NoticeKind.REBALANCE,),
    ),
    Case("gcp-preempted-30", (*GCP, "--gcp-notice-seconds", "30"), gcp("preempted", "TRUE"), NoticeKind.SPOT),
    Case(
        "gcp-preempted-30-long-end",
        (*GCP, "--gcp-notice-seconds", "30"),
        gcp("preempted", "TRUE"),
        NoticeKind.SPOT,
        asked=False,
        grace=20,
    ),
    Case(
        "gcp-preempted-0",
        (*GCP, "--gcp-notice-seconds", "0"),
        gcp("preempted", "TRUE"),
        NoticeKind.SPOT,
        asked=False,
    ),
    Case(
        "gcp-maintenance",
        GCP,
        gcp("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE"),
        NoticeKind.MAINTENANCE,
        answers=True,
    ),
    Case("azure-preempt", AZURE, azure("Preempt", 30), NoticeKind.SPOT),
    Case("azure-redeploy", AZURE, azure("Redeploy", 500), NoticeKind.MAINTENANCE, answers=True),
    Case("file", FILE, file("node-repair"), NoticeKind.REPAIR, answers=True),
    Case("broker", BROKERED, broker("spot-interruption", 90), NoticeKind.SPOT, answers=True),
    Case("aws-rebalance", AWS, rebalance, NoticeKind.REBALANCE, stays=True),
    Case("aws-maintenance", AWS, scheduled("system-maintenance", 90), NoticeKind.MAINTENANCE, stays=True),
    Case(
        "gcp-migration",
        GCP,
        gcp("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE"),
        NoticeKind.MAINTENANCE,
        stays=True,
    ),
    Case("azure-freeze", AZURE, azure("Freeze", 500), NoticeKind.MAINTENANCE, stays=True),
]
"""One job and one machine each; all of them are said within a second, and then looked at one after the other."""


NONSENSE: dict[str, tuple[tuple[str, ...], Say]] = {
    "garbage of AWS": (AWS, aws_says(metadata.SPOT, "<html>busy</html>")),
    "an action that does not exist": (AWS, spot("explode", 60)),
    "an event in three days": (AWS, scheduled("system-reboot", 3 * 86_400)),
    "an event that is over": (AWS, scheduled("system-reboot", 60, "completed")),
    "an instance that is in service": (AWS, aws_says(metadata.LIFECYCLE, "InService")),
    "garbage of GCP": (GCP, gcp("preempted", "MAYBE")),
    "somebody in the place of GCP": (GCP, both(set_up(gcp_flavor="Other"), gcp("preempted", "TRUE"))),
    "an event of another VM": (AZURE, azure("Preempt", 30, "gpu-vm-2")),
    "garbage of Azure": (AZURE, set_up(events_text='{"Events": 7}')),
    "half a file": (FILE, half_written),
    "an offer of another node": (BROKERED, broker("spot-interruption", 60, node="elsewhere")),
    "a broker that fails": (BROKERED, both(broker("spot-interruption", 60), set_up(broker_status=500))),
}
"""What is said of nodes that it does not concern, or by nobody who could know."""

LEAVING = [case for case in JOBS if not case.stays]
STAYING = [case for case in JOBS if case.stays]


@pytest.fixture(scope="module")
def grounds(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """The nodes, a job on one of them for each case, a gang, and some to spare."""
    directory = tmp_path_factory.mktemp("machines")
    with yard.yard(stack, directory, fleet_nodes=FLEET_NODES, bare_nodes=BARE_NODES) as made:
        for case in JOBS:
            made.submit(case.name, grace=case.grace)
        made.submit("gang", pods=2)
        for number in range(SPARE_JOBS):
            made.submit(f"{yard.SPARE}{number}")
        wait_for("every job", lambda: all(made.runs(name) for name in made.jobs))
        yield made


@dataclass(frozen=True)
class Storm:
    """The grounds, a machine for each case, and the pods that were there when everybody spoke.

    `told_early` are the cases of which a provider was told that it may begin, before the job had answered.
    """

    grounds: Yard
    machines: Mapping[str, Machine]
    pods: Mapping[str, set[str]]
    told_early: set[str]


@pytest.fixture(scope="module")
def storm(grounds: Yard) -> Iterator[Storm]:
    """Every provider speaks at once, and the jobs that answer do so when they are asked."""
    with ExitStack() as running:
        made = {}
        for case in JOBS:
            [node] = grounds.nodes_of(case.name)
            made[case.name] = running.enter_context(grounds.machine(node, *case.arguments))
        there = {case.name: grounds.pods_of(case.name) for case in JOBS}
        for case in JOBS:
            case.say(made[case.name])
        told_early = set()
        for case in JOBS:
            if case.answers:
                await_requests(grounds, case.name)
                told_early |= {case.name} if made[case.name].metadata.acknowledged else set()
                save(grounds, case.name)
        yield Storm(grounds, made, there, told_early)


@pytest.mark.parametrize("case", LEAVING, ids=lambda case: case.name)
def test_a_job_whose_node_goes_is_stopped_in_time_and_runs_on_another(storm: Storm, case: Case) -> None:
    grounds, machine = storm.grounds, storm.machines[case.name]
    said = machine.await_said(case.kind, *case.beside)[case.kind]
    assert_that_it_takes_no_pods(machine, case.kind)
    found = served(grounds, case.name)
    assert (found.kind, found.nodes, found.attempts) == (case.kind, (machine.node,), 1)
    assert (bool(found.request), found.step) == (case.asked, STEP if case.answers else None)
    assert found.stopped_at is not None
    if case.asked and not case.answers:
        assert said.deadline is not None
        latest = said.deadline - DEFAULT_TERMS.reserve_seconds - max(DEFAULT_TERMS.least_end_seconds, case.grace)
        assert latest - 0.1 < found.stopped_at < said.deadline
    wait_for("its new pod", lambda: grounds.runs(case.name) and machine.node not in grounds.nodes_of(case.name))
    assert evicting.failures(grounds.stack, TEAM, grounds.jobs[case.name]) == 0


@pytest.mark.parametrize("case", STAYING, ids=lambda case: case.name)
def test_a_warning_keeps_pods_away_and_asks_the_job_which_runs_on(storm: Storm, case: Case) -> None:
    grounds, machine = storm.grounds, storm.machines[case.name]
    said = machine.await_said(case.kind)[case.kind]
    assert_that_it_takes_no_pods(machine, case.kind)
    await_requests(grounds, case.name)
    time.sleep(max(0.0, said.noticed_at + A_WHILE_SECONDS - time.time()))
    found = evicting.marker(grounds.stack, TEAM, grounds.jobs[case.name])
    assert found is not None
    assert (found.phase, found.certain, found.deadline) == (Phase.ASKED, False, None)
    assert grounds.pods_of(case.name) == storm.pods[case.name]


def test_people_are_told_of_the_request_and_of_the_stop(storm: Storm) -> None:
    job, stack = storm.grounds.jobs["aws-spot-stop"], storm.grounds.stack

    def told() -> dict[str, str]:
        found, _ = stack.kube.list("events.k8s.io/v1", "Event", TEAM)
        return {one["reason"]: one["note"] for one in found if one["regarding"]["name"] == job}

    wait_for("both events", lambda: {"CheckpointRequested", "Evicted"} <= told().keys())
    assert storm.machines["aws-spot-stop"].node in told()["Evicted"]


def test_azure_is_told_that_it_may_begin_where_the_job_has_left_and_only_there(storm: Storm) -> None:
    left, staying = storm.machines["azure-redeploy"], storm.machines["azure-freeze"]
    [notice] = left.said().values()
    wait_for("word to Azure", lambda: left.metadata.acknowledged == [notice.id.removeprefix("azure-")])
    assert not staying.metadata.acknowledged
    assert not storm.told_early


def test_every_node_is_as_before_when_nothing_is_said_of_it_any_more(storm: Storm) -> None:
    for machine in storm.machines.values():
        machine.withdraw()
    for machine in storm.machines.values():
        machine.await_before()
        assert machine.alive
    for case in STAYING:
        wait_until_crossed_out(storm.grounds, case.name)
        assert storm.grounds.pods_of(case.name) == storm.pods[case.name]


def test_a_gang_that_is_hit_on_two_nodes_is_asked_and_stopped_once(grounds: Yard) -> None:
    first, second = grounds.nodes_of("gang")
    with grounds.machine(first, *AWS) as one, grounds.machine(second, *AWS) as other:
        spot("terminate", 120)(one)
        wait_for("the question", lambda: len(requests(grounds, "gang")) == 2)
        asked = requests(grounds, "gang")
        spot("terminate", 110)(other)
        job = grounds.jobs["gang"]
        wait_for("both nodes", lambda: marker(grounds, "gang").nodes == tuple(sorted((first, second))))
        assert requests(grounds, "gang") == asked
        save(grounds, "gang")
        found = served(grounds, "gang")
        assert (found.attempts, found.step) == (1, STEP)
        wait_for("two other nodes", lambda: grounds.runs("gang") and not {first, second} & {*grounds.nodes_of("gang")})
        assert evicting.failures(grounds.stack, TEAM, job) == 0


@pytest.mark.long
def test_a_maintenance_that_is_called_off_leaves_the_job_where_it_is(grounds: Yard) -> None:
    name = grounds.spare()
    [node], there = grounds.nodes_of(name), grounds.pods_of(name)
    with grounds.machine(node, *AWS, say=scheduled("system-reboot", 300)) as machine:
        machine.await_said(NoticeKind.MAINTENANCE)
        await_requests(grounds, name)
        scheduled("system-reboot", 300, "canceled")(machine)
        machine.await_before()
        wait_until_crossed_out(grounds, name)
    assert grounds.pods_of(name) == there


@pytest.mark.long
def test_a_notice_that_is_withdrawn_after_the_stop_does_not_hold_the_job_up(grounds: Yard) -> None:
    name = grounds.spare()
    [node], there = grounds.nodes_of(name), grounds.pods_of(name)
    job, stack = grounds.jobs[name], grounds.stack
    with grounds.machine(node, *GCP, "--gcp-notice-seconds", "0") as machine:
        machine.metadata.set_gcp("preempted", "TRUE")
        wait_for("the stop", lambda: evicting.phase(stack, TEAM, job) in (Phase.STOPPED, Phase.DONE))
        machine.metadata.set_gcp("preempted", "FALSE")
        assert served(grounds, name).attempts == 1
        machine.await_before()
        wait_for("its new pod", lambda: grounds.runs(name) and not grounds.pods_of(name) & there)
    assert evicting.failures(stack, TEAM, job) == 0
    assert marker(grounds, name).attempts == 1


@pytest.mark.long
def test_a_warning_that_becomes_certain_stops_the_job_that_it_asked(grounds: Yard) -> None:
    name = grounds.spare()
    [node] = grounds.nodes_of(name)
    with grounds.machine(node, *AWS, say=rebalance) as machine:
        await_requests(grounds, name)
        spot("terminate", 120)(machine)
        wait_for("certainty", lambda: marker(grounds, name).certain)
        save(grounds, name)
        found = served(grounds, name)
        assert (found.kind, found.step, found.attempts) == (NoticeKind.SPOT, STEP, 1)
        wait_for("another node", lambda: grounds.runs(name) and grounds.nodes_of(name) != [node])


@pytest.mark.long
def test_a_notice_for_a_node_without_jobs_touches_no_job(grounds: Yard) -> None:
    def jobs() -> dict[str, Any]:
        items, _ = grounds.stack.kube.list(KUEUE, "Workload", TEAM)
        return {
            one["metadata"]["uid"]: (
                one["spec"].get("active"),
                one["metadata"].get("annotations", {}).get(EVICTION_ANNOTATION),
            )
            for one in items
        }

    with grounds.machine(grounds.idle_node(), *AWS) as machine:
        before = jobs()
        spot("terminate", 30)(machine)
        machine.await_said(NoticeKind.SPOT)
        time.sleep(A_WHILE_SECONDS)
        assert jobs() == before


@pytest.mark.long
def test_a_notice_that_comes_while_the_api_server_is_away_is_carried_out_when_it_is_back(grounds: Yard) -> None:
    name = grounds.spare()
    [node] = grounds.nodes_of(name)
    with grounds.machine(node, *AWS) as machine:
        with yard.without_api_server(grounds.stack):
            spot("hibernate", 0)(machine)
            wait_for("a failure to say so", lambda: "could not write the Node" in machine.log)
            back_at = time.time()
        said = wait_for("the notice", patiently(machine.said))
        assert said[NoticeKind.SPOT].noticed_at < back_at
        wait_for("another node", patiently(lambda: grounds.runs(name) and grounds.nodes_of(name) != [node]))
        assert marker(grounds, name).attempts == 1
    assert evicting.failures(grounds.stack, TEAM, grounds.jobs[name]) == 0


def test_a_token_that_expires_in_the_middle_is_replaced(grounds: Yard) -> None:
    with grounds.machine(grounds.bare_node(), *AWS) as machine:
        wait_for("two looks", lambda: machine.metadata.count(f"GET {metadata.SPOT}") > 1)
        machine.metadata.expire_tokens()
        spot("terminate", 120)(machine)
        machine.await_said(NoticeKind.SPOT)
        assert machine.metadata.count("PUT /latest/api/token") == 2


@pytest.mark.long
@pytest.mark.parametrize(
    ("trouble", "advice"), [("no-tokens", "this is not IMDSv2"), ("hop-limit", "hostNetwork: true")]
)
def test_a_metadata_service_that_cannot_be_believed_is_not_and_the_log_says_why(
    grounds: Yard, trouble: str, advice: str
) -> None:
    def begin(machine: Machine) -> None:
        machine.metadata.token_status = 404 if trouble == "no-tokens" else 200
        machine.metadata.hop_limited = trouble == "hop-limit"
        spot("terminate", 120)(machine)

    with grounds.machine(grounds.bare_node(), *AWS, say=begin) as machine:
        wait_for("the advice", lambda: advice in machine.log)
        assert not any(one.startswith("GET") for one in machine.metadata.requests)
        assert machines.as_it_stands(machine.raw()) == machine.before
        machine.metadata.token_status, machine.metadata.hop_limited = 200, False
        machine.await_said(NoticeKind.SPOT)


@pytest.mark.long
def test_what_makes_no_sense_or_is_about_others_changes_no_node(grounds: Yard) -> None:
    with ExitStack() as running:
        made = {
            name: running.enter_context(grounds.machine(grounds.bare_node(), *arguments, say=say))
            for name, (arguments, say) in NONSENSE.items()
        }
        time.sleep(SEVERAL_LOOKS_SECONDS)
        for name, machine in made.items():
            assert machine.alive, name
            assert machines.as_it_stands(machine.raw()) == machine.before, name
            assert machine.metadata.requests or machine.arguments == FILE, name


def test_a_node_that_somebody_else_cordoned_stays_cordoned(grounds: Yard) -> None:
    node = grounds.bare_node()
    yard.cordon(grounds.stack, node, True)
    wait_for("Kubernetes' own taint", lambda: not yard.all_ready(grounds.stack, {node}))
    with grounds.machine(node, *FILE) as machine:
        file("maintenance")(machine)
        machine.await_said(NoticeKind.MAINTENANCE)
        raw = machine.raw()
        assert CORDONED_ANNOTATION not in raw["metadata"]["annotations"]
        assert machines.evicting_taints(raw) == [("maintenance", "NoSchedule")]
        machine.withdraw()
        machine.await_before()
        assert machine.raw()["spec"]["unschedulable"] is True


@pytest.mark.long
def test_what_is_undone_by_hand_comes_back_but_for_the_cordon(grounds: Yard) -> None:
    with grounds.machine(grounds.bare_node(), *FILE) as machine:
        file("maintenance")(machine)
        machine.await_said(NoticeKind.MAINTENANCE)
        raw = machine.raw()
        kept = [one for one in raw["spec"]["taints"] if one["key"] != EVICTING_TAINT]
        machine.edit({NOTICES_ANNOTATION: None}, taints=kept, unschedulable=None)
        wait_for("the taint", lambda: machines.evicting_taints(machine.raw()) == [("maintenance", "NoSchedule")])
        assert set(machine.said()) == {NoticeKind.MAINTENANCE}
        assert not machine.raw()["spec"].get("unschedulable")
        machine.withdraw()
        machine.await_before()


@pytest.mark.long
def test_of_two_notices_the_worst_shows_and_the_last_gives_the_node_back(grounds: Yard) -> None:
    certain = {"id": "rack-1", "kind": "maintenance"}
    likely = {"id": "rack-2", "kind": "rebalance", "certainty": "likely"}
    with grounds.machine(grounds.bare_node(), *FILE) as machine:
        machine.say(certain, likely)
        machine.await_said(NoticeKind.MAINTENANCE, NoticeKind.REBALANCE)
        assert_that_it_takes_no_pods(machine, NoticeKind.MAINTENANCE)
        machine.say(likely)
        machine.await_said(NoticeKind.REBALANCE)
        assert_that_it_takes_no_pods(machine, NoticeKind.REBALANCE)
        machine.file.write_text("[{")
        time.sleep(SEVERAL_LOOKS_SECONDS)
        assert set(machine.said()) == {NoticeKind.REBALANCE}
        machine.withdraw()
        machine.await_before()


def test_a_node_agent_that_is_killed_goes_on_from_what_its_node_says(grounds: Yard) -> None:
    with grounds.machine(grounds.bare_node(), *FILE) as machine:
        file("maintenance", 300)(machine)
        said = machine.await_said(NoticeKind.MAINTENANCE)
        machine.kill()
        words = machine.raw()["metadata"]["annotations"]
        machine.start()
        time.sleep(SEVERAL_LOOKS_SECONDS)
        assert machine.raw()["metadata"]["annotations"] == words
        machine.kill()
        machine.withdraw()
        assert machine.said() == said
        machine.start()
        machine.await_before()


def test_a_node_that_is_deleted_and_comes_back_is_spoken_for_again(grounds: Yard) -> None:
    with grounds.machine(grounds.bare_node(), *FILE) as machine:
        grounds.stack.kube.delete("v1", "Node", machine.node)
        file("maintenance")(machine)
        wait_for("a failure to say so", lambda: "could not write the Node" in machine.log)
        grounds.bring_back(machine.node)
        machine.renew_account()  # as that of a new pod: the old token speaks for a Node that is no more
        machine.await_said(NoticeKind.MAINTENANCE)
        assert machine.alive
        machine.withdraw()
        machine.await_said()
        raw = machine.raw()
        assert not machines.evicting_taints(raw)
        assert not raw["spec"].get("unschedulable")


def test_the_metrics_of_a_node_agent_count_what_stands(grounds: Yard) -> None:
    with grounds.machine(grounds.bare_node(), *AWS, "--port", "0", say=spot("terminate", 120)) as machine:
        machine.await_said(NoticeKind.SPOT)
        found = re.search(r'"msg":"started".*"port":(\d+)', machine.log)
        assert found is not None
        text = httpx2.get(f"http://127.0.0.1:{found[1]}/metrics", trust_env=False).text
    assert 'gpufleet_node_notices{kind="spot-interruption"} 1\n' in text
    assert 'gpufleet_node_source_up{source="aws-spot"} 1\n' in text
    assert "gpufleet_node_writes_total 1\n" in text


@pytest.fixture(scope="module")
def speakers(grounds: Yard) -> Iterator[Callable[[bool, str, Any], httpx2.Response]]:
    """Asks the API server for a dry run with a token of the node agent's, bound to its node or to none."""
    node, stack = grounds.bare_node(), grounds.stack
    directory = grounds.directory / "speakers"
    state = stack.plane.state
    bound = nodeagent.write_account(stack.kube, state, directory / "bound", node=node)
    loose = nodeagent.write_account(stack.kube, state, directory / "loose")
    context = ssl.create_default_context(cafile=bound / "ca.crt")
    with httpx2.Client(base_url=stack.kube.server, verify=context, trust_env=False) as client:

        def speak(is_bound: bool, path: str, body: Any) -> httpx2.Response:
            token = ((bound if is_bound else loose) / "token").read_text()
            headers = {"Authorization": f"Bearer {token}", "Content-Type": MERGE}
            return client.patch(f"{path.format(node=node)}?dryRun=All", headers=headers, content=json.dumps(body))

        yield speak


OWN, ANOTHER = "/api/v1/nodes/{node}", "/api/v1/nodes/rack-0"
WORDS: dict[str, Any] = {"metadata": {"annotations": {NOTICES_ANNOTATION: "[]"}}}


@pytest.mark.parametrize(
    ("is_bound", "path", "body", "refusal"),
    [
        pytest.param(True, OWN, WORDS, None, id="its-own-node"),
        pytest.param(True, ANOTHER, WORDS, "its own node only", id="another-node"),
        pytest.param(False, OWN, WORDS, "its own node only", id="a-token-of-no-node"),
        pytest.param(True, OWN, {"metadata": {"labels": {"any": "thing"}}}, "nothing of a node but", id="a-label"),
        pytest.param(True, OWN, {"metadata": {"annotations": {"any": "thing"}}}, "no annotation", id="an-annotation"),
        pytest.param(True, OWN, {"spec": {"taints": [OTHERS_TAINT]}}, "no taint but", id="a-taint-of-others-taken"),
        pytest.param(True, OWN, {"spec": {"unschedulable": True}}, "records in", id="a-cordon-without-a-record"),
        pytest.param(True, f"{OWN}/status", {"status": {"phase": "x"}}, "cannot patch", id="its-status"),
    ],
)
def test_a_node_agent_writes_its_own_node_and_of_that_only_what_it_says(
    speakers: Callable[[bool, str, Any], httpx2.Response], is_bound: bool, path: str, body: Any, refusal: str | None
) -> None:
    response = speakers(is_bound, path, body)
    if refusal is None:
        assert response.is_success, response.text
    else:
        assert response.status_code in (403, 422)
        assert refusal in response.json()["message"]


def requests(grounds: Yard, name: str) -> dict[str, str]:
    return evicting.requests(grounds.stack, TEAM, grounds.jobs[name])


def marker(grounds: Yard, name: str) -> Marker:
    found = evicting.marker(grounds.stack, TEAM, grounds.jobs[name])
    assert found is not None
    return found


def wait_until_crossed_out(grounds: Yard, name: str) -> None:
    """Wait until nothing of a job says that it was ever to go."""
    job = grounds.jobs[name]
    wait_for("no marker", lambda: evicting.marker(grounds.stack, TEAM, job) is None)


def await_requests(grounds: Yard, name: str) -> dict[str, str]:
    """Wait for the question to the pods of a job."""
    return wait_for(f"the question to {name}", lambda: requests(grounds, name))


def save(grounds: Yard, name: str) -> None:
    """Wait for the question, and answer it."""
    await_requests(grounds, name)
    evicting.answer(grounds.stack, TEAM, grounds.jobs[name], STEP)


def served(grounds: Yard, name: str) -> Marker:
    """Wait until a job is sent on, and return what its Workload says of it."""
    job = grounds.jobs[name]
    wait_for(f"{name} to be sent on", lambda: evicting.phase(grounds.stack, TEAM, job) is Phase.DONE)
    return marker(grounds, name)


def assert_that_it_takes_no_pods(machine: Machine, kind: NoticeKind) -> None:
    """Cordon and taint stand, and every taint that was there before."""
    raw = machine.raw()
    assert machines.is_cordoned_by_us(raw)
    assert machines.evicting_taints(raw) == [(kind.value, "NoSchedule")]
    now = machines.as_it_stands(raw)
    assert set(machine.before["taints"]) <= set(now["taints"])
    assert now["labels"] == machine.before["labels"]
