"""Settings of the log and of traces, changed in all processes of a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.protocol.v2.settings import ChangingSettings
from app.serving.commands import Arguments, Command, Commands, Deed

_LOGGING: Final = "logging"
_TRACE: Final = "trace"
# How long a change may take in all workers, one that has just been started included.
_LIMIT_S: Final = 60.0


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
    await commands.make(Command(verb=_TRACE, subject=f"{_TRACE}/{model or ''}", arguments=arguments, limit_s=_LIMIT_S))


def install(commands: Commands, changing: ChangingSettings) -> None:
    """Let commands change these."""

    def log(arguments: Arguments) -> None:
        changing.logging.change(arguments)

    def trace(arguments: Arguments) -> None:
        changing.trace.change(arguments["wanted"], arguments["model"])

    async def do_log(arguments: Arguments) -> Arguments:
        log(arguments)
        return changing.logging.show()

    async def do_trace(arguments: Arguments) -> Arguments:
        trace(arguments)
        return {**arguments, "wanted": changing.trace.kept(arguments["model"])}

    commands.on(_LOGGING, Deed(do_log, log))
    commands.on(_TRACE, Deed(do_trace, trace))
