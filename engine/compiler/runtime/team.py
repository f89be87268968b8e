"""Threads that run a program's kernels together, in native code from the first kernel to the last.

What they say to each other is in ``protocol``; this is its code. Nothing here says how a shared word is accessed: each
access is a row of the protocol's table, and is written from it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Module, Value
from engine.compiler.runtime import protocol
from engine.compiler.runtime.protocol import PROTOCOL, Word

_Pause: TypeAlias = tuple[str, list[Value]]

_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # private to the process
_PAUSE: Final[dict[str, _Pause]] = {
    "x86_64": ("llvm.x86.sse2.pause", []),
    "aarch64": ("llvm.aarch64.hint", [Value("1", "i32")]),
}
_CLOCK_MONOTONIC = 1

_NULL, _ZERO, _ONE, _NOBODY = Value("null", "ptr"), Value("0", "i64"), Value("1", "i64"), Value("0", "i32")
_BITS, _MASK = Value(str(protocol.SEGMENT_BITS), "i64"), Value(str(protocol.STOP), "i64")
_LINE = Value(str(protocol.LINE_BYTES), "i64")


def team_code(host: Host) -> str:
    """IR of ``run(team, generation, trace)``, ``worker(team, seen, thread)`` and ``stop(team, generation, nothing)``.

    ``trace`` is null or a table with a place for every chunk, for the number of the thread that computed it and the
    clock in ns before and after; it must stay as long as the team.
    """
    architecture = host.triple.split("-")[0]
    module = Module()
    _sleep_and_wake(module, _FUTEX[architecture])
    _clock(module)
    _walk(module, _PAUSE[architecture])
    _run(module)
    _stop(module)
    _worker(module, _PAUSE[architecture])
    return str(module)


def _sleep_and_wake(module: Module, futex: int) -> None:
    """``sleep_on(word, value)``, as long as the word holds the value, and ``wake_all(word)``."""
    module.declarations["syscall"] = "declare i64 @syscall(i64, ...)"
    f = module.inner("sleep_on", [("ptr", "word"), ("i32", "value")])
    word, value = f.parameters
    _system(f, f"i64 {futex}, ptr {word.text}, i32 {_FUTEX_WAIT}, i32 {value.text}, ptr null, ptr null, i32 0")
    f.finish()
    f = module.inner("wake_all", [("ptr", "word")])
    (word,) = f.parameters
    _system(f, f"i64 {futex}, ptr {word.text}, i32 {_FUTEX_WAKE}, i32 {2**31 - 1}, ptr null, ptr null, i32 0")
    f.finish()


def _clock(module: Module) -> None:
    """``now()``, in ns."""
    f = module.inner("now", [], result="i64")
    time = f.op("ptr", "alloca [2 x i64], align 8")
    f.call("clock_gettime", [Value(str(_CLOCK_MONOTONIC), "i32"), time], "i32")
    seconds = f.load("i64", time, 8)
    nanoseconds = f.load("i64", f.at(time, 8, 1), 8)
    f.finish(f.binary("add", f.binary("mul", seconds, Value("1000000000", "i64")), nanoseconds))


def _walk(module: Module, pause: _Pause) -> None:
    """``walk(team, generation, thread)``: the steps of a segment, with whoever else walks them."""
    f = module.inner("walk", [("ptr", "team"), ("i64", "generation"), ("i64", "thread")])
    team, generation, thread = f.parameters
    epoch, segment = f.binary("lshr", generation, _BITS), f.binary("and", generation, _MASK)
    base = f.binary("shl", epoch, _BITS)
    steps, segments = (f.load("ptr", f.at(team, at, 1), 8) for at in (protocol.STEPS, protocol.SEGMENTS))
    spin, trace = f.load("i64", f.at(team, protocol.SPIN, 1), 8), f.load("ptr", f.at(team, protocol.TRACE, 1), 8)
    sleepers, wake = _at(f, team, protocol.SLEEPERS), _at(f, team, protocol.WAKE)
    bounds = f.at(segments, f.binary("shl", segment, _ONE), 8)
    first, end = f.load("i64", bounds, 8), f.load("i64", f.at(bounds, 8, 1), 8)

    step, begin, wait, advance, leave = map(f.block, ("step", "begin", "wait", "advance", "leave"))
    following = _later(f, "i64")
    f.jump(step)

    f.start(step)
    number = f.phi((first, "entry"), (following, advance))
    f.branch(f.compare("uge", number, end), leave, begin)

    f.start(begin)
    record = f.at(steps, f.binary("mul", number, Value(str(protocol.STEP_BYTES), "i64")), 1)
    chunks = f.load("i64", f.at(record, 16, 1), 8)
    counters, ended = _counters(f, team, number)
    all_ended = f.binary("or", base, chunks)
    done = _work(f, _Step(team, record, chunks, counters, trace), epoch, thread, leave)
    _end(f, ended, done, chunks, epoch, base, wait)
    with f.when(f.compare("ne", _access(f, "find sleepers", sleepers), _NOBODY)):
        _access(f, "call", wake)
        f.call("wake_all", [wake])
    f.jump(wait)

    f.start(wait)
    _await(
        f,
        pause,
        wait,
        rows=("wait", "lie down", "wait again", "get up"),
        word=ended,
        came=lambda found: f.compare("uge", found, all_ended),
        into=_later(f, "i64"),
        then=advance,
        spin=spin,
        sleepers=sleepers,
        bed=wake,
        ticket=lambda: _access(f, "draw", wake),
    )

    f.start(advance)
    _define(f, following, f"add i64 {number.text}, 1")
    f.jump(step)

    f.start(leave)
    f.finish()


class _Step(NamedTuple):
    """What a thread knows of a step: its record, its number of chunks, the counters of its shares."""

    team: Value
    record: Value
    chunks: Value
    counters: Value
    trace: Value


def _counters(f: Function, team: Value, number: Value) -> tuple[Value, Value]:
    """The counters of a step's shares, and the one of chunks that have ended."""
    shares = f.load("i64", f.at(team, protocol.SHARES, 1), 8)
    counters = f.load("ptr", f.at(team, protocol.COUNTERS, 1), 8)
    line = f.binary("mul", number, f.binary("add", shares, _ONE))
    first = f.at(counters, f.binary("mul", line, _LINE), 1)
    return first, _at(f, f.at(first, f.binary("mul", shares, _LINE), 1), protocol.ENDED)


