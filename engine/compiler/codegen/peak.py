"""What a core can do at most: fused multiply-adds on registers, measured.

The share of this that a kernel reaches says how well it is written, whatever the processor and its clock.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Final

import numpy as np

from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host, detect
from engine.compiler.codegen.ir import Module, Value, vector
from engine.tensor import Array

_RUN: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
# Short enough for the system not to come between, long enough for the clock.
_TURN_S: Final = 2e-3


def measure_peak(seconds: float = 0.2, host: Host | None = None) -> float:
    """Floating-point operations a second of one core, the most of many short turns.

    Args:
        seconds: how long to measure.
        host: the processor to generate for; None for this one.

    Raises:
        CompileError: there is no generator for this processor.
    """
    host = host or detect()
    chains = _chains(host)
    code = object_code.Code([object_code.assemble(_source(host, chains), host)], host)
    run = _RUN(code.address("peak"))
    values = np.full((chains + 2) * host.lanes, 0.5, np.float32)
    turns, fastest = _turns(run, values), float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run(values.ctypes.data, turns)
        fastest = min(fastest, time.perf_counter() - start)
    return turns * chains * host.lanes * 2 / fastest


def _chains(host: Host) -> int:
    """Sums that do not wait for one another: more than a core has in flight, and all in registers."""
    return host.registers - 4


def _turns(run: Callable[[int, int], None], values: Array) -> int:
    turns = 1000
    while True:
        start = time.perf_counter()
        run(values.ctypes.data, turns)
        if time.perf_counter() - start > _TURN_S:
            return turns
        turns *= 2


def _source(host: Host, chains: int) -> str:
    """``peak(values, turns)``: every sum becomes sum * 0.5 + 0.5, again and again; it stays 1."""
    module = Module()
    f = module.function("peak", [("ptr", "values"), ("i64", "turns")])
    values, turns = f.parameters
    type_ = vector(host.lanes)

    def place(k: int) -> Value:
        return f.at(values, k * host.lanes)

    factor, summand, *sums = [f.load(type_, place(k)) for k in range(chains + 2)]
    with f.loop(0, turns, carry=sums) as loop:
        loop.carry([f.fma(each, factor, summand) for each in loop.carried])
    for k, each in enumerate(loop.results, 2):
        f.store(each, place(k))
    f.finish()
    return str(module)
