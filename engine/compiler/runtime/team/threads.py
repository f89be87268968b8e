"""What the threads of a team do: the leader calls, the workers come, until they are sent home."""

from __future__ import annotations

from engine.compiler.codegen.ir import Module, Value
from engine.compiler.runtime import protocol
from engine.compiler.runtime.team.waiting import Pause, wait_for
from engine.compiler.runtime.team.words import MASK, NULL, ZERO, access, at, later

_NOBODY = Value("0", "i32")


def run(module: Module) -> None:
    """``run(team, generation, trace)``: the leader's part of a segment; when it began, where it is traced."""
    f = module.function("run", [("ptr", "team"), ("i64", "generation"), ("ptr", "trace")], result="i64")
    team, generation, trace = f.parameters
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
    with f.when(f.compare("ne", access(f, "find idle", idle), _NOBODY)):
        f.call("wake_all", [team])
    f.call("walk", [team, generation, ZERO])
    f.finish(began)


def stop(module: Module) -> None:
    """``stop(team, generation, nothing)``: send the workers home."""
    f = module.function("stop", [("ptr", "team"), ("i64", "generation"), ("ptr", "unused")], result="i64")
    team, generation, _unused = f.parameters
    access(f, "publish", team, generation)
    f.call("wake_all", [team])
    f.finish(ZERO)


def worker(module: Module, pause: Pause) -> None:
    """``worker(team, seen, thread)``: a worker's life; the leader's number is 0."""
    f = module.function("worker", [("ptr", "team"), ("i64", "seen"), ("i64", "thread")])
    team, seen, thread = f.parameters
    idle = at(f, team, protocol.IDLE)
    spin = f.load("i64", f.at(team, protocol.SPIN, 1), 8)
    listen, called, work, leave = map(f.block, ("listen", "called", "work", "leave"))
    asked = later(f, "i64")
    f.jump(listen)

    f.start(listen)
    last = f.phi((seen, "entry"), (asked, work))
    wait_for(
        f,
        pause,
        listen,
        rows=("listen", "go idle", "listen again", "rise"),
        word=at(f, team, protocol.GENERATION),
        came=lambda found: f.compare("ne", found, last),
        into=asked,
        then=called,
        spin=spin,
        sleepers=idle,
        bed=team,
        ticket=lambda: f.convert("trunc", last, "i32"),
    )

    f.start(called)
    f.branch(f.compare("eq", f.binary("and", asked, MASK), MASK), leave, work)

    f.start(work)
    f.call("walk", [team, asked, thread])
    f.jump(listen)

    f.start(leave)
    f.finish()