def _work(f: Function, step: _Step, epoch: Value, thread: Value, leave: str) -> Value:
    """Compute chunks until none is left, of the thread's own share and then of the others'; how many it were."""
    shares = f.load("i64", f.at(step.team, protocol.SHARES, 1), 8)
    begin, share, look, seek, computed, onwards, found_none = map(
        f.block, ("begin", "share", "look", "seek", "computed", "onwards", "none")
    )
    next_turn, more, done = (_later(f, "i64") for _ in range(3))
    f.jump(begin)
    f.start(begin)
    f.jump(share)

    f.start(share)
    turn, before = f.phi((_ZERO, begin), (next_turn, onwards)), f.phi((_ZERO, begin), (done, onwards))
    number = _turned(f, thread, turn, shares)
    first, size, pace = _share(f, step, number, shares)
    taken = _at(f, f.at(step.counters, f.binary("mul", number, _LINE), 1), protocol.TAKEN)
    f.jump(look)

    f.start(look)
    _define(f, done, f"phi i64 [ {before.text}, %{share} ], [ {more.text}, %{computed} ]")
    f.jump(seek)

    f.start(seek)
    place = _take(f, taken, size, epoch, seek, onwards, leave)
    chunk = f.binary("add", first, f.binary("mul", place, pace))
    _compute(f, step, chunk, thread)
    f.jump(computed)

    f.start(computed)
    _define(f, more, f"add i64 {done.text}, 1")
    f.jump(look)

    f.start(onwards)
    _define(f, next_turn, f"add i64 {turn.text}, 1")
    f.branch(f.compare("uge", next_turn, shares), found_none, share)

    f.start(found_none)
    return done


def _turned(f: Function, thread: Value, turn: Value, shares: Value) -> Value:
    """The share that a thread looks at next: its own, those after it, then the ones from the first on."""
    number = f.binary("add", thread, turn)
    return f.select(f.compare("uge", number, shares), f.binary("sub", number, shares), number)


def _share(f: Function, step: _Step, number: Value, shares: Value) -> tuple[Value, Value, Value]:
    """A share's first chunk, how many it has, and how far apart they are; the first shares are the larger ones."""
    last = f.binary("sub", shares, _ONE)

    def part(chunks: Value) -> Value:
        return f.binary("udiv", f.binary("add", chunks, last), shares)

    first = part(f.binary("mul", step.chunks, number))
    after = part(f.binary("mul", step.chunks, f.binary("add", number, _ONE)))
    in_turn = part(f.binary("sub", step.chunks, number))
    is_dealt = f.compare("ne", f.load("i64", f.at(step.record, 32, 1), 8), _ZERO)
    return (
        f.select(is_dealt, number, first),
        f.select(is_dealt, in_turn, f.binary("sub", after, first)),
        f.select(is_dealt, shares, _ONE),
    )


