"""Log lines: text for people, JSON for machines, each with the id of the request it belongs to.

Only the standard library, so that uvicorn's lines and ours go through one pipe and look alike.
"""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import orjson

request_id: Final[ContextVar[str]] = ContextVar("request_id", default="-")

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "color_message", "request_id"}


class TextFormatter(logging.Formatter):
    """``12:00:00 INFO app.store: model 'digits' is ready [request id]``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; the request id only where there is one."""
        text = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname} {record.name}: {record.getMessage()}"
        extra = " ".join(f"{key}={value}" for key, value in _extra(record).items())
        marks = " ".join(part for part in (extra, f"[{request_id.get()}]" if request_id.get() != "-" else "") if part)
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{text} {marks}".rstrip() + trace


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, the line's own fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **({} if request_id.get() == "-" else {"request_id": request_id.get()}),
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


def configure_logging(level: str, form: str) -> None:
    """Send every logger's lines to stderr in the given form ("text" or "json"), from the given level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD and not key.startswith("_")}
