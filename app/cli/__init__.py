"""``pnnx-serve``: one verb, one module.

A verb is a module of this package with SUMMARY, EXAMPLES, ``configure(parser)`` and ``execute(args) -> int``; to add
one is to write it and name it in ``VERBS``. A verb may not import numpy, nor anything that does, before it has called
``read_settings``: the number of BLAS threads is settled there. So such imports stand inside ``execute``.

What fails is one line on stderr, ``pnnx-serve: error: ...``, and a status: 1, or 2 when the call itself is wrong. A
reader that goes away ends the program quietly, Ctrl-C with 130.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from typing import Final, NoReturn

from app.cli import bench, check, compare, compile, export, graph, run, serve

VERBS: Final[dict[str, ModuleType]] = {
    "serve": serve,
    "run": run,
    "graph": graph,
    "check": check,
    "compare": compare,
    "bench": bench,
    "compile": compile,
    "export": export,
}

_PROGRAM: Final = "pnnx-serve"
_INTERRUPTED: Final = 130
# 128 + SIGPIPE, what a shell reports of a program that the signal ended.
_PIPE_CLOSED: Final = 141
_EPILOG: Final = """Every setting of the server is also an environment variable, PNNX_SERVE_NAME.

Example:
  pnnx-serve serve --store model_store
"""


class _Parser(argparse.ArgumentParser):
    """argparse's parser, with errors of one line."""

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
        status = int(args.execute(args))
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
        return _fail(exc)


def _fail(exc: Exception) -> int:
    from app.cli.wording.failure import explain  # imports numpy

    message, status = explain(exc)
    print(f"{_PROGRAM}: error: {message}", file=sys.stderr)
    return status


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
    parser.add_argument("--version", action="version", version=f"{_PROGRAM} {_version()}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, module in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=module.SUMMARY,
            description=f"{module.SUMMARY[0].upper()}{module.SUMMARY[1:]}.",
            epilog=f"Examples:\n{module.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        verb.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        verb.set_defaults(execute=module.execute)
        module.configure(verb)
    return parser


def _version() -> str:
    try:
        return version(_PROGRAM)
    except PackageNotFoundError:  # run from a folder that is not installed
        return "0"