def _compute(f: Function, step: _Step, chunk: Value, thread: Value) -> None:
    """Call a step's function for a chunk; note who did it and when, where that is asked for."""
    function, arguments = f.load("ptr", step.record, 8), f.load("ptr", f.at(step.record, 8, 1), 8)
    untraced = f.compare("eq", step.trace, _NULL)
    with f.unless(untraced):
        place = _place(f, step, chunk)
        f.store(thread, place, 8)
        f.store(f.call("now", [], "i64"), f.at(place, 8, 1), 8)
    f.do(f"call void {function.text}(ptr {arguments.text}, i64 {chunk.text})")
    with f.unless(untraced):
        f.store(f.call("now", [], "i64"), f.at(_place(f, step, chunk), 16, 1), 8)


def _place(f: Function, step: _Step, chunk: Value) -> Value:
    """Where the trace has a chunk of a step."""
    number = f.binary("add", f.load("i64", f.at(step.record, 24, 1), 8), chunk)
    return f.at(step.trace, f.binary("mul", number, Value(str(protocol.TRACE_BYTES), "i64")), 1)


def _take(f: Function, taken: Value, size: Value, epoch: Value, look: str, none: str, leave: str) -> Value:
    """Take a chunk of a share, its number there; else go on to a block around, which begins with ``look``."""
    current, take, work = f.block("current"), f.block("take"), f.block("work")
    found = _access(f, "look", taken)
    its_epoch = f.binary("lshr", found, _BITS)
    f.branch(f.compare("ugt", its_epoch, epoch), leave, current)

    f.start(current)
    chunk = _count(f, found, its_epoch, epoch)
    f.branch(f.compare("uge", chunk, size), none, take)

    f.start(take)
    more = f.binary("or", f.binary("shl", epoch, _BITS), f.binary("add", chunk, _ONE))
    f.branch(_access(f, "take", taken, found, more), work, look)
    f.start(work)
    return chunk


def _end(f: Function, ended: Value, done: Value, chunks: Value, epoch: Value, base: Value, wait: str) -> None:
    """Count the chunks that a thread computed, if any; who counted the last one goes on here, others wait."""
    count, counted, finished = f.block("count"), f.block("counted"), f.block("finished")
    f.branch(f.compare("eq", done, _ZERO), wait, count)
    f.start(count)
    found = _access(f, "count", ended)
    number = f.binary("add", _count(f, found, f.binary("lshr", found, _BITS), epoch), done)
    f.branch(_access(f, "end", ended, found, f.binary("or", base, number)), counted, count)

    f.start(counted)
    f.branch(f.compare("eq", number, chunks), finished, wait)
    f.start(finished)


def _run(module: Module) -> None:
    """``run(team, generation, trace)``: the leader's part of a segment; when it began, where it is traced."""
    f = module.function("run", [("ptr", "team"), ("i64", "generation"), ("ptr", "trace")], result="i64")
    team, generation, trace = f.parameters
    f.store(trace, f.at(team, protocol.TRACE, 1), 8)
    idle = _at(f, team, protocol.IDLE)
    timed, go = f.block("timed"), f.block("go")
    f.branch(f.compare("eq", trace, _NULL), go, timed)

    f.start(timed)
    now = f.call("now", [], "i64")
    f.jump(go)

    f.start(go)
    began = f.phi((_ZERO, "entry"), (now, timed))
    _access(f, "publish", team, generation)
    with f.when(f.compare("ne", _access(f, "find idle", idle), _NOBODY)):
        f.call("wake_all", [team])
    f.call("walk", [team, generation, _ZERO])
    f.finish(began)


def _stop(module: Module) -> None:
    """``stop(team, generation, nothing)``: send the workers home."""
    f = module.function("stop", [("ptr", "team"), ("i64", "generation"), ("ptr", "unused")], result="i64")
    team, generation, _unused = f.parameters
    _access(f, "publish", team, generation)
    f.call("wake_all", [team])
    f.finish(_ZERO)


