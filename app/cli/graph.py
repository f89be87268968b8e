"""``pnnx-serve graph``: look into a model."""

from __future__ import annotations

import argparse
from typing import Final

from app.cli.arguments.options import COMPUTING, MODEL_HELP, UsageError, add_setting, read_settings
from app.cli.wording.terminal import write_result
from app.progress import compiling, progress
from app.threads import thread_budget

SUMMARY: Final = "show the graph of a model: operators, shapes, weights, times"
EXAMPLES: Final = """  pnnx-serve graph digits
  pnnx-serve graph digits --profile
  pnnx-serve graph digits --explain
  pnnx-serve graph resnet18.pnnx.param --format svg --output resnet18.svg
"""
_PARAM: Final = "param"
_FORMATS: Final = ("text", "json", "svg", "dot", "mermaid", _PARAM)


def configure(parser: argparse.ArgumentParser) -> None:
    """Which model, in which form."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--format", choices=_FORMATS, default="text", help="param is the model's own file. Default: text."
    )
    parser.add_argument("--profile", action="store_true", help="run the model on zeros and add the operators' times")
    parser.add_argument(
        "--explain", action="store_true", help="tell step by step how the graph was read, ordered and understood"
    )
    parser.add_argument("--output", metavar="FILE", help="write to this file instead of stdout")
    for name in ("store", "plugins", *COMPUTING):
        add_setting(parser, name)


def execute(args: argparse.Namespace) -> int:
    """Load, measure if asked to, write."""
    settings = read_settings(args)
    if args.profile and args.format == _PARAM:
        raise UsageError("--profile: the model's own file has no times, expected another format")
    if args.explain and (args.profile or args.format != "text"):
        raise UsageError("--explain: a text of its own, expected neither --profile nor --format")
    import engine  # imports numpy, and so do these
    from app.cli.arguments import models
    from app.models.sessions import open_session
    from app.render import render, with_times

    found = models.find(args.model, settings)
    version = models.newest(found)
    if args.format == _PARAM:
        write_result(engine.read_file(version.param, 1 << 28), args.output)
        return 0
    with progress(f"loading {found.name}"):
        graph = models.load(version)
    if args.explain:
        write_result(engine.explain(graph).encode(), args.output)
        return 0
    session = open_session(graph, settings, thread_budget(settings.threads).threads)
    with compiling(found.name) as show:
        session.prepare(progress=show)
    description = {**session.describe(), "name": found.name}
    if args.profile:
        with progress(f"measuring {found.name}"):
            description = with_times(description, models.prepare(found, graph, settings).profile())
    write_result(render(description, args.format).encode(), args.output)
    return 0
