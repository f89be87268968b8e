"""Small functions whose time says one thing about a core each: IR, made for a host.

peak(values, turns)     products on registers that wait for nothing
chain(values, turns)    products each of which waits for the one before
repeats(values, turns)  numbers from the first-level cache, repeated in all lanes
read, copy              walk(values, turns) through so many bytes
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Module, Value, constant, lanes_of, vector

CHAIN: Final = 16
"""Products of the chain, one after another in each turn."""
REPEATS: Final = 1024
"""Numbers repeated in each turn."""
# Vectors walked side by side: sums that do not wait for one another.
_AT_ONCE: Final = 8


def chains(host: Host) -> int:
    """Sums that do not wait for one another: more than a core has in flight, and all in registers."""
    return host.registers - 4


def peak(host: Host, count: int) -> str:
    """``peak(values, turns)``: 0.25 is added to each of so many sums, as 0.5 * 0.5, until none changes any more.

    It is what kernels do: products are added to what a register holds, where it is.
    """
    return _products("peak", host, count, 1)


def chain(host: Host) -> str:
    """``chain(values, turns)``: one sum, CHAIN times a turn."""
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
    """``repeats(values, turns)``: REPEATS numbers a turn are put in all lanes of a vector each.

    What comes of them is joined bit by bit, which every core does as often a cycle as it loads.
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
    """``read(memory, turns)`` or ``copy``: sums up so many bytes, or copies their second half over the first."""
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
