from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from runtime import logs


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("INFO", stream)
    yield stream
    root.handlers[:], root.level = handlers, level


def read(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_the_fields_of_the_call(lines: io.StringIO) -> None:
    logging.getLogger("runtime.x").info("released", extra={"decision": "d-1", "usd": Decimal("1.5")})
    (line,) = read(lines)
    assert (line["level"], line["msg"], line["decision"], line["usd"]) == ("info", "released", "d-1", "1.5")
    assert line["ts"].endswith("Z")


def test_newlines_and_tracebacks_stay_on_one_line(lines: io.StringIO) -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logging.getLogger("x").exception("a\nb")
    (line,) = read(lines)
    assert line["msg"] == "a\nb"
    assert "second" in line["traceback"]


def test_the_http_client_does_not_log_addresses(lines: io.StringIO) -> None:
    logging.getLogger("httpx2").info("GET https://cluster/secret")
    assert read(lines) == []
