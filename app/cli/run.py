"""``pnnx-serve run``: one inference, exactly as the server would do it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from app.cli.arguments import files, models
from app.cli.wording import report
from app.codec.numpy_files import write_npz
from app.models.model import InferRequest
from app.progress import progress
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Load, run, report."""
    settings = files.without_limits(settings)
    found = models.find(args.model, settings)
    with progress(f"loading {found.name}"):
        model = models.prepare(found, models.load(models.newest(found)), settings)
    request = InferRequest(
        decode=lambda signature: files.read_inputs(args.input, args.image, signature, settings),
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
    sys.stdout.write(report.report(result, args.image, f"{found.name} · {model.session.backend} back end"))
    return 0
