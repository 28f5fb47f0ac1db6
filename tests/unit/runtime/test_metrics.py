from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY, generate_latest

from runtime import metrics
from runtime.cost.ledger import Books
from runtime.cost.standing import reached, summary
from runtime.health import serve
from runtime.routing.snapshot import Stage
from stacks.agent_config import AgentConfig
from tests.builders import NOON, SPOT, a_config, a_job, a_team, an_opening, some_books
from tests.unit.runtime.losses import a_loss


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def publish_money(books: Books, config: AgentConfig) -> None:
    found = summary(books, config, NOON)
    metrics.publish_money(found, reached(found, config), config)


def test_jobs_are_counted_by_stage_and_verdict_and_fall_back_to_zero() -> None:
    config = a_config()
    metrics.publish_jobs([a_job(verdict_code="budget"), a_job("b", stage=Stage.FINISHED)], config)
    assert value("gpufleet_jobs_by_stage", team="vision", stage="queued") == 1
    assert value("gpufleet_jobs_by_verdict", team="vision", code="budget") == 1
    metrics.publish_jobs([], config)
    assert value("gpufleet_jobs_by_stage", team="vision", stage="queued") == 0
    assert value("gpufleet_jobs_by_verdict", team="vision", code="budget") == 0


def test_money_is_shown_by_scope_and_period() -> None:
    publish_money(some_books(an_opening()), a_config(budget={"monthly": "100 USD", "kind": "hard"}))
    assert value("gpufleet_committed_usd", scope="fleet", period="month") == 2
    assert value("gpufleet_limit_usd", scope="fleet", period="month") == 100
    assert value("gpufleet_topped_up_usd", scope="fleet", period="month") == 0
    assert value("gpufleet_limit_usd", scope="fleet", period="week") is None
    assert value("gpufleet_committed_usd", scope="team vision", period="week") == 2


def test_a_limit_that_was_taken_away_is_not_shown_any_more() -> None:
    publish_money(some_books(), a_config(budget={"monthly": "100 USD", "daily": "9 USD"}))
    assert value("gpufleet_limit_usd", scope="fleet", period="day") == 9
    publish_money(some_books(), a_config(budget={"monthly": "100 USD"}))
    assert value("gpufleet_limit_usd", scope="fleet", period="day") is None
    assert value("gpufleet_budget_threshold_reached", scope="fleet", period="day", threshold="50%") is None


def test_each_threshold_is_one_while_it_is_reached() -> None:
    config = a_config(budget={"daily": "3 USD", "thresholds": ["50%", "100%"]})
    publish_money(some_books(an_opening()), config)
    assert value("gpufleet_budget_threshold_reached", scope="fleet", period="day", threshold="50%") == 1
    assert value("gpufleet_budget_threshold_reached", scope="fleet", period="day", threshold="100%") == 0
    publish_money(some_books(), config)
    assert value("gpufleet_budget_threshold_reached", scope="fleet", period="day", threshold="50%") == 0


def test_a_team_that_left_the_fleet_leaves_the_metrics_too() -> None:
    before, now = a_config(), a_config(teams={"nlp": a_team("nlp")})
    metrics.publish_jobs([], before)
    publish_money(some_books(an_opening()), before)
    metrics.clears.labels(team="vision", job_class="p1", flavor=SPOT).inc()
    metrics.forget_absent(before, now)
    left = generate_latest().decode()
    assert 'team="vision"' not in left
    assert 'scope="team vision"' not in left
    assert value("gpufleet_jobs_by_stage", team="nlp", stage="queued") == 0


def test_a_replica_that_stands_by_shows_nothing_of_the_fleet() -> None:
    metrics.publish_jobs([], a_config())
    publish_money(some_books(), a_config(budget={"daily": "3 USD"}))
    metrics.stand_down()
    left = generate_latest().decode()
    for name in ("jobs_by_stage", "jobs_by_verdict", "spent_usd", "limit_usd", "budget_threshold_reached"):
        assert f"gpufleet_{name}{{" not in left


def test_every_metric_is_ours_by_name_and_says_what_it_is() -> None:
    declared = [metric for metric in vars(metrics).values() if hasattr(metric, "_documentation")]
    assert len(declared) > 15
    for metric in declared:
        assert metric._name.startswith("gpufleet_")
        assert metric._documentation.endswith(".")
        assert "job" not in metric._labelnames
        assert "namespace" not in metric._labelnames


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (b"GET /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /readyz?verbose HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 503 Service Unavailable"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"HTTP/1.1 200 OK"),
        (b"GET /secret HTTP/1.1\r\n\r\n", b"HTTP/1.1 404 Not Found"),
        (b"POST /healthz HTTP/1.1\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"\xff\xfe\r\n\r\n", b"HTTP/1.1 405 Method Not Allowed"),
        (b"GET /healthz", b""),
        (b"GET /" + b"x" * 100_000 + b"\r\n\r\n", b""),
    ],
)
def test_health_answers_what_it_is_asked_and_nothing_else(request_: bytes, expected: bytes) -> None:
    async def ask() -> bytes:
        server = await serve("127.0.0.1", 0, healthy=lambda: None, ready=lambda: "not yet")
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
            writer.write(request_)
            writer.write_eof()
            try:
                return await reader.read()
            except ConnectionError:
                return b""
            finally:
                writer.close()

    answer = asyncio.run(ask())
    assert answer.startswith(expected)
    assert bool(answer) == bool(expected)
    if b"/readyz" in request_:
        assert answer.endswith(b"not yet\n")


def test_metrics_are_served_in_the_format_of_prometheus() -> None:
    assert b"# HELP gpufleet_decision_seconds" in generate_latest()


def test_an_eviction_is_counted_by_what_came_of_it() -> None:
    labels = {"team": "vision", "job_class": "p1", "kind": "repair"}
    for answered in (True, False, False):
        metrics.count_loss(a_loss(kind="repair", answered=answered))
    assert value("gpufleet_evictions_total", **labels, answered="true") == 1
    assert value("gpufleet_evictions_total", **labels, answered="false") == 2
    assert value("gpufleet_lost_gpu_seconds_total", **labels) == 540
    assert value("gpufleet_eviction_notice_to_stopped_seconds_sum", kind="repair") == 303
