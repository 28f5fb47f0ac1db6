"""The node agent: what it writes on its Node, what it takes back, and what it does not lose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from runtime.eviction.notice import Certainty, Notice, NoticeKind, notices_from_json, notices_to_json
from runtime.eviction.sources import Source, SourceDown
from runtime.node import health
from runtime.node.board import SOURCES, Board
from runtime.node.desk import MOST_CONFLICTS, RESYNC_SECONDS, WATCHED_SECONDS, Desk
from runtime.node.kube import ApiError, NodeClient
from runtime.node.patch import MOST_NOTICES, change_for, merged
from runtime.node.watcher import Watcher
from stacks.labels import CLEARED_ANNOTATION, CORDONED_ANNOTATION, EVICTING_TAINT, NOTICES_ANNOTATION
from tests.fakes.nodeserver import NodeServer, new_node

NOW = 1_790_000_000.0
OURS = {"key": EVICTING_TAINT, "value": "spot-interruption", "effect": "NoSchedule"}
THEIRS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


def notice(id_: str = "aws-spot-1", **changes: object) -> Notice:
    fields: dict[str, object] = {
        "id": id_,
        "kind": NoticeKind.SPOT,
        "source": "aws-spot",
        "certainty": Certainty.CERTAIN,
        "noticed_at": NOW,
        "deadline": NOW + 120,
    }
    return Notice(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def server() -> Iterator[NodeServer]:
    with NodeServer() as found:
        found.node["spec"]["taints"] = [THEIRS]
        yield found


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("secret\n")
    return tmp_path


@pytest.fixture
def board() -> Board:
    return Board({"aws-spot", "aws-maintenance", "azure"})


@pytest.fixture
def desk(server: NodeServer, account: Path, board: Board) -> Desk:
    return Desk(board, NodeClient(server.url, "gpu-1", account))


def written(server: NodeServer) -> tuple[Notice, ...]:
    return notices_from_json(server.annotations[NOTICES_ANNOTATION])


def test_a_notice_is_said_in_one_write(server: NodeServer, board: Board, desk: Desk) -> None:
    board.put("aws-spot", [notice()])
    assert desk.step() == WATCHED_SECONDS
    assert written(server) == (notice(),)
    assert server.cordoned
    assert server.taints == [THEIRS, OURS]
    assert server.annotations[CORDONED_ANNOTATION] == "aws-spot-1"
    assert len(server.patches) == 1
    desk.step()
    assert len(server.patches) == 1, "said is said"


def test_a_notice_that_is_taken_back_takes_back_all_that_was_set(server: NodeServer, board: Board, desk: Desk) -> None:
    before = new_node()["spec"] | {"taints": [THEIRS]}
    board.put("aws-spot", [notice()])
    desk.step()
    board.put("aws-spot", [])
    assert desk.step() == RESYNC_SECONDS
    assert (server.node["spec"], server.annotations) == (before, {})


def test_what_somebody_else_cordoned_stays_cordoned(server: NodeServer, board: Board, desk: Desk) -> None:
    server.edit(lambda node: node["spec"].update(unschedulable=True))
    board.put("aws-spot", [notice()])
    desk.step()
    assert CORDONED_ANNOTATION not in server.annotations
    board.put("aws-spot", [])
    desk.step()
    assert server.cordoned
    assert (server.taints, server.annotations) == ([THEIRS], {})


def test_who_uncordons_during_a_notice_is_not_overruled_until_there_is_another(
    server: NodeServer, board: Board, desk: Desk
) -> None:
    board.put("aws-spot", [notice()])
    desk.step()
    server.edit(lambda node: node["spec"].pop("unschedulable"))
    desk.step()
    assert "unschedulable" not in server.node["spec"]
    board.put("aws-maintenance", [notice("aws-m", source="aws-maintenance", kind=NoticeKind.MAINTENANCE)])
    desk.step()
    assert server.cordoned
    assert server.annotations[CORDONED_ANNOTATION] == "aws-m,aws-spot-1"


def test_a_taint_that_somebody_removed_is_set_again(server: NodeServer, board: Board, desk: Desk) -> None:
    board.put("aws-spot", [notice()])
    desk.step()
    server.edit(lambda node: node["spec"].update(taints=[THEIRS]))
    desk.step()
    assert server.taints == [THEIRS, OURS]


def test_of_two_notices_the_worse_names_the_taint_and_the_other_stays_when_it_goes(
    server: NodeServer, board: Board, desk: Desk
) -> None:
    later = notice("aws-m", source="aws-maintenance", kind=NoticeKind.MAINTENANCE, deadline=NOW + 900)
    board.put("aws-maintenance", [later])
    desk.step()
    board.put("aws-spot", [notice()])
    desk.step()
    assert server.taints[-1]["value"] == "spot-interruption"
    board.put("aws-spot", [])
    desk.step()
    assert server.taints[-1]["value"] == "maintenance"
    assert written(server) == (later,)
    assert server.cordoned


def test_the_same_notice_of_two_sources_is_said_once(server: NodeServer, board: Board, desk: Desk) -> None:
    board.put("aws-spot", [notice()])
    board.put("azure", [notice(source="azure", certainty=Certainty.LIKELY, deadline=NOW + 60)])
    desk.step()
    assert written(server) == (notice(),)
    assert merged([notice(deadline=NOW + 9), notice(source="azure")]) == (notice(deadline=NOW + 9),)


def test_a_conflict_is_tried_again_on_what_the_node_is_now(server: NodeServer, board: Board, desk: Desk) -> None:
    other = {"key": "a", "effect": "NoSchedule"}

    def between() -> None:
        server.before_patch = lambda: None
        server.edit(lambda node: node["spec"].update(taints=[THEIRS, other], unschedulable=True))

    server.before_patch = between
    board.put("aws-spot", [notice()])
    desk.step()
    assert server.taints == [THEIRS, other, OURS]
    assert CORDONED_ANNOTATION not in server.annotations, "it was cordoned by then"


def test_endless_conflicts_are_given_up_for_a_while_and_not_forgotten(
    server: NodeServer, board: Board, desk: Desk
) -> None:
    server.before_patch = lambda: server.edit(lambda node: None)
    board.put("aws-spot", [notice()])
    assert desk.step() < 1
    assert server.gets == MOST_CONFLICTS
    server.before_patch = lambda: None
    desk.step()
    assert written(server) == (notice(),)


def test_a_notice_outlives_an_api_server_that_is_away(server: NodeServer, board: Board, desk: Desk) -> None:
    server.away = True
    board.put("aws-spot", [notice()])
    rests = [desk.step() for _ in range(8)]
    assert 0 < rests[0] < 1 < rests[-1] < 7
    server.away = False
    assert desk.step() == WATCHED_SECONDS
    assert written(server) == (notice(),)
    assert (desk.failures, desk.writes) == (8, 1)
    assert desk.last_delay_seconds is not None


@pytest.mark.parametrize("status", [403, 429, 500, 503])
def test_an_api_server_that_refuses_is_tried_again(server: NodeServer, board: Board, desk: Desk, status: int) -> None:
    server.answers = [200, status]
    board.put("aws-spot", [notice()])
    assert desk.step() < 1
    desk.step()
    assert written(server) == (notice(),)


def test_after_a_restart_a_notice_stands_until_its_source_has_answered(
    server: NodeServer, board: Board, desk: Desk
) -> None:
    board.put("aws-spot", [notice()])
    desk.step()
    fresh = Board({"aws-spot", "aws-maintenance"})
    again = Desk(fresh, desk._client)
    fresh.put("aws-maintenance", [])
    again.step()
    assert written(server) == (notice(),)
    fresh.put("aws-spot", [])
    again.step()
    assert (server.cordoned, server.annotations) == (False, {})


def test_a_notice_of_somebody_else_stays_and_one_of_a_source_that_is_gone_goes(
    server: NodeServer, board: Board, desk: Desk
) -> None:
    drill, broker = notice("drill-7", source="drill"), notice("b", source="file")
    text = notices_to_json([drill, broker])
    server.edit(lambda node: node["metadata"]["annotations"].update({NOTICES_ANNOTATION: text}))
    desk.step()
    assert written(server) == (drill,)
    assert server.cordoned


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", "{}", "[" * 9_000])
def test_an_annotation_that_cannot_be_read_is_replaced(server: NodeServer, board: Board, desk: Desk, text: str) -> None:
    server.edit(lambda node: node["metadata"]["annotations"].update({NOTICES_ANNOTATION: text}))
    desk.step()
    assert NOTICES_ANNOTATION not in server.annotations
    board.put("aws-spot", [notice()])
    desk.step()
    assert written(server) == (notice(),)


def test_of_very_many_notices_the_worst_are_said() -> None:
    many = [notice(f"n{n:0127}", deadline=NOW + n, detail="x" * 200) for n in range(500)]
    change = change_for(new_node(), many)
    assert change is not None
    said = notices_from_json(change["metadata"]["annotations"][NOTICES_ANNOTATION])
    assert [entry.deadline for entry in said] == [NOW + n for n in range(MOST_NOTICES)]


def test_the_provider_is_told_once_that_a_notice_is_served(server: NodeServer, account: Path, board: Board) -> None:
    told: list[str] = []

    def tell(served: Notice) -> None:
        told.append(served.id)
        raise SourceDown("refused: 400")

    desk = Desk(board, NodeClient(server.url, "gpu-1", account), {"azure": tell})
    board.put("azure", [notice("azure-1", source="azure"), notice("azure-2", source="azure")])
    desk.step()
    assert told == [], "nobody said that it is served"
    server.edit(lambda node: node["metadata"]["annotations"].update({CLEARED_ANNOTATION: "azure-1,other"}))
    desk.step()
    assert desk.step() == WATCHED_SECONDS
    assert told == ["azure-1"]
    assert len(written(server)) == 2, "it goes at its deadline all the same"


def test_without_a_token_or_with_a_page_for_an_answer_the_api_server_is_away(server: NodeServer, account: Path) -> None:
    client = NodeClient(server.url, "gpu-1", account)
    for page in ("<html>sign in</html>", "[]", "[" * 9_000, "x" * 2_000_000):
        server.page = page
        with pytest.raises(ApiError, match="GET") as caught:
            client.get()
        assert len(str(caught.value)) < 300
    (account / "token").unlink()
    with pytest.raises(ApiError, match="No such file"):
        client.get()


def test_a_token_that_is_replaced_is_read_anew(server: NodeServer, account: Path) -> None:
    client = NodeClient(server.url, "gpu-1", account)
    client.get()
    server.token = "another"
    with pytest.raises(ApiError, match="401 said 401"):
        client.get()
    (account / "token").write_text("another")
    assert client.get()["metadata"]["name"] == "gpu-1"


@pytest.mark.parametrize("url", ["", "127.0.0.1", "file:///etc/passwd"])
def test_an_api_server_that_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must start with http"):
        NodeClient(url, "gpu-1")


class Scripted:
    """A source that answers from a list."""

    name = "aws-spot"

    def __init__(self, *answers: Sequence[Notice] | Exception) -> None:
        self._answers = list(answers)

    def read(self) -> Sequence[Notice]:
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def rest(self) -> float:
        return 0.0


def test_a_source_that_fails_in_any_way_takes_nothing_back() -> None:
    board = Board({"aws-spot"})
    watcher = Watcher(Scripted([notice()], SourceDown("away"), RecursionError("odd"), []), board)
    for expected in ((notice(),), (notice(),), (notice(),), ()):
        watcher.step()
        assert board.wanted([]) == expected
    assert (watcher.reads, watcher.failures, watcher.up) == (4, 2, True)


def test_the_metrics_say_what_stands_and_who_answers(board: Board, desk: Desk) -> None:
    watcher = Watcher(Scripted([notice()], SourceDown("away")), board)
    watcher.step()
    desk.step()
    watcher.step()
    text = "".join(health.metrics(desk, [watcher]))
    assert 'gpufleet_node_source_up{source="aws-spot"} 0\n' in text
    assert 'gpufleet_node_source_failures_total{source="aws-spot"} 1\n' in text
    assert 'gpufleet_node_notices{kind="spot-interruption"} 1\n' in text
    assert "gpufleet_node_writes_total 1\n" in text
    assert health.resident_bytes() > 1_000_000


def test_it_is_unhealthy_when_a_thread_is_gone_or_the_desk_hangs(desk: Desk, board: Board) -> None:
    watcher = Watcher(Scripted(), board)
    assert health.unhealthy(desk, [watcher]) == "nobody reads aws-spot"
    assert health.unhealthy(desk, [], lambda: desk.worked_at + 1) is None
    assert "not worked for 1000 s" in (health.unhealthy(desk, [], lambda: desk.worked_at + 1_000) or "")


def test_every_source_is_known_to_the_board() -> None:
    from runtime.eviction.sources.aws import aws_sources
    from runtime.eviction.sources.azure import AzureSource
    from runtime.eviction.sources.file import FileSource
    from runtime.eviction.sources.gcp import gcp_sources

    found: tuple[Source, ...] = (*aws_sources(), *gcp_sources(), AzureSource(), FileSource("/notices", "gpu-1"))
    assert {source.name for source in found} == set(SOURCES)
