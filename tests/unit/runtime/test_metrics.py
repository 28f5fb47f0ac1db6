from __future__ import annotations

import asyncio

import pytest
from prometheus_client import REGISTRY, generate_latest

from runtime import metrics
from runtime.health import serve
from runtime.routing.snapshot import Stage
from tests.builders import NOON, a_config, a_job, an_opening, some_books


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def test_jobs_are_counted_by_stage_and_verdict_and_fall_back_to_zero() -> None:
    config = a_config()
    metrics.publish([a_job(verdict_code="budget"), a_job("b", stage=Stage.FINISHED)], some_books(), config, NOON)
    assert value("gpufleet_jobs_by_stage", team="vision", stage="queued") == 1
    assert value("gpufleet_jobs_by_verdict", team="vision", code="budget") == 1
    metrics.publish([], None, config, NOON)
    assert value("gpufleet_jobs_by_stage", team="vision", stage="queued") == 0
    assert value("gpufleet_jobs_by_verdict", team="vision", code="budget") == 0


def test_money_is_shown_by_scope_and_period_and_stands_while_the_ledger_is_down() -> None:
    config = a_config(budget={"monthly": "100 USD", "kind": "hard"})
    metrics.publish([], some_books(an_opening()), config, NOON)
    assert value("gpufleet_committed_usd", scope="fleet", period="month") == 2
    assert value("gpufleet_limit_usd", scope="fleet", period="month") == 100
    metrics.publish([], None, config, NOON)
    assert value("gpufleet_committed_usd", scope="team vision", period="month") == 2


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
