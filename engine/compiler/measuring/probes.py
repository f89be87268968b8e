"""Probes: small functions in IR, each of which measures one property of a core.

peak(values, turns)     independent products on registers
chain(values, turns)    products that each depend on the previous one
repeats(values, turns)  numbers from the first-level cache, broadcast to all lanes
read, copy              walk(values, turns) through a number of bytes
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Module, Value, constant, lanes_of, vector

CHAIN: Final = 16
"""Dependent products in each turn."""
REPEATS: Final = 1024
"""Numbers broadcast in each turn."""
# Vectors processed together, with independent sums.
_AT_ONCE: Final = 8


def chains(host: Host) -> int:
    """Return a number of independent sums that exceeds the products in flight and fits in registers."""
    return host.registers - 4


def peak(host: Host, count: int) -> str:
    """Write ``peak(values, turns)``, which adds 0.25, as 0.5 * 0.5, to each of ``count`` sums until they stop changing.

    Kernels do the same: they add products to a register in place.
    """
    return _products("peak", host, count, 1)


def chain(host: Host) -> str:
    """Write ``chain(values, turns)``, which adds to one sum CHAIN times per turn."""
    return _products("chain", host, 1, CHAIN)


def _products(name: str, host: Host, count: int, times: int) -> str:
    module = Module()
    f = module.function(name, [("ptr", "values"), ("i64", "turns")])
    values, turns = f.parameters
    kind = vector(host.lanes)

    def place(k: int) -> Value:
        return f.at(values, k * host.lanes)

    one, other, *sums = [f.load(kind, place(k)) for k in range(count + 2)]
    with f.loop(0, turns, carry=sums) as loop:
        totals = loop.carried
        for _ in range(times):
            totals = [f.fma(one, other, each) for each in totals]
        loop.carry(totals)
    for k, each in enumerate(loop.results, 2):
        f.store(each, place(k))
    f.finish()
    return str(module)


def repeats(host: Host) -> str:
    """Write ``repeats(values, turns)``, which broadcasts REPEATS numbers per turn to all lanes of a vector.

    The results are combined by xor, which every core executes at least as often per cycle as loads.
    """
    module = Module()
    f = module.function("repeats", [("ptr", "values"), ("i64", "turns")])
    (values, turns), kind = f.parameters, vector(host.lanes, "i32")
    nothing = [constant(0, kind)] * _AT_ONCE
    with f.loop(0, turns, carry=nothing) as turn:
        with f.loop(0, REPEATS, _AT_ONCE, carry=turn.carried) as loop:
            at = f.at(values, loop.index)
            loop.carry([_joined(f, each, f.at(at, k)) for k, each in enumerate(loop.carried)])
        turn.carry(loop.results)
    for k, each in enumerate(turn.results):
        f.store(each, f.at(values, k * host.lanes))
    f.finish()
    return str(module)


def _joined(f: Function, total: Value, address: Value) -> Value:
    number = f.load("float", address)
    lanes = lanes_of(total.type)
    return f.binary("xor", total, f.convert("bitcast", f.splat(number, lanes), vector(lanes, "i32")))


def walk(name: str, size: int, host: Host) -> str:
    """Write ``read(memory, turns)``, which sums ``size`` bytes, or ``copy`` of their second half to the first."""
    module = Module()
    f = module.function(name, [("ptr", "memory"), ("i64", "turns")])
    (memory, turns), kind = f.parameters, vector(host.lanes)
    floats, step = size // 4, _AT_ONCE * host.lanes
    sums = [constant(0.0, kind)] * _AT_ONCE
    with f.loop(0, turns, carry=sums) as turn:
        if name == "read":
            with f.loop(0, floats, step, carry=turn.carried) as loop:
                at = f.at(memory, loop.index)
                loads = [f.load(kind, f.at(at, k * host.lanes)) for k in range(_AT_ONCE)]
                loop.carry([f.fadd(each, load) for each, load in zip(loop.carried, loads, strict=True)])
            turn.carry(loop.results)
        else:
            with f.loop(0, floats // 2, step) as loop:
                at = f.at(memory, loop.index)
                for k in range(_AT_ONCE):
                    f.store(f.load(kind, f.at(f.at(at, floats // 2), k * host.lanes)), f.at(at, k * host.lanes))
            turn.carry(turn.carried)
    for k, each in enumerate(turn.results):
        f.store(each, f.at(memory, k * host.lanes))
    f.finish()
    return str(module)
