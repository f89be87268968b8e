"""Chunks of a step: each thread takes those of its own share, then those left in other shares."""

from __future__ import annotations

from typing import Final, NamedTuple

from engine.compiler.codegen.ir import Function, Module, Value
from engine.compiler.runtime import protocol
from engine.compiler.runtime.team.waiting import BITS, NULL, ONE, ZERO, access, at, count, define, forward_value

_LINE: Final = Value(str(protocol.LINE_BYTES), "i64")
_CLOCK_MONOTONIC: Final = 1


class Step(NamedTuple):
    """Step as a thread sees it: its record, its number of chunks, the counters of its shares."""

    team: Value
    record: Value
    chunks: Value
    counters: Value
    trace: Value


def counters_of(f: Function, team: Value, number: Value) -> tuple[Value, Value]:
    """Return the counters of a step's shares, and the counter of chunks that have ended."""
    shares = f.load("i64", f.at(team, protocol.SHARES, 1), 8)
    counters = f.load("ptr", f.at(team, protocol.COUNTERS, 1), 8)
    line = f.binary("mul", number, f.binary("add", shares, ONE))
    first = f.at(counters, f.binary("mul", line, _LINE), 1)
    return first, at(f, f.at(first, f.binary("mul", shares, _LINE), 1), protocol.ENDED)


def take_and_compute(f: Function, step: Step, epoch: Value, thread: Value, leave: str) -> Value:
    """Compute chunks of the thread's own share and then of others until none is left; return how many."""
    shares = f.load("i64", f.at(step.team, protocol.SHARES, 1), 8)
    begin, share, look, seek, computed, onwards, found_none = map(
        f.block, ("begin", "share", "look", "seek", "computed", "onwards", "none")
    )
    next_turn, more, done = (forward_value(f, "i64") for _ in range(3))
    f.jump(begin)
    f.start(begin)
    f.jump(share)

    f.start(share)
    turn, before = f.phi((ZERO, begin), (next_turn, onwards)), f.phi((ZERO, begin), (done, onwards))
    number = _share_number(f, thread, turn, shares)
    first, size, pace = _share(f, step, number, shares)
    taken = at(f, f.at(step.counters, f.binary("mul", number, _LINE), 1), protocol.TAKEN)
    f.jump(look)

    f.start(look)
    define(f, done, f"phi i64 [ {before.text}, %{share} ], [ {more.text}, %{computed} ]")
    f.jump(seek)

    f.start(seek)
    place = _take(f, taken, size, epoch, seek, onwards, leave)
    chunk = f.binary("add", first, f.binary("mul", place, pace))
    _compute(f, step, chunk, thread)
    f.jump(computed)

    f.start(computed)
    define(f, more, f"add i64 {done.text}, 1")
    f.jump(look)

    f.start(onwards)
    define(f, next_turn, f"add i64 {turn.text}, 1")
    f.branch(f.compare("uge", next_turn, shares), found_none, share)

    f.start(found_none)
    return done


def _share_number(f: Function, thread: Value, turn: Value, shares: Value) -> Value:
    """Return the next share a thread looks at: its own, those after it, then those from the first on."""
    number = f.binary("add", thread, turn)
    return f.select(f.compare("uge", number, shares), f.binary("sub", number, shares), number)


def _share(f: Function, step: Step, number: Value, shares: Value) -> tuple[Value, Value, Value]:
    """Return a share's first chunk, its number of chunks and their distance; the first shares are the larger ones."""
    last = f.binary("sub", shares, ONE)

    def part(chunks: Value) -> Value:
        return f.binary("udiv", f.binary("add", chunks, last), shares)

    first = part(f.binary("mul", step.chunks, number))
    after = part(f.binary("mul", step.chunks, f.binary("add", number, ONE)))
    in_turn = part(f.binary("sub", step.chunks, number))
    is_dealt = f.compare("ne", f.load("i64", f.at(step.record, 32, 1), 8), ZERO)
    return (
        f.select(is_dealt, number, first),
        f.select(is_dealt, in_turn, f.binary("sub", after, first)),
        f.select(is_dealt, shares, ONE),
    )


def _compute(f: Function, step: Step, chunk: Value, thread: Value) -> None:
    """Call a step's function for a chunk; if traced, record the thread and the clock."""
    function, arguments = f.load("ptr", step.record, 8), f.load("ptr", f.at(step.record, 8, 1), 8)
    untraced = f.compare("eq", step.trace, NULL)
    with f.unless(untraced):
        place = _trace_row(f, step, chunk)
        f.store(thread, place, 8)
        f.store(f.call("now", [], "i64"), f.at(place, 8, 1), 8)
    f.do(f"call void {function.text}(ptr {arguments.text}, i64 {chunk.text})")
    with f.unless(untraced):
        f.store(f.call("now", [], "i64"), f.at(_trace_row(f, step, chunk), 16, 1), 8)


def _trace_row(f: Function, step: Step, chunk: Value) -> Value:
    """Return the row of a chunk in the trace."""
    number = f.binary("add", f.load("i64", f.at(step.record, 24, 1), 8), chunk)
    return f.at(step.trace, f.binary("mul", number, Value(str(protocol.TRACE_BYTES), "i64")), 1)


def _take(f: Function, taken: Value, size: Value, epoch: Value, look: str, none: str, leave: str) -> Value:
    """Take a chunk of a share and return its number; else jump to ``look``, ``none`` or ``leave``."""
    current, take, work = f.block("current"), f.block("take"), f.block("work")
    found = access(f, "read share", taken)
    its_epoch = f.binary("lshr", found, BITS)
    f.branch(f.compare("ugt", its_epoch, epoch), leave, current)

    f.start(current)
    chunk = count(f, found, its_epoch, epoch)
    f.branch(f.compare("uge", chunk, size), none, take)

    f.start(take)
    more = f.binary("or", f.binary("shl", epoch, BITS), f.binary("add", chunk, ONE))
    f.branch(access(f, "claim chunk", taken, found, more), work, look)
    f.start(work)
    return chunk


def count_ended(f: Function, ended: Value, done: Value, chunks: Value, epoch: Value, base: Value, wait: str) -> None:
    """Add the chunks that a thread computed, if any; the thread of the last one continues here, others wait."""
    counting, counted, finished = f.block("count"), f.block("counted"), f.block("finished")
    f.branch(f.compare("eq", done, ZERO), wait, counting)
    f.start(counting)
    found = access(f, "read ended", ended)
    number = f.binary("add", count(f, found, f.binary("lshr", found, BITS), epoch), done)
    f.branch(access(f, "add ended", ended, found, f.binary("or", base, number)), counted, counting)

    f.start(counted)
    f.branch(f.compare("eq", number, chunks), finished, wait)
    f.start(finished)


def clock(module: Module) -> None:
    """Emit ``now()``, in ns."""
    f = module.inner("now", [], result="i64")
    time = f.op("ptr", "alloca [2 x i64], align 8")
    f.call("clock_gettime", [Value(str(_CLOCK_MONOTONIC), "i32"), time], "i32")
    seconds = f.load("i64", time, 8)
    nanoseconds = f.load("i64", f.at(time, 8, 1), 8)
    f.finish(f.binary("add", f.binary("mul", seconds, Value("1000000000", "i64")), nanoseconds))
