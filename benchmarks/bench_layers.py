"""Compare single operators, one thread each: the numpy layer that defines the operator, and PyTorch's kernel.

    python -m benchmarks.bench_layers [--only norm softmax] [--rounds 15]

Compares every answer with PyTorch's, then times both in turn. Writes a Markdown table, slowest first, and the same as
JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from app.thread_limits import BLAS_VARIABLES


def parser() -> argparse.ArgumentParser:
    """Return the command line parser."""
    found = argparse.ArgumentParser(
        allow_abbrev=False,
        prog="bench_layers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("--only", nargs="+", default=[], metavar="TEXT", help="cases with this in family or name (all)")
    found.add_argument("--rounds", type=int, default=15, help="turns of both (15)")
    found.add_argument("--check-only", action="store_true", help="compare the answers with PyTorch's, time nothing")
    found.add_argument(
        "--output", type=Path, default=Path(__file__).with_name("raw") / "layers", help="without .md or .json"
    )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return 1 if an answer was wrong."""
    options = parser().parse_args(arguments)
    os.environ.update(dict.fromkeys(BLAS_VARIABLES, "1"))
    from benchmarks import machine  # these import numpy, which reads the variables
    from benchmarks.layers import catalogue, measure, report

    records, load = [], os.getloadavg()[0]
    for case in catalogue.select(options.only):
        record = measure.measure(case, 0 if options.check_only else options.rounds)
        print(report.line(record), flush=True)
        records.append(record)
    if not options.check_only:
        facts = machine.describe(["ours", "torch"]) | {"load": round(max(load, os.getloadavg()[0]), 2)}
        report.save(options.output, facts, records)
        print(f"written: {options.output}.md, {options.output}.json")
    return int(any(record.failure for record in records))


if __name__ == "__main__":
    sys.exit(main())
