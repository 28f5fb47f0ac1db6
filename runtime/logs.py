"""Structured logs: one JSON object a line, with the fields given at the call.

Write `log.info("released", extra={"decision": decision.id, "job": job.name})`. Secrets are never given to a
log call, and the HTTP client, which would log addresses, is silenced.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import IO, Final

from runtime.clock import format_micro_time

_OWN: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_QUIET: Final = ("httpx2", "httpcore2", "asyncio")


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: ts, level, logger, msg, then the fields of the call."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; a field that JSON cannot hold is written as its text."""
        line: dict[str, object] = {
            "ts": format_micro_time(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line.update((key, value) for key, value in vars(record).items() if key not in _OWN)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, separators=(",", ":"))


def configure(level: str = "INFO", stream: IO[str] | None = None) -> None:
    """Send every log line to `stream` (standard error by default)."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
