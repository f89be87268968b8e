"""``pnnx-serve graph``: show the graph of a model."""

from __future__ import annotations

import argparse
from typing import Final

import engine
from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.cli.arguments.pipelines import load_any
from app.cli.output import display_name, write_result
from app.models.folder.repository import VersionFiles
from app.models.sessions import open_session, read_graph
from app.progress import compiling, progress
from app.render import render, with_times
from app.settings import Settings
from app.thread_limits import thread_budget

_PARAM: Final = "param"


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Load, measure if requested, and write."""
    if args.profile and args.format == _PARAM:
        raise UsageError("--profile: found --format param, which has no times, expected another format")
    if args.explain and (args.profile or args.format != "text"):
        raise UsageError("--explain: found with --profile or --format, expected alone")
    found = models.find(args.model, settings)
    if found.pipeline is not None and not (args.profile or args.explain or args.format == _PARAM):
        write_result(render(load_any(args.model, settings)[1].describe(), args.format).encode(), args.output)
        return 0
    version = models.newest(found)
    if args.format == _PARAM:
        write_result(_text(version, settings), args.output)
        return 0
    with progress(f"loading {found.name}"):
        graph = read_graph(version, settings)
    if args.explain:
        write_result(engine.explain(graph).encode(), args.output)
        return 0
    session = open_session(graph, settings, thread_budget(settings.threads).threads)
    with compiling(found.name) as show:
        session.prepare(progress=show)
    description = {**session.describe(), "name": display_name(found.name)}
    if args.profile:
        with progress(f"measuring {found.name}"):
            description = with_times(description, models.prepare(found, version, graph, settings).profile())
    write_result(render(description, args.format).encode(), args.output)
    return 0


def _text(version: VersionFiles, settings: Settings) -> bytes:
    """Return the text file of a pair; for an ONNX model, the text of the equivalent pair."""
    if engine.is_onnx(version.param):
        return read_graph(version, settings).text().encode()
    return engine.read_file(version.param, 1 << 28)
