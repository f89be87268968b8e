"""``pnnx-serve report``: write a model and a measured run as one HTML file."""

from __future__ import annotations

import argparse
from contextlib import nullcontext, suppress
from functools import partial

from app.cli.arguments import models
from app.cli.output import display_name, write_result
from app.codec.parse import parse
from app.console.profiling import inputs_to_measure, profile
from app.console.quantisation import read_report
from app.console.report import report
from app.errors import InvalidRequestError
from app.models.request import InferRequest
from app.progress import compiling, progress
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Load, compile, measure and write."""
    found, version, model = models.load(args.model, settings)
    with compiling(found.name) as show:
        model.compile(progress=show)
    measured = None
    # With dynamic sizes and no shapes there is nothing to run, but still a graph to show.
    shapes = [",".join(map(str, each)) or "scalar" for each in args.shape]
    with progress(f"measuring {found.name}"), nullcontext() if shapes else suppress(InvalidRequestError):
        measured = profile(model, settings, *inputs_to_measure(model, found, partial(_read, settings), shapes))
    description = {**model.session.describe(), "name": display_name(found.name)}
    write_result(report(description, measured, read_report(version, found.name)).encode(), args.output)
    return 0


def _read(settings: Settings, content: bytes, kind: str) -> InferRequest:
    return InferRequest(decode=parse(content, kind, settings).decode, parameters={})
