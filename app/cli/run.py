"""``pnnx-serve run``: one inference, exactly as the server would do it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from app.cli.arguments.options import COMPUTING, MODEL_HELP, add_setting, read_settings
from app.progress import progress

SUMMARY: Final = "run a model once, without a server"
EXAMPLES: Final = """  pnnx-serve run digits --image seven.png
  pnnx-serve run faces --image party.jpg --draw found.png
  pnnx-serve run resnet18.pnnx.param --input x.npy --output y.npz
  pnnx-serve run two_inputs.pnnx.param --input in1=b.npy --input in0=a.npy
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """What to run, on what, and where to."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument(
        "--input",
        action="extend",
        nargs="+",
        default=[],
        metavar="[NAME=]FILE",
        help=".npy or .npz file; without a name the inputs stand in the model's order",
    )
    parser.add_argument(
        "--image", action="extend", nargs="+", default=[], metavar="FILE", help="picture; several are a batch"
    )
    parser.add_argument("--output", metavar="FILE", help="save all outputs in this .npz file")
    parser.add_argument("--draw", metavar="FILE", help="save the picture with what was found in it as this .png file")
    parser.add_argument("--top-k", type=int, metavar="CLASSES", help="how many classes a classifier names")
    for name in ("store", "plugins", *COMPUTING):
        add_setting(parser, name)


def execute(args: argparse.Namespace) -> int:
    """Load, run, report."""
    settings = read_settings(args)
    from app.cli.arguments import files, models
    from app.cli.wording import report
    from app.codec.numpy_files import write_npz
    from app.models.model import InferRequest

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
