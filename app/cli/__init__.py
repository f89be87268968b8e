"""Command line ``pnnx-serve``.

``verbs`` holds all verbs and their flags; the module named after a verb has ``execute(args, settings) -> int``. The
number of BLAS threads must be set before numpy is imported, and flags can set it. The command line is therefore parsed
by modules that do not import numpy; only then is the module of the verb imported.

A failure is one line on stderr, ``pnnx-serve: error: ...``, with status 1, or 2 for a usage error. Ctrl-C ends with
status 130, a closed pipe with 141.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final, NoReturn

from app.cli.arguments.options import read_settings
from app.cli.verbs import VERBS
from app.messages import did_you_mean
from app.version import version

_PROGRAM: Final = "pnnx-serve"
_USAGE: Final = 2
_INTERRUPTED: Final = 130
# 128 + SIGPIPE: the status that a shell reports for a program killed by that signal.
_PIPE_CLOSED: Final = 141
# Values of boolean flags: allowed after a space, and allowed after "=".
_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_ANY_WORDS: Final = {**_WORDS, "1": True, "t": True, "y": True, "0": False, "f": False, "n": False}
_EPILOG: Final = """Every setting of the server is also an environment variable, PNNX_SERVE_NAME, and a key
of the settings file given by --config or PNNX_SERVE_CONFIG.

Example:
  pnnx-serve serve --store model_store
"""


class _Parser(argparse.ArgumentParser):
    """Parser with one-line errors, no abbreviated flags, and values for boolean flags.

    ``--otel true``, ``--otel=off`` and ``--no-otel`` are all understood, as values of environment variables are.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **{"allow_abbrev": False, **more})

    def parse_args(self, *args: Any, **more: Any) -> Any:
        """Return the parsed arguments; the error of an unknown flag suggests the nearest known one."""
        found, unknown = self.parse_known_args(*args, **more)
        if unknown:
            hint = did_you_mean(unknown[0].partition("=")[0], found.flags)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments after rewriting each boolean flag that has a value."""
        given = sys.argv[1:] if args is None else args
        return super().parse_known_args([*self._plain([*given])], namespace)

    def _plain(self, args: list[str]) -> Iterator[str]:
        switches = {flag: each for each in self._actions for flag in each.option_strings if _is_switch(each)}
        # After a space, "1" and "0" count as values only for verbs without positional arguments: a model may be named
        # so.
        words = _WORDS if any(not each.option_strings for each in self._actions) else {**_WORDS, "1": True, "0": False}
        while args:
            flag, equals, text = args.pop(0).partition("=")
            if flag == "--":
                yield from (flag, *args)
                return
            if flag not in switches:
                yield f"{flag}{equals}{text}"
                continue
            if equals and text.lower() not in _ANY_WORDS:
                self.error(f"argument {flag}: found '{text}', expected true or false")
            value = _ANY_WORDS[text.lower()] if equals else words.get(args[0].lower()) if args else None
            if value is not None and not equals:
                args.pop(0)
            yield from _spelled(flag, switches[flag], value is not False)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{_PROGRAM}: error: {message} ('{self.prog} --help' shows what there is)\n")


def _is_switch(action: argparse.Action) -> bool:
    is_flag = isinstance(action, argparse.BooleanOptionalAction) or (action.nargs == 0 and action.const is True)
    return is_flag and action.dest != "help"


def _spelled(flag: str, action: argparse.Action, is_on: bool) -> Iterator[str]:
    """Yield a boolean flag as argparse understands it; nothing if it is off and has no negative form."""
    if is_on:
        yield flag
    elif isinstance(action, argparse.BooleanOptionalAction):
        yield f"--{flag.removeprefix('--no-')}" if flag.startswith("--no-") else f"--no-{flag.removeprefix('--')}"


# A module cannot be named by a keyword, nor with a hyphen.
_MODULES: Final = {"import": "moving_in", "export-onnx": "export_onnx"}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status; ``argv`` excludes the program's name."""
    for stream in (sys.stdout, sys.stderr):
        # Operator names may hold characters that the terminal's encoding lacks.
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="backslashreplace")
    parser = _parser()
    given = [*(sys.argv[1:] if argv is None else argv)]
    if (bare := _without_arguments(parser, given)) is not None:
        bare.print_help(sys.stderr)
        return _USAGE
    args = parser.parse_args(given)
    try:
        settings = read_settings(args, concurrent=VERBS[args.verb].is_concurrent)
        status = int(_import(args.verb).execute(args, settings))
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _discard_output()
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        print(f"{_PROGRAM}: interrupted", file=sys.stderr)
        return _INTERRUPTED
    except Exception as exc:
        if args.debug:
            raise
        message, status = _import("output").explain(exc)
        print(f"{_PROGRAM}: error: {message}", file=sys.stderr)
        return int(status)


def _without_arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> argparse.ArgumentParser | None:
    """Return the parser whose help to print if the program, or a verb that needs arguments, is called alone."""
    if not given:
        return parser
    (verbs,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    found = verbs.choices.get(given[0])
    if len(given) > 1 or found is None or not any(not each.option_strings for each in found._actions):
        return None
    return found  # type: ignore[no-any-return]  # argparse does not say which parsers these are


def _import(name: str) -> Any:
    """Import a module of this package that needs numpy; the number of threads has been set by now."""
    return import_module(f"{__name__}.{_MODULES.get(name, name)}")


def _discard_output() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's final flush does not fail."""
    with suppress(OSError):  # a replaced stdout without a file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=_PROGRAM,
        description="Serve PNNX and ONNX models over HTTP, and inspect them.",
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
        if verb.common:
            flags.usage = f"{flags.prog} [OPTIONS]"
        known = [flag for action in flags._actions for flag in action.option_strings if flag.startswith("--")]
        flags.set_defaults(verb=name, flags=known)
    return parser
