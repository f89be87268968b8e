"""``pnnx-serve compare``: where a model's numbers leave a reference."""

from __future__ import annotations

import argparse
import sys
from typing import Final

from app.cli.arguments.options import COMPUTING, MODEL_HELP, UsageError, add_setting, read_settings
from app.progress import progress
from app.threads import thread_budget

SUMMARY: Final = "find the operator where a model's numbers leave a reference"
EXAMPLES: Final = """  pnnx-serve compare resnet18 --reference ref.npz
  pnnx-serve compare resnet18.pnnx.param --reference ref.npz --rtol 1e-3

ref.npz holds the inputs in_0, in_1, ... and whatever else was recorded: final outputs out_0, out_1, ..., and
operand/NAME for the operands of the graph. 'pnnx-serve export --reference' writes such a file.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Which model, against what, how closely."""
    parser.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    parser.add_argument("--reference", metavar="FILE", required=True, help=".npz file of recorded values")
    parser.add_argument(
        "--rtol",
        type=float,
        metavar="SHARE",
        help="allowed error as a share of the largest magnitude of a value. Default: 1e-4, for half precision more.",
    )
    parser.add_argument(
        "--atol", type=float, default=1e-6, metavar="ERROR", help="allowed absolute error. Default: 1e-6."
    )
    for name in ("store", "plugins", *COMPUTING):
        add_setting(parser, name)


def execute(args: argparse.Namespace) -> int:
    """1 when the model diverges."""
    settings = read_settings(args)
    for name in ("rtol", "atol"):
        value = getattr(args, name)
        if value is not None and not value >= 0:
            raise UsageError(f"--{name}: found {value}, expected a number that is not negative")
    import engine  # imports numpy, and so do these
    from app.cli.arguments import models, recording
    from app.cli.wording import divergence
    from app.models.sessions import open_session

    recorded = recording.read(args.reference)
    found = models.find(args.model, settings)
    with progress(f"loading {found.name}"):
        graph = models.load(models.newest(found))
        session = open_session(graph, settings, thread_budget(settings.threads).threads)
    with progress(f"comparing {found.name}"):
        comparison = engine.compare(session, recorded, rtol=args.rtol, atol=args.atol)
    sys.stdout.write(divergence.report(comparison, f"{found.name} · {session.backend} back end"))
    return int(comparison.first is not None)
