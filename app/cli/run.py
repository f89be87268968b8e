"""``pnnx-serve run``: one inference, exactly as the server would do it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from app.cli.arguments import files, models
from app.cli.wording import report
from app.codec.arrays.numpy_files import write_npz
from app.models.model import Model
from app.models.request import InferRequest
from app.progress import compiling, progress
from app.settings import Settings
from app.signature import Inputs


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Load, run, report."""
    settings = files.without_limits(settings)
    found = models.find(args.model, settings)
    with progress(f"loading {found.name}"):
        model = models.prepare(found, models.load(models.newest(found), settings), settings)
    pictures = files.find_pictures(args.image)
    inputs = files.read_inputs(args.input, pictures, model.signature, settings)
    if _is_exported(model, inputs):  # what the run would have to wait for, and would not tell
        with compiling(found.name) as show:
            model.compile(progress=show)
    request = InferRequest(
        decode=lambda _: inputs,
        outputs=True,
        draw=args.draw is not None,
        parameters={} if args.top_k is None else {"top_k": args.top_k},
    )
    with progress(f"running {found.name}"):
        result = model.infer(request)
    if args.output is not None:
        Path(args.output).write_bytes(write_npz(result.outputs))
    if result.drawing is not None:
        Path(args.draw).write_bytes(result.drawing)
    sys.stdout.write(report.report(result, pictures, f"{found.name} · {model.session.backend} back end"))
    return 0


def _is_exported(model: Model, inputs: Inputs) -> bool:
    """Whether a run of these inputs is one of the shapes that are compiled when they are first met."""
    zeros = model.example_inputs() or {}
    return bool(zeros) and all(
        len(given) == len(zeros[name]) if isinstance(given, tuple) else np.shape(given) == zeros[name].shape
        for name, given in inputs.items()
    )
