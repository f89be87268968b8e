"""Compare ONNX files that ``engine.save_onnx`` writes with those of ``torch.onnx.export``, both in onnxruntime.

    python -m benchmarks.exported [--folder FOLDER] [--networks resnet18 ...] [--seconds 1] [--save NAME]

The networks are those that ``bench_graph`` has exported, in float32. Both sessions run in this process on one thread
and take turns; both answers are compared with PyTorch's before anything is timed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from app.measuring.contest import RIVALS, Contest
from benchmarks.files import Files, default_folder
from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import pair_table

NETWORKS: Final = (
    "resnet18", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "unet_256", "yolov5n", "bert_mini_128",
    "vit_tiny_224", "swin_tiny_224", "convnext_tiny_224", "lstm_tagger_100",
)  # fmt: skip


def measure(files: Files, seconds: float) -> dict[str, Any]:
    """Return the fastest and the median time of both files of a network, in seconds.

    Raises:
        RivalError: an answer differs from PyTorch's.
    """
    rival = RIVALS["onnxruntime"]
    contest = Contest([np.load(files.input(1))], [np.load(files.output(1))])
    with tempfile.TemporaryDirectory(prefix="exported-") as folder:
        ours = Path(folder) / "model.onnx"
        engine.save_onnx(engine.load(files.param), ours)
        for name, path in ((OURS, ours), ("torch", files.onnx(1))):
            contest.enter(name, rival.make(import_module(rival.module), path, 1))
    times = contest.measure(seconds, lambda *_: None)
    found = {name: [each.least_s, each.median_s] for name, each in times.items()}
    return {"network": files.folder.name, **found, "error": contest.errors[OURS]}


def report(records: list[dict[str, Any]]) -> str:
    """Return the table of the times of our file and of PyTorch's."""
    titles = ("torch.onnx.export ms", "export-onnx ms")
    return pair_table(records, ("torch", OURS), titles, "ours / PyTorch's")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=default_folder(), help="of the exported networks")
    parser.add_argument("--networks", nargs="+", metavar="NETWORK", default=NETWORKS)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each file (1)")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    records = [measure(Files(options.folder / name), options.seconds) for name in options.networks]
    how = f"one thread, {options.seconds:g} s for each file, in turns"
    machine = describe([OURS, "onnxruntime", "torch"])
    result = Result(kind="exported", machine=machine, how=how, body=report(records), records=records)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
