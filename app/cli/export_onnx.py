"""``pnnx-serve export-onnx``: write a model as an ONNX file for other runtimes."""

from __future__ import annotations

import argparse
import sys

import engine
from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.messages import printable
from app.models.sessions import read_graph
from app.progress import progress
from app.render.formatting import count_text, counted
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Load, translate, write and report."""
    if not engine.is_onnx(args.output):
        raise UsageError(f"OUT.onnx: found '{args.output}', expected a name that ends in .onnx")
    found = models.find(args.model, settings)
    with progress(f"loading {found.name}"):
        graph = read_graph(models.newest(found), settings)
    with progress(f"writing {args.output}"):
        graph = graph.for_any_batch() if args.any_batch else graph
        made = engine.save_onnx(graph, args.output, round_results=args.round_results)
    weights = count_text(made.weights_bytes, "B")
    where = f", large ones in {made.data}" if made.data else ""
    line = f"{args.output}: {counted(made.nodes, 'node')} of operator set {made.opset}, {weights} of weights{where}"
    sys.stdout.write(f"{printable(line)}\n")
    return 0
