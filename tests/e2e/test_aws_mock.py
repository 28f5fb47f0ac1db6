"""The real node agent against AWS' own mock of the instance metadata service, through to jobs that run elsewhere.

What amazon-ec2-metadata-mock can say: interruptions of spot instances, recommendations to leave them, one scheduled
event, and the state that an Auto Scaling group wants. It requires the tokens of IMDSv2. It is built when this module is
the first to ask for it; where it cannot be, the module is skipped.

The fake that plays all providers in other suites (tests.fakes.metadata) is held against it here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import httpx2
import pytest
from rich.console import Console

from infra.local import toolchain
from infra.local.errors import LocalError
from runtime.eviction.notice import Notice, NoticeKind
from runtime.eviction.sources.aws import aws_sources
from runtime.eviction.view import Phase
from tests.e2e import evicting, machines, sayings, yard
from tests.e2e.conftest import Stack, wait_for
from tests.e2e.machines import Machine
from tests.e2e.sayings import utc
from tests.e2e.test_notices import (
    STEP,
    assert_that_it_takes_no_pods,
    await_requests,
    marker,
    save,
    served,
    wait_until_crossed_out,
)
from tests.e2e.yard import TEAM, Yard
from tests.fakes import aemm
from tests.fakes.aemm import Mock
from tests.fakes.metadata import LIFECYCLE, REBALANCE, SCHEDULED, SPOT, TOKEN, FakeMetadata

LATER = "86400"
NO_INTERRUPTION, NO_WARNING = f"--mock-delay-sec={LATER}", f"--rebalance-delay-sec={LATER}"

RunMock = Callable[..., AbstractContextManager[Mock]]
"""Runs a mock with these arguments; `port` is that of one that has ended."""


def spot(action: str, seconds: float) -> tuple[str, ...]:
    return "spot", f"--action={action}", f"--time={utc(seconds)}", NO_WARNING


def rebalance() -> tuple[str, ...]:
    return "spot", NO_INTERRUPTION, f"--rebalance-rec-time={utc(0)}"


def event(code: str, seconds: float, state: str = "active") -> tuple[str, ...]:
    return "events", f"--code={code}", f"--state={state}", f"--not-before={utc(seconds)}", f"--not-after={utc(86_400)}"


@dataclass(frozen=True)
class Case:
    """What the mock says of the machine of one job; a job that is `asked` answers, one that `stays` is not stopped."""

    name: str
    arguments: Callable[[], tuple[str, ...]]
    kind: NoticeKind
    asked: bool = True
    stays: bool = False
    long: bool = False


CASES = [
    Case("terminate", lambda: spot("terminate", 120), NoticeKind.SPOT),
    Case("hibernate", lambda: spot("hibernate", 120), NoticeKind.SPOT, asked=False),
    Case("terminate-at-a-time-that-moves", lambda: ("spot", NO_WARNING), NoticeKind.SPOT),
    Case("system-reboot", lambda: event("system-reboot", 300), NoticeKind.MAINTENANCE),
    Case("scale-in", lambda: ("asglifecycle",), NoticeKind.SCALE_IN),
    Case("stop", lambda: spot("stop", 120), NoticeKind.SPOT, long=True),
    Case("instance-retirement", lambda: event("instance-retirement", 300), NoticeKind.MAINTENANCE, long=True),
    Case("instance-stop", lambda: event("instance-stop", 300), NoticeKind.MAINTENANCE, long=True),
    Case("rebalance", rebalance, NoticeKind.REBALANCE, stays=True),
    Case("system-maintenance", lambda: event("system-maintenance", 300), NoticeKind.MAINTENANCE, stays=True),
]

NOTHING: dict[str, Callable[[], tuple[str, ...]]] = {
    "an interruption and a recommendation to come": lambda: ("spot", NO_INTERRUPTION, NO_WARNING),
    "an event in three days": lambda: event("instance-stop", 3 * 86_400),
    "an event that was called off": lambda: event("system-reboot", 60, "canceled"),
    "an event that is over": lambda: event("system-reboot", 60, "completed"),
    "an instance that is in service": lambda: ("asglifecycle", f"--asg-termination-delay-sec={LATER}"),
}
"""What the mock says of a machine that stays."""

SPARE_JOBS = 3


@pytest.fixture(scope="module")
def run_mock(tmp_path_factory: pytest.TempPathFactory) -> RunMock:
    """Runs mocks."""
    try:
        binary = toolchain.resolve((aemm.TOOL,), console=Console(quiet=True)).path(aemm.TOOL)
    except LocalError as error:
        pytest.skip(f"no {aemm.TOOL}: {error}")

    def run(*arguments: str, port: int = 0) -> AbstractContextManager[Mock]:
        return aemm.ec2_metadata_mock(binary, tmp_path_factory.mktemp("mock") / "log", *arguments, port=port)

    return run


@pytest.fixture(scope="module")
def grounds(run_mock: RunMock, stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """The nodes, and a job on one of them for each case."""
    directory = tmp_path_factory.mktemp("machines")
    jobs = [case.name for case in CASES] + [f"{yard.SPARE}{number}" for number in range(SPARE_JOBS)]
    with yard.yard(stack, directory, fleet_nodes=2 * len(jobs), bare_nodes=len(NOTHING) + 1) as made:
        for name in jobs:
            made.submit(name)
        wait_for("every job", lambda: all(made.runs(name) for name in made.jobs))
        yield made


def under(grounds: Yard, node: str, mock: Mock) -> AbstractContextManager[Machine]:
    """A machine whose metadata service is this mock."""
    return grounds.machine(node, "--provider", "aws", "--metadata-url", mock.url)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=[pytest.mark.long] * case.long) for case in CASES]
)
def test_what_the_mock_says_reaches_the_job(run_mock: RunMock, grounds: Yard, case: Case) -> None:
    [node], there = grounds.nodes_of(case.name), grounds.pods_of(case.name)
    with run_mock(*case.arguments()) as mock, under(grounds, node, mock) as machine:
        machine.await_said(case.kind)
        assert_that_it_takes_no_pods(machine, case.kind)
        if case.stays:
            await_requests(grounds, case.name)
            found = marker(grounds, case.name)
            assert (found.phase, found.certain, found.deadline) == (Phase.ASKED, False, None)
            assert grounds.pods_of(case.name) == there
            return
        if case.asked:
            save(grounds, case.name)
        found = served(grounds, case.name)
        assert (found.kind, found.nodes, found.attempts) == (case.kind, (node,), 1)
        assert (bool(found.request), found.step) == (case.asked, STEP if case.asked else None)
        wait_for("another node", lambda: grounds.runs(case.name) and grounds.nodes_of(case.name) != [node])
    assert evicting.failures(grounds.stack, TEAM, grounds.jobs[case.name]) == 0


@pytest.mark.long
def test_an_interruption_whose_time_moves_is_one_notice_however_often_it_is_read(
    run_mock: RunMock, grounds: Yard
) -> None:
    with run_mock("spot", NO_WARNING) as mock, under(grounds, grounds.bare_node(), mock) as machine:
        said = machine.await_said(NoticeKind.SPOT)
        times = set()

        def moves() -> bool:
            times.add(answer_of(mock.url, SPOT)["time"])
            return len(times) > 3

        wait_for("other times", moves)
        assert machine.said() == said


@pytest.mark.long
def test_nothing_to_say_changes_no_node(run_mock: RunMock, grounds: Yard) -> None:
    with ExitStack() as running:
        made = {}
        for name, arguments in NOTHING.items():
            mock = running.enter_context(run_mock(*arguments()))
            made[name] = mock, running.enter_context(under(grounds, grounds.bare_node(), mock))
        for name, (mock, machine) in made.items():
            for path in (SPOT, REBALANCE, SCHEDULED, LIFECYCLE):
                wait_for(f"a look at {path}", lambda mock=mock, path=path: mock.was_asked(path, times=2))  # type: ignore[misc]
            assert machine.alive, name
            assert machines.as_it_stands(machine.raw()) == machine.before, name
            assert "source is down" not in machine.log, name


def test_a_recommendation_that_becomes_an_interruption_stops_the_job_that_it_asked(
    run_mock: RunMock, grounds: Yard
) -> None:
    name = grounds.spare()
    [node] = grounds.nodes_of(name)
    with ExitStack() as afterwards:
        with run_mock(*rebalance()) as mock:
            machine = afterwards.enter_context(under(grounds, node, mock))
            await_requests(grounds, name)
        with run_mock(*spot("terminate", 120), port=mock.port) as mock:
            wait_for("certainty", lambda: marker(grounds, name).certain)
            save(grounds, name)
            found = served(grounds, name)
            assert (found.kind, found.step, found.attempts) == (NoticeKind.SPOT, STEP, 1)
            wait_for("another node", lambda: grounds.runs(name) and grounds.nodes_of(name) != [node])
            assert "Invalid token provided" in mock.log_file.read_text(), "tokens of the first were tried, and replaced"
            assert machine.alive


@pytest.mark.long
def test_a_maintenance_that_is_called_off_gives_the_node_back(run_mock: RunMock, grounds: Yard) -> None:
    name = grounds.spare()
    [node], there = grounds.nodes_of(name), grounds.pods_of(name)
    with ExitStack() as afterwards:
        with run_mock(*event("system-reboot", 300)) as mock:
            machine = afterwards.enter_context(under(grounds, node, mock))
            machine.await_said(NoticeKind.MAINTENANCE)
            await_requests(grounds, name)
        with run_mock(*event("system-reboot", 300, "canceled"), port=mock.port):
            machine.await_before()
            wait_until_crossed_out(grounds, name)
    assert grounds.pods_of(name) == there


@pytest.mark.long
def test_what_was_said_stands_while_the_metadata_service_is_away(run_mock: RunMock, grounds: Yard) -> None:
    name = grounds.spare()
    [node], there = grounds.nodes_of(name), grounds.pods_of(name)
    with ExitStack() as afterwards:
        with run_mock(*rebalance()) as mock:
            machine = afterwards.enter_context(under(grounds, node, mock))
            said = machine.await_said(NoticeKind.REBALANCE)
        wait_for("a failure to say so", lambda: "source is down" in machine.log)
        assert machine.said() == said
        with run_mock("spot", NO_INTERRUPTION, NO_WARNING, port=mock.port):
            machine.await_before()
            wait_until_crossed_out(grounds, name)
    assert grounds.pods_of(name) == there


def answer_of(url: str, path: str) -> dict[str, str]:
    """The JSON of a path, asked for as IMDSv2 wants it."""
    return dict(json.loads(ask(url, path).text))


def ask(url: str, path: str) -> httpx2.Response:
    with httpx2.Client(base_url=url, trust_env=False) as client:
        token = client.put(TOKEN, headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}).text
        return client.get(path, headers={"X-aws-ec2-metadata-token": token})


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        pytest.param("PUT", TOKEN, {"X-aws-ec2-metadata-token-ttl-seconds": "21600"}, id="a-token"),
        pytest.param("PUT", TOKEN, {"X-aws-ec2-metadata-token-ttl-seconds": "21601"}, id="a-token-for-too-long"),
        pytest.param("PUT", TOKEN, {"X-aws-ec2-metadata-token-ttl-seconds": "0"}, id="a-token-for-no-time"),
        pytest.param("PUT", TOKEN, {}, id="a-token-of-no-length"),
        pytest.param("GET", SPOT, {}, id="without-a-token"),
        pytest.param("GET", SPOT, {"X-aws-ec2-metadata-token": "stale"}, id="with-an-unknown-token"),
    ],
)
def test_the_fake_answers_as_the_mock_does(run_mock: RunMock, method: str, path: str, headers: dict[str, str]) -> None:
    with run_mock(*spot("terminate", 120)) as mock, FakeMetadata() as fake:
        answers = [
            httpx2.request(method, f"{url}{path}", headers=headers, trust_env=False) for url in (mock.url, fake.url)
        ]
    life = "X-aws-ec2-metadata-token-ttl-seconds"
    assert len({(answer.status_code, answer.headers.get(life)) for answer in answers}) == 1


@pytest.mark.parametrize("path", [SPOT, REBALANCE, SCHEDULED, LIFECYCLE])
def test_the_fake_has_nothing_to_say_as_the_mock_has(run_mock: RunMock, path: str) -> None:
    with run_mock("spot", NO_INTERRUPTION, NO_WARNING) as mock, FakeMetadata() as fake:
        assert ask(mock.url, path).status_code == ask(fake.url, path).status_code == 404


@pytest.mark.parametrize(
    ("arguments", "say"),
    [
        pytest.param(lambda: spot("terminate", 90), sayings.spot("terminate", 90), id="interruption"),
        pytest.param(rebalance, sayings.rebalance, id="recommendation"),
        pytest.param(lambda: event("system-reboot", 600), sayings.scheduled("system-reboot", 600), id="event"),
        pytest.param(lambda: ("asglifecycle",), sayings.scale_in, id="scale-in"),
    ],
)
def test_the_fake_is_read_as_the_mock_is(
    run_mock: RunMock, arguments: Callable[[], tuple[str, ...]], say: Callable[[Machine], None]
) -> None:
    with run_mock(*arguments()) as mock, FakeMetadata() as fake:
        say(Said(fake))  # type: ignore[arg-type]
        readings = [[gist(notice) for notice in read_all(url)] for url in (mock.url, fake.url)]
    assert readings[0] == readings[1] != []


@dataclass(frozen=True)
class Said:
    """All of a machine that the provider's words need."""

    metadata: FakeMetadata


def read_all(url: str) -> list[Notice]:
    """What the sources of a node agent read."""
    return [notice for source in aws_sources(url) for notice in source.read()]


def gist(notice: Notice) -> tuple[object, ...]:
    """A notice without what two services may name and date as they like."""
    return notice.kind, notice.source, notice.certainty, notice.deadline is None
