"""``pnnx-serve``: a command line, and the module that does what it says.

All verbs and their flags are in ``verbs``; the module of a verb's name has ``execute(args, settings) -> int``. The
number of BLAS threads must be settled before numpy is imported, and flags have a say in it. So the command line is read
first, by modules that import no numpy; then the module of the verb is imported, here and nowhere else, and from there
on every module imports at its top what it needs.

What fails is one line on stderr, ``pnnx-serve: error: ...``, and a status: 1, or 2 when the call itself is wrong. A
reader that goes away ends the program quietly, Ctrl-C with 130.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn

from app.cli.arguments.options import read_settings
from app.cli.verbs import VERBS
from app.version import version
from app.wording import did_you_mean

_PROGRAM: Final = "pnnx-serve"
_INTERRUPTED: Final = 130
# 128 + SIGPIPE, what a shell reports of a program that the signal ended.
_PIPE_CLOSED: Final = 141
_EPILOG: Final = """Every setting of the server is also an environment variable, PNNX_SERVE_NAME, and a key
of the file that --config or PNNX_SERVE_CONFIG names.

Example:
  pnnx-serve serve --store model_store
"""


class _Parser(argparse.ArgumentParser):
    """argparse's parser, with errors of one line, and flags that are written out."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **more})

    def parse_args(self, *args: Any, **more: Any) -> Any:
        """The arguments; an unknown flag is told with the one it may have been meant for."""
        found, unknown = self.parse_known_args(*args, **more)
        if unknown:
            hint = did_you_mean(unknown[0].partition("=")[0], found.flags)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{_PROGRAM}: error: {message} ('{self.prog} --help' shows what there is)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; argv without its name, by default that of the process. The exit status."""
    for stream in (sys.stdout, sys.stderr):
        # Names of operators may hold what the terminal's encoding has not.
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    args = _parser().parse_args(argv)
    try:
        settings = read_settings(args, concurrent=VERBS[args.verb].is_concurrent)
        status = int(_settled(args.verb).execute(args, settings))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_output()
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    except Exception as exc:
        if args.debug:
            raise
        message, status = _settled("wording.failure").explain(exc)
        print(f"{_PROGRAM}: error: {message}", file=sys.stderr)
        return int(status)


def _settled(name: str) -> Any:
    """A module of this package that imports numpy, for which the number of threads is settled by now."""
    return import_module(f"{__name__}.{name}")


def _discard_output() -> None:
    """Let the interpreter's last flush go nowhere instead of complaining."""
    with suppress(OSError):  # a stand-in without a file behind it has nothing to flush
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM,
        description="Serve PNNX models over HTTP, and look into them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {version()}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, verb in VERBS.items():
        flags = verbs.add_parser(
            name,
            help=verb.summary,
            description=f"{verb.summary[0].upper()}{verb.summary[1:]}.",
            epilog=f"Examples:\n{verb.examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        flags.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        verb.add_to(flags)
        flags.set_defaults(verb=name, flags=re.findall(r"--[\w-]+", flags.format_usage()))
    return parser
