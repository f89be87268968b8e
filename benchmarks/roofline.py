"""What one core can do at most: multiply-adds on registers, and bytes it reads and copies from every level of memory.

    python benchmarks/roofline.py [--threads 2] [--seconds 0.5]

With more threads all cores do the same at once, each on memory of its own, and the rates are those of one of them: what
they share, the last cache and memory, shows. docs/compiler.md says how to read a kernel's profile by it.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import engine
from engine.compiler.codegen.host import Host, detect
from engine.compiler.codegen.ir import Function, Module, Value, constant, vector
from engine.compiler.codegen.object_code import Code, assemble
from engine.compiler.runtime.allocation import allocate

KIB, MIB = 1 << 10, 1 << 20
SIZES = (16 * KIB, 512 * KIB, 8 * MIB, 256 * MIB)
# Vectors walked side by side: sums that do not wait for one another.
AT_ONCE = 8
WALKS = ("read", "copy")
# Long enough for the clock.
TURN_BYTES = 256 * MIB


def source(walk: str, size: int, host: Host) -> str:
    """IR of ``walk(memory, turns)``: sums up ``size`` bytes, or copies their second half over the first, so often."""
    module = Module()
    f = module.function("walk", [("ptr", "memory"), ("i64", "turns")])
    (memory, turns), kind = f.parameters, vector(host.lanes)
    floats, step = size // 4, AT_ONCE * host.lanes
    sums = [constant(0.0, kind)] * AT_ONCE

    def load(f: Function, at: Value, k: int) -> Value:
        return f.load(kind, f.at(at, k * host.lanes))

    with f.loop(0, turns, carry=sums) as turn:
        if walk == "read":
            with f.loop(0, floats, step, carry=turn.carried) as loop:
                at = f.at(memory, loop.index)
                loop.carry([f.fadd(each, load(f, at, k)) for k, each in enumerate(loop.carried)])
            turn.carry(loop.results)
        else:
            with f.loop(0, floats // 2, step) as loop:
                at = f.at(memory, loop.index)
                for k in range(AT_ONCE):
                    f.store(load(f, f.at(at, floats // 2), k), f.at(at, k * host.lanes))
            turn.carry(turn.carried)
    for k, each in enumerate(turn.results):
        f.store(each, f.at(memory, k * host.lanes))
    f.finish()
    return str(module)


def rate(walk: str, size: int, seconds: float) -> float:
    """Bytes a second that are read and written, in the fastest of many turns over ``size`` bytes."""
    host = detect()
    code = Code([assemble(source(walk, size, host), host)], host)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(code.address("walk"))
    memory = allocate(size)
    memory[:] = 0  # pages that nobody wrote to are all the same one
    turns, fastest, end = max(1, TURN_BYTES // size), float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or fastest == float("inf"):
        start = time.perf_counter()
        run(memory.ctypes.data, turns)
        fastest = min(fastest, time.perf_counter() - start)
    return size * turns / fastest


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(
        allow_abbrev=False, prog="roofline", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument("--threads", type=int, default=1, help="cores that do the same at once (1)")
    found.add_argument("--seconds", type=float, default=0.5, help="for each number (0.5)")
    found.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="BYTES", help="of memory walked through")
    return found


def slowest(measure: Callable[[], float], threads: int) -> float:
    """What every one of so many threads reaches when all measure at once."""
    with ThreadPoolExecutor(threads) as pool:
        return min(each.result() for each in [pool.submit(measure) for _ in range(threads)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    args = parser().parse_args(arguments)
    peak = slowest(partial(engine.measure_peak, args.seconds), args.threads)
    print(f"multiply-adds on registers: {peak / 1e9:.0f} GFLOP/s a core\n")
    print("| walks through | reads GB/s | copies GB/s |\n|---|---|---|")
    for size in args.sizes:
        rates = [slowest(partial(rate, walk, size, args.seconds), args.threads) for walk in WALKS]
        print(f"| {size // KIB:,} KiB | {rates[0] / 1e9:.0f} | {rates[1] / 1e9:.0f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
