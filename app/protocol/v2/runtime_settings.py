"""Settings that clients may change while a server runs: what is logged, and which requests are traced."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from app.errors import RefusedError
from app.messages import brief, cut, quoted
from app.models.statistics import Timing
from app.serving.commands import Arguments, Command, CommandHandler, Commands

_trace = logging.getLogger("app.trace")

_LEVELS: Final = ("OFF", "TIMESTAMPS")
_TRACE: Final = {
    "trace_file": "", "trace_level": ["OFF"], "trace_rate": "1000", "trace_count": "-1", "log_frequency": "0",
}  # fmt: skip
_FLAGS: Final = {"log_info": logging.INFO, "log_warning": logging.WARNING, "log_error": logging.ERROR}
_MAX_DIGITS: Final = 9
_LOGGING: Final = "logging"
_TRACING: Final = "trace"
# How long a change may take in all workers, one that has just been started included.
_LIMIT_S: Final = 60.0


class LogSettings:
    """The least severe line that is logged, as the protocol says it: a flag for each level, and how much beyond."""

    def show(self) -> dict[str, Any]:
        """All of them."""
        level = logging.getLogger().getEffectiveLevel()
        return {
            "log_file": "",
            **{name: level <= least for name, least in _FLAGS.items()},
            "log_verbose_level": int(level <= logging.DEBUG),
            "log_format": "default",
        }

    def change(self, wanted: Mapping[str, Any]) -> None:
        """Change those that are given.

        Raises:
            RefusedError: a name or a value there is not, or a setting that may not be changed from outside.
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
                raise RefusedError(f"{key} cannot be changed over the network: it is '{known[key]}'")
        elif key == "log_verbose_level":
            if not _is_whole(value):
                raise RefusedError(f"Unable to parse '{key}': found {brief(value)}, expected a whole number")
        elif not isinstance(value, bool):
            raise RefusedError(f"Unable to parse '{key}': found {brief(value)}, expected true or false")


def _is_whole(value: object) -> bool:
    """Whether it is a whole number, none negative; 2.0 is one in JSON."""
    return (type(value) is int or (type(value) is float and value.is_integer())) and value >= 0


class TraceSettings:
    """One in so many requests is told in the log, with where its time went; of all models, or of one by itself."""

    def __init__(self) -> None:
        self._all: dict[str, Any] = dict(_TRACE)
        self._own: dict[str, dict[str, Any]] = {}
        self._seen = 0

    def show(self, model: str | None = None) -> dict[str, Any]:
        """The settings of a model, or those for all models."""
        return {**self._all, **self._own.get(model or "", {})}

    def changed(self, model: str | None = None) -> dict[str, Any]:
        """What was changed: of a model its own settings only."""
        return dict(self._all if model is None else self._own.get(model, {}))

    def change(self, wanted: Mapping[str, Any], model: str | None = None) -> None:
        """Change those that are given; null is what holds for all, and for all what it was at the start.

        Raises:
            RefusedError: a name or a value there is not.
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
        """Tell of a request, if it is one of those that are traced."""
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
        told = {"model": model, "version": version, "id": request, **timing.as_ms()}
        _trace.info("trace", extra=told)


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
            raise RefusedError(f"{key} cannot be changed: traces are lines of the log")
        return
    least = -1 if key == "trace_count" else 1
    digits = value.removeprefix("-") if isinstance(value, str) else ""
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS) or int(str(value)) < least:
        raise RefusedError(f"{key}: found {brief(value)}, expected a whole number from {least} on, as text")


class RuntimeSettings:
    """Both, of one server."""

    def __init__(self) -> None:
        self.logging = LogSettings()
        self.trace = TraceSettings()


async def change_logging(commands: Commands, wanted: Mapping[str, Any]) -> None:
    """Change some settings of the log.

    Raises:
        RefusedError: a name or a value there is not, or a setting that may not be changed from outside.
    """
    await commands.make(Command(verb=_LOGGING, subject=_LOGGING, arguments=wanted, limit_s=_LIMIT_S))


async def change_trace(commands: Commands, wanted: Mapping[str, Any], model: str | None) -> None:
    """Change some settings of traces, of all models or of one by itself.

    Raises:
        RefusedError: a name or a value there is not.
    """
    arguments = {"wanted": wanted, "model": model}
    await commands.make(
        Command(verb=_TRACING, subject=f"{_TRACING}/{model or ''}", arguments=arguments, limit_s=_LIMIT_S)
    )


def install(commands: Commands, runtime_settings: RuntimeSettings) -> None:
    """Let commands change these."""

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
