"""The steps of a segment, walked by every thread of a team."""

from __future__ import annotations

from engine.compiler.codegen.ir import Module, Value
from engine.compiler.runtime import protocol
from engine.compiler.runtime.team.chunks import Step, count_ended, counters_of, take_and_compute
from engine.compiler.runtime.team.waiting import Pause, wait_for
from engine.compiler.runtime.team.words import BITS, MASK, ONE, access, at, define, later

_NOBODY = Value("0", "i32")


def walk(module: Module, pause: Pause) -> None:
    """``walk(team, generation, thread)``: the steps of a segment, with whoever else walks them."""
    f = module.inner("walk", [("ptr", "team"), ("i64", "generation"), ("i64", "thread")])
    team, generation, thread = f.parameters
    epoch, segment = f.binary("lshr", generation, BITS), f.binary("and", generation, MASK)
    base = f.binary("shl", epoch, BITS)
    steps, segments = (f.load("ptr", f.at(team, place, 1), 8) for place in (protocol.STEPS, protocol.SEGMENTS))
    spin, trace = f.load("i64", f.at(team, protocol.SPIN, 1), 8), f.load("ptr", f.at(team, protocol.TRACE, 1), 8)
    sleepers, wake = at(f, team, protocol.SLEEPERS), at(f, team, protocol.WAKE)
    bounds = f.at(segments, f.binary("shl", segment, ONE), 8)
    first, end = f.load("i64", bounds, 8), f.load("i64", f.at(bounds, 8, 1), 8)

    step, begin, wait, advance, leave = map(f.block, ("step", "begin", "wait", "advance", "leave"))
    following = later(f, "i64")
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
    with f.when(f.compare("ne", access(f, "find sleepers", sleepers), _NOBODY)):
        access(f, "call", wake)
        f.call("wake_all", [wake])
    f.jump(wait)

    f.start(wait)
    wait_for(
        f,
        pause,
        wait,
        rows=("wait", "lie down", "wait again", "get up"),
        word=ended,
        came=lambda found: f.compare("uge", found, all_ended),
        into=later(f, "i64"),
        then=advance,
        spin=spin,
        sleepers=sleepers,
        bed=wake,
        ticket=lambda: access(f, "draw", wake),
    )

    f.start(advance)
    define(f, following, f"add i64 {number.text}, 1")
    f.jump(step)

    f.start(leave)
    f.finish()