def _worker(module: Module, pause: _Pause) -> None:
    """``worker(team, seen, thread)``: a worker's life; the leader's number is 0."""
    f = module.function("worker", [("ptr", "team"), ("i64", "seen"), ("i64", "thread")])
    team, seen, thread = f.parameters
    idle = _at(f, team, protocol.IDLE)
    spin = f.load("i64", f.at(team, protocol.SPIN, 1), 8)
    listen, called, work, leave = map(f.block, ("listen", "called", "work", "leave"))
    asked = _later(f, "i64")
    f.jump(listen)

    f.start(listen)
    last = f.phi((seen, "entry"), (asked, work))
    _await(
        f,
        pause,
        listen,
        rows=("listen", "go idle", "listen again", "rise"),
        word=_at(f, team, protocol.GENERATION),
        came=lambda found: f.compare("ne", found, last),
        into=asked,
        then=called,
        spin=spin,
        sleepers=idle,
        bed=team,
        ticket=lambda: f.convert("trunc", last, "i32"),
    )

    f.start(called)
    f.branch(f.compare("eq", f.binary("and", asked, _MASK), _MASK), leave, work)

    f.start(work)
    f.call("walk", [team, asked, thread])
    f.jump(listen)

    f.start(leave)
    f.finish()


def _await(
    f: Function,
    pause: _Pause,
    before: str,
    *,
    rows: tuple[str, str, str, str],
    word: Value,
    came: Callable[[Value], Value],
    into: Value,
    then: str,
    spin: Value,
    sleepers: Value,
    bed: Value,
    ticket: Callable[[], Value],
) -> None:
    """Look at a word until what it holds is waited for no more: for a while awake, then asleep between looks.

    Args:
        before, then: labels of the blocks around.
        rows: of the protocol: a look, lying down, the look after that, getting up.
        came: whether a value found in the word ends the wait; that value goes ``into``.
        spin: looks before the first sleep.
        bed, ticket: the word to sleep on, and the value it must have had before the last look.
    """
    look_row, down_row, last_row, up_row = rows
    look, idle, again, doze, slept = map(f.block, ("look", "idle", "again", "doze", "slept"))
    next_turn = _later(f, "i64")
    f.jump(look)

    f.start(look)
    turn = f.phi((_ZERO, before), (next_turn, again), (spin, slept))
    _access(f, look_row, word, into=into)
    f.branch(came(into), then, idle)

    f.start(idle)
    f.branch(f.compare("uge", turn, spin), doze, again)

    f.start(again)
    f.call(*pause)
    _define(f, next_turn, f"add i64 {turn.text}, 1")
    f.jump(look)

    f.start(doze)
    _access(f, down_row, sleepers)
    drawn = ticket()
    with f.unless(came(_access(f, last_row, word))):
        f.call("sleep_on", [bed, drawn])
    f.jump(slept)

    f.start(slept)
    _access(f, up_row, sleepers)
    f.jump(look)


def _count(f: Function, counter: Value, its_epoch: Value, epoch: Value) -> Value:
    """What a step's counter holds, as read; one of another epoch holds nothing yet."""
    is_mine = f.compare("eq", its_epoch, epoch)
    return f.select(is_mine, f.binary("and", counter, _MASK), _ZERO)


def _access(f: Function, row: str, address: Value, *values: Value, into: Value | None = None) -> Value:
    """A row of the protocol, done to its word: the value found there, or whether a swap held."""
    access = PROTOCOL[row]
    kind, ordering, align = access.word.type, access.ordering, int(access.word.type[1:]) // 8
    at = f"ptr {address.text}"
    if access.operation == "store":
        f.do(f"store atomic {kind} {values[0].text}, {at} {ordering}, align {align}")
        return values[0]
    if access.operation == "swap":
        old, new = values
        pair = f"{{ {kind}, i1 }}"
        swap = f"cmpxchg {at}, {kind} {old.text}, {kind} {new.text} {ordering} monotonic, align {align}"
        return f.op("i1", f"extractvalue {pair} {f.op(pair, swap).text}, 1")
    if access.operation == "load":
        text = f"load atomic {kind}, {at} {ordering}, align {align}"
    else:
        text = f"atomicrmw {access.operation} {at}, {kind} 1 {ordering}, align {align}"
    found = _later(f, kind) if into is None else into
    _define(f, found, text)
    return found


def _at(f: Function, block: Value, word: Word) -> Value:
    """The address of a word in the team's block, or in a step's counters."""
    return f.at(block, word.offset, 1)


def _system(f: Function, arguments: str) -> None:
    f.op("i64", f"call i64 (i64, ...) @syscall({arguments})")


def _later(f: Function, kind: str) -> Value:
    """A value that is named before it is defined."""
    return Value(f"%{f.block('later')}", kind)


def _define(f: Function, value: Value, text: str) -> None:
    f.do(f"{value.text} = {text}")
