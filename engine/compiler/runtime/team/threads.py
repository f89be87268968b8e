"""Code of the leader and of the workers: publish or receive a run, and walk the steps of a segment together."""

from __future__ import annotations

from engine.compiler.codegen.ir import Module, Value
from engine.compiler.runtime import protocol
from engine.compiler.runtime.team.chunks import Step, count_ended, counters_of, take_and_compute
from engine.compiler.runtime.team.waiting import (
    BITS,
    MASK,
    NULL,
    ONE,
    ZERO,
    Pause,
    access,
    at,
    define,
    forward_value,
    wait_for,
)

_NO_THREADS = Value("0", "i32")


def walk(module: Module, pause: Pause) -> None:
    """Emit ``walk(team, generation, thread)``: the steps of a segment, shared with other threads."""
    f = module.inner("walk", [("ptr", "team"), ("i64", "generation"), ("i64", "thread")])
    team, generation, thread = f.parameters
    epoch, segment = f.binary("lshr", generation, BITS), f.binary("and", generation, MASK)
    base = f.binary("shl", epoch, BITS)
    steps, segments = (f.load("ptr", f.at(team, place, 1), 8) for place in (protocol.STEPS, protocol.SEGMENTS))
    spin, trace = f.load("i64", f.at(team, protocol.SPIN, 1), 8), f.load("ptr", f.at(team, protocol.TRACE, 1), 8)
    waiters, ticket = at(f, team, protocol.WAITERS), at(f, team, protocol.TICKET)
    bounds = f.at(segments, f.binary("shl", segment, ONE), 8)
    first, end = f.load("i64", bounds, 8), f.load("i64", f.at(bounds, 8, 1), 8)

    step, begin, wait, advance, leave = map(f.block, ("step", "begin", "wait", "advance", "leave"))
    following = forward_value(f, "i64")
    f.jump(step)

    f.start(step)
    number = f.phi((first, "entry"), (following, advance))
    f.branch(f.compare("uge", number, end), leave, begin)

    f.start(begin)
    record = f.at(steps, f.binary("mul", number, Value(str(protocol.STEP_BYTES), "i64")), 1)
    chunks = f.load("i64", f.at(record, 16, 1), 8)
    counters, ended = counters_of(f, team, number)
    all_ended = f.binary("or", base, chunks)
    done = take_and_compute(f, Step(team, record, chunks, counters, trace), epoch, thread, leave)
    count_ended(f, ended, done, chunks, epoch, base, wait)
    with f.when(f.compare("ne", access(f, "check waiters", waiters), _NO_THREADS)):
        access(f, "bump ticket", ticket)
        f.call("wake_all", [ticket])
    f.jump(wait)

    f.start(wait)
    wait_for(
        f,
        pause,
        wait,
        rows=("poll ended", "register waiter", "recheck ended", "unregister waiter"),
        word=ended,
        is_over=lambda found: f.compare("uge", found, all_ended),
        into=forward_value(f, "i64"),
        then=advance,
        spin=spin,
        waiters=waiters,
        futex_word=ticket,
        ticket=lambda: access(f, "read ticket", ticket),
    )

    f.start(advance)
    define(f, following, f"add i64 {number.text}, 1")
    f.jump(step)

    f.start(leave)
    f.finish()


def run(module: Module) -> None:
    """Emit ``run(team, generation, trace, arrays)``: the leader's part of a segment; returns its begin if traced.

    Where ``arrays`` is not null, the arguments first get the addresses of this run's inputs and outputs. It lists
    places in memory that hold these addresses.
    """
    parameters = [("ptr", "team"), ("i64", "generation"), ("ptr", "trace"), ("ptr", "arrays")]
    f = module.function("run", parameters, result="i64")
    team, generation, trace, arrays = f.parameters
    f.call("point", [team, arrays])
    f.store(trace, f.at(team, protocol.TRACE, 1), 8)
    idle = at(f, team, protocol.IDLE)
    timed, go = f.block("timed"), f.block("go")
    f.branch(f.compare("eq", trace, NULL), go, timed)

    f.start(timed)
    now = f.call("now", [], "i64")
    f.jump(go)

    f.start(go)
    began = f.phi((ZERO, "entry"), (now, timed))
    access(f, "publish", team, generation)
    with f.when(f.compare("ne", access(f, "check idle workers", idle), _NO_THREADS)):
        f.call("wake_all", [team])
    f.call("walk", [team, generation, ZERO])
    f.finish(began)


def point(module: Module) -> None:
    """Emit ``point(team, arrays)``: write the addresses of arrays to the arguments that refer to them."""
    f = module.inner("point", [("ptr", "team"), ("ptr", "arrays")])
    team, arrays = f.parameters
    with f.unless(f.compare("eq", arrays, NULL)):
        rows = f.load("ptr", f.at(team, protocol.POINTERS, 1), 8)
        count = f.load("i64", f.at(team, protocol.POINTER_COUNT, 1), 8)
        with f.loop(0, count) as row:
            words = f.at(rows, f.mul(row.index, protocol.POINTER_WORDS), 8)
            argument, number, offset = f.load("ptr", words, 8), *(f.load("i64", f.at(words, k, 8), 8) for k in (1, 2))
            data = f.load("i64", f.load("ptr", f.at(arrays, number, 8), 8), 8)
            f.store(f.binary("add", data, offset), argument, 8)
    f.finish()


def stop(module: Module) -> None:
    """Emit ``stop(team, generation, nothing)``: dismiss the workers."""
    f = module.function("stop", [("ptr", "team"), ("i64", "generation"), ("ptr", "unused")], result="i64")
    team, generation, _unused = f.parameters
    access(f, "publish", team, generation)
    f.call("wake_all", [team])
    f.finish(ZERO)


def worker(module: Module, pause: Pause) -> None:
    """Emit ``worker(team, seen, thread)``: the loop of a worker; the leader's number is 0."""
    f = module.function("worker", [("ptr", "team"), ("i64", "seen"), ("i64", "thread")])
    team, seen, thread = f.parameters
    idle = at(f, team, protocol.IDLE)
    spin = f.load("i64", f.at(team, protocol.SPIN, 1), 8)
    listen, called, work, leave = map(f.block, ("listen", "called", "work", "leave"))
    asked = forward_value(f, "i64")
    f.jump(listen)

    f.start(listen)
    last = f.phi((seen, "entry"), (asked, work))
    wait_for(
        f,
        pause,
        listen,
        rows=("poll generation", "register idle", "recheck generation", "unregister idle"),
        word=at(f, team, protocol.GENERATION),
        is_over=lambda found: f.compare("ne", found, last),
        into=asked,
        then=called,
        spin=spin,
        waiters=idle,
        futex_word=team,
        ticket=lambda: f.convert("trunc", last, "i32"),
    )

    f.start(called)
    f.branch(f.compare("eq", f.binary("and", asked, MASK), MASK), leave, work)

    f.start(work)
    f.call("walk", [team, asked, thread])
    f.jump(listen)

    f.start(leave)
    f.finish()
