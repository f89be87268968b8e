"""Threads that run a program's kernels together, in native code from the first kernel to the last.

What they say to each other is in ``protocol``; this is its code. Nothing here says how a shared word is accessed: each
access is a row of the protocol's table, and is written from it.

threads    what leader and workers do from segment to segment
walking    the steps of a segment
chunks     who computes which chunk of a step
waiting    for the others, awake and asleep
words      accesses of shared words
"""

from __future__ import annotations

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module
from engine.compiler.runtime.team.chunks import clock
from engine.compiler.runtime.team.threads import run, stop, walk, worker
from engine.compiler.runtime.team.waiting import FUTEX, PAUSE, sleep_and_wake

__all__ = ["team_code"]


def team_code(host: Host) -> str:
    """IR of ``run(team, generation, trace)``, ``worker(team, seen, thread)`` and ``stop(team, generation, nothing)``.

    ``trace`` is null or a table with a place for every chunk, for the number of the thread that computed it and the
    clock in ns before and after; it must stay as long as the team.
    """
    architecture = host.triple.split("-")[0]
    module = Module()
    sleep_and_wake(module, FUTEX[architecture])
    clock(module)
    walk(module, PAUSE[architecture])
    run(module)
    stop(module)
    worker(module, PAUSE[architecture])
    return str(module)
