"""Settings that clients may change at run time: the log level, and which requests are traced."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from app.errors import RefusedError
from app.messages import brief, cut, quoted
from app.models.statistics import Timing
from app.serving.control import Arguments, Command, CommandHandler, Commands

_trace = logging.getLogger("app.trace")

_LEVELS: Final = ("OFF", "TIMESTAMPS")
_TRACE: Final = {
    "trace_file": "", "trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0",
}  # fmt: skip
_FLAGS: Final = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
_MAX_DIGITS: Final = 9
_LOGGING: Final = "logging"
_TRACING: Final = "trace"
# Time limit of a change in all workers, including one that has just started.
_LIMIT_S: Final = 60.0


class LogSettings:
    """Log level in the protocol's form: a flag for each level, and a number for verbose levels."""

    def show(self) -> dict[str, Any]:
        """Return all settings."""
        level = logging.getLogger().getEffectiveLevel()
        return {
            "log_file": "",
            **{name: level <= least for name, least in _FLAGS.items()},
            "log_verbose_level": int(level <= logging.DEBUG),
            "log_format": "default",
        }

    def change(self, wanted: Mapping[str, Any]) -> None:
        """Change the given settings.

        Raises:
            RefusedError: an unknown name or value, or a setting that must not be changed remotely.
        """
        for key, value in wanted.items():
            self._check(key, value)
        now = {**self.show(), **wanted}
        level = next((least for name, least in _FLAGS.items() if now[name]), logging.CRITICAL)
        logging.getLogger().setLevel(logging.DEBUG if now["log_verbose_level"] else level)

    def _check(self, key: str, value: object) -> None:
        known = self.show()
        if key not in known:
            raise RefusedError(f"unknown setting '{cut(key)}', expected one of {quoted(known)}")
        if key in ("log_file", "log_format"):
            if value != known[key]:
                raise RefusedError(f"{key} cannot be changed remotely, expected '{known[key]}'")
        elif key == "log_verbose_level":
            if not _is_whole(value):
                raise RefusedError(f"Unable to parse '{key}': found {brief(value)}, expected a whole number")
        elif not isinstance(value, bool):
            raise RefusedError(f"Unable to parse '{key}': found {brief(value)}, expected true or false")


def _is_whole(value: object) -> bool:
    """Return whether a value is a whole number from 0 on; 2.0 is one in JSON."""
    return (type(value) is int or (type(value) is float and value.is_integer())) and value >= 0


class TraceSettings:
    """Selection of requests that are logged with their stage times, for all models or for one."""

    def __init__(self) -> None:
        self._all: dict[str, Any] = dict(_TRACE)
        self._own: dict[str, dict[str, Any]] = {}
        self._seen = 0

    def show(self, model: str | None = None) -> dict[str, Any]:
        """Return the settings of a model, or those for all models."""
        return {**self._all, **self._own.get(model or "", {})}

    def changed(self, model: str | None = None) -> dict[str, Any]:
        """Return the changed settings; for a model its own only."""
        return dict(self._all if model is None else self._own.get(model, {}))

    def change(self, wanted: Mapping[str, Any], model: str | None = None) -> None:
        """Change the given settings; null restores the default, for a model the settings for all models.

        Raises:
            RefusedError: an unknown name or value.
        """
        for key, value in wanted.items():
            _check_trace(key, value)
        settings = self._all if model is None else self._own.setdefault(model, {})
        for key, value in wanted.items():
            if value is not None:
                settings[key] = value
            elif model is None:
                settings[key] = _TRACE[key]
            else:
                settings.pop(key, None)

    def record(self, model: str, version: int, request: str | None, timing: Timing) -> None:
        """Log a request if it is one of the traced ones."""
        settings = self.show(model)
        left = int(settings["trace_count"])
        if settings["trace_level"] == ["OFF"] or not left:
            return
        self._seen += 1
        if self._seen % int(settings["trace_rate"]):
            return
        if left > 0:
            owner = self._own.get(model, {})
            (owner if "trace_count" in owner else self._all)["trace_count"] = str(left - 1)
        row = {"model": model, "version": version, "id": request, **timing.as_ms()}
        _trace.info("trace", extra=row)


def _check_trace(key: str, value: object) -> None:
    if key not in _TRACE:
        raise RefusedError(f"unknown setting '{cut(key)}', expected one of {quoted(_TRACE)}")
    if value is None:
        return
    if key == "trace_level":
        if not isinstance(value, list) or not value or any(level not in _LEVELS for level in value):
            raise RefusedError(f"trace_level: found {brief(value)}, expected a list of {quoted(_LEVELS)}")
        return
    if key in ("trace_file", "log_frequency"):
        if value != _TRACE[key]:
            raise RefusedError(f"{key} cannot be changed, expected '{_TRACE[key]}': traces are written to the log")
        return
    least = -1 if key == "trace_count" else 1
    digits = value.removeprefix("-") if isinstance(value, str) else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS) or int(str(value)) < least:
        raise RefusedError(f"{key}: found {brief(value)}, expected a whole number from {least} on, as text")


class RuntimeSettings:
    """Log and trace settings of one server."""

    def __init__(self) -> None:
        self.logging = LogSettings()
        self.trace = TraceSettings()


async def change_logging(commands: Commands, wanted: Mapping[str, Any]) -> None:
    """Change log settings in all workers.

    Raises:
        RefusedError: an unknown name or value, or a setting that must not be changed remotely.
    """
    await commands.make(Command(verb=_LOGGING, subject=_LOGGING, arguments=wanted, limit_s=_LIMIT_S))


async def change_trace(commands: Commands, wanted: Mapping[str, Any], model: str | None) -> None:
    """Change trace settings in all workers, for all models or for one.

    Raises:
        RefusedError: an unknown name or value.
    """
    arguments = {"wanted": wanted, "model": model}
    await commands.make(
        Command(verb=_TRACING, subject=f"{_TRACING}/{model or ''}", arguments=arguments, limit_s=_LIMIT_S)
    )


def install(commands: Commands, runtime_settings: RuntimeSettings) -> None:
    """Register the commands that change these settings."""

    def log(arguments: Arguments) -> None:
        runtime_settings.logging.change(arguments)

    def trace(arguments: Arguments) -> None:
        runtime_settings.trace.change(arguments["wanted"], arguments["model"])

    async def do_log(arguments: Arguments) -> Arguments:
        log(arguments)
        return runtime_settings.logging.show()

    async def do_trace(arguments: Arguments) -> Arguments:
        trace(arguments)
        return {**arguments, "wanted": runtime_settings.trace.changed(arguments["model"])}

    commands.on(_LOGGING, CommandHandler(do_log, log))
    commands.on(_TRACING, CommandHandler(do_trace, trace))
