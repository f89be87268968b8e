"""``pnnx-serve report``: write a model and a measured run as one HTML file."""

from __future__ import annotations

import argparse

from app.cli.arguments import models
from app.cli.output import display_name, write_result
from app.console.quantisation import read_report
from app.console.report import measured_report
from app.progress import compiling, progress
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Load, compile, measure and write."""
    found, version, model = models.load(args.model, settings)
    with compiling(found.name) as show:
        model.compile(progress=show)
    shapes = [",".join(map(str, each)) or "scalar" for each in args.shape]
    quantised = read_report(version, found.name)
    with progress(f"measuring {found.name}"):
        page = measured_report(model, display_name(found.name), found, settings, quantised, shapes)
    write_result(page.encode(), args.output)
    return 0
