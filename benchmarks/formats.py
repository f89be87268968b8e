"""Compare networks from ONNX files with the same networks from PNNX pairs.

    python -m benchmarks.formats [--folder FOLDER] [--networks resnet18 ...] [--seconds 1] [--cache DIR] [--save NAME]

The networks are those that ``bench_graph`` has exported. Both sessions run in this process on one thread and take
turns; both answers are compared with PyTorch's before anything is timed. A filled cache saves compiling.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from app.measuring.contest import Contest
from benchmarks.files import Files, default_folder
from benchmarks.machine import describe
from benchmarks.raw import Result
from benchmarks.record import OURS
from benchmarks.report import pair_table

FORMATS: Final = ("pnnx", "onnx")


def measure(folder: Path, seconds: float, cache: Path) -> dict[str, Any]:
    """Return the fastest and the median time of a network from both formats.

    Raises:
        RivalError: an answer differs from PyTorch's.
    """
    files = Files(folder)
    inputs, expected = [np.load(files.input(1))], [np.load(files.output(1))]
    contest = Contest(inputs, expected)
    sessions = []
    for name, path in zip(FORMATS, (files.param, files.onnx(1)), strict=True):
        session = engine.Session(engine.load(path), threads=1, cache=cache)
        session.prepare(specs=[engine.TensorSpec(each.shape, each.dtype) for each in inputs])
        contest.enter(name, session.run)
        sessions.append(session)
    times = contest.measure(seconds, lambda *_: None)
    for session in sessions:
        session.close()
    return {"network": folder.name, **{name: [times[name].least_s, times[name].median_s] for name in FORMATS}}


def report(records: list[dict[str, Any]]) -> str:
    """Return the table of the times from PNNX and from ONNX."""
    return pair_table(records, FORMATS, ("PNNX ms", "ONNX ms"), "ONNX / PNNX")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=default_folder(), help="of the exported networks")
    parser.add_argument("--networks", nargs="+", metavar="NETWORK")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each format (1)")
    parser.add_argument("--cache", type=Path, help="compile cache to use and fill")
    parser.add_argument("--save", metavar="NAME", help="write benchmarks/raw/NAME.json")
    options = parser.parse_args()
    names = options.networks or sorted(each.name for each in options.folder.iterdir() if Files(each).onnx(1).exists())
    with tempfile.TemporaryDirectory(prefix="formats-") as folder:
        cache = options.cache or Path(folder)
        records = [measure(options.folder / name, options.seconds, cache) for name in names]
    how = f"one thread, {options.seconds:g} s for each network and format, in turns"
    result = Result(kind="formats", machine=describe([OURS]), how=how, body=report(records), records=records)
    result.publish(options.save)
    return 0


if __name__ == "__main__":
    sys.exit(main())
