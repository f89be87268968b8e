"""Log lines as text or JSON, each with the id of its request.

Only the standard library's logging, so that uvicorn's lines have the same form. Log lines may contain text from
clients and files: this module makes sure that a line of text stays one line, of bounded length, without control
characters. Lines of a traceback are indented, so that none can be mistaken for another log line.
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from app.codec.answers import as_text
from app.messages import cut, printable

request_id: Final[ContextVar[str]] = ContextVar("request_id", default="-")
# Trace id of the request, if the client sends one.
trace_id: Final[ContextVar[str]] = ContextVar("trace_id", default="-")

_STANDARD: Final = (
    frozenset(logging.makeLogRecord({}).__dict__)
    | {"message", "asctime", "color_message"}
    | {
        "request_id",
        "trace_id",
    }
)
# Limits in characters of a line and of a traceback; longer ones are cut in the middle.
_LINE: Final = 8_000
_TRACE: Final = 64_000


class TextFormatter(logging.Formatter):
    """Formatter for lines such as ``12:00:00 INFO app.models.registry.store: model 'digits' is ready [request id]``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line, followed by those of the exception."""
        text = f"{self.formatTime(record, '%H:%M:%S')} {record.levelname} {record.name}: {_message(record)}"
        extra = " ".join(f"{key}={as_text(value, _LINE)}" for key, value in _extra(record).items())
        ids = " ".join(each.get() for each in (request_id, trace_id) if each.get() != "-")
        marks = " ".join(part for part in (extra, f"[{ids}]" if ids else "") if part)
        line = printable(f"{cut(text, _LINE)} {cut(marks, _LINE)}".rstrip())
        return line + (self._trace(record) if record.exc_info else "")

    def _trace(self, record: logging.LogRecord) -> str:
        assert record.exc_info is not None
        trace = cut(self.formatException(record.exc_info), _TRACE)
        return "".join(f"\n  {printable(line)}" for line in trace.split("\n"))


class JsonFormatter(logging.Formatter):
    """Formatter for JSON objects: time, level, logger, message, request_id, trace_id, extra fields, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line of JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": cut(_message(record), _LINE),
            **{each.name: each.get() for each in (request_id, trace_id) if each.get() != "-"},
            **_extra(record),
        }
        if record.exc_info:
            line["exception"] = cut(self.formatException(record.exc_info), _TRACE)
        return _as_json(line)


def configure_logging(level: str, form: str) -> None:
    """Send the lines of all loggers to stderr as "text" or "json", from the given level on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _as_json(line: dict[str, Any]) -> str:
    """Return the line as JSON; values that JSON cannot represent are converted rather than losing the line."""
    with suppress(Exception):
        return orjson.dumps(line, default=str).decode()
    with suppress(Exception):  # lone surrogates, integers beyond 64 bits
        return json.dumps(line, default=str, allow_nan=False)
    return json.dumps({key: as_text(value, _LINE) for key, value in line.items()})


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # an argument that cannot be formatted: log the rest
        return f"{as_text(record.msg, _LINE)} {as_text(record.args, _LINE)}"


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {key: value for key, value in record.__dict__.items() if key not in _STANDARD and not key.startswith("_")}
