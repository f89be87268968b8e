"""Measure the limits of one core: multiply-adds on registers, and bytes read and copied from every memory level.

    python benchmarks/roofline.py [--threads 2] [--seconds 0.5]

With more threads all cores do the same at once, each on memory of its own, and the rates are those of one of them: they
share the last-level cache and memory. docs/compiler.md says how to read a kernel's profile with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine
from engine.compiler.codegen.host import detect
from engine.compiler.measuring import probes
from engine.compiler.measuring.bench import Probe, slowest_of, written

KIB, MIB = 1 << 10, 1 << 20
SIZES = (16 * KIB, 512 * KIB, 8 * MIB, 256 * MIB)
WALKS = ("read", "copy")


def rate(walk: str, size: int, seconds: float, threads: int) -> float:
    """Return bytes a second that each thread reads and writes at once, in the fastest of many turns."""
    host = detect()
    probe = Probe(walk, probes.walk(walk, size, host), host)
    return size * slowest_of(probe, [written(size) for _ in range(threads)], seconds)


def parser() -> argparse.ArgumentParser:
    """Return the command line parser."""
    found = argparse.ArgumentParser(
        allow_abbrev=False, prog="roofline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--threads", type=int, default=1, help="cores that measure at the same time (1)")
    found.add_argument("--seconds", type=float, default=0.5, help="time for each number (0.5)")
    found.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES", help="sizes of memory to walk through"
    )
    return found


def slowest(measure: Callable[[], float], threads: int) -> float:
    """Return the rate that every one of these threads reaches when all measure at once."""
    with ThreadPoolExecutor(threads) as pool:
        return min(each.result() for each in [pool.submit(measure) for _ in range(threads)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    args = parser().parse_args(arguments)
    peak = slowest(partial(engine.measure_peak, args.seconds), args.threads)
    print(f"multiply-adds on registers: {peak / 1e9:.0f} GFLOP/s a core\n")
    print("| walks through | reads GB/s | copies GB/s |\n|---|---|---|")
    for size in args.sizes:
        rates = [rate(walk, size, args.seconds, args.threads) for walk in WALKS]
        print(f"| {size // KIB:,} KiB | {rates[0] / 1e9:.0f} | {rates[1] / 1e9:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
