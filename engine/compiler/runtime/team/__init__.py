"""Native code of the threads that run a program's kernels together, from the first kernel to the last.

``protocol`` defines how they communicate; this is its code. Every access to a shared word is generated from a row of
the protocol's table.

threads    the leader and the workers: runs, segments, steps
chunks     distribution of the chunks of a step
waiting    shared words, spinning and sleeping
"""

from __future__ import annotations

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Module
from engine.compiler.runtime.team.chunks import clock
from engine.compiler.runtime.team.threads import point, run, stop, walk, worker
from engine.compiler.runtime.team.waiting import FUTEX, PAUSE, sleep_and_wake

__all__ = ["team_code"]


def team_code(host: Host) -> str:
    """Return IR of ``run(team, generation, trace, arrays)``, ``worker(team, seen, thread)`` and ``stop(team, ...)``.

    ``trace`` is null or a table with a row a chunk, for the number of its thread and the clock in ns before and after
    it; it must live as long as the team.
    """
    architecture = host.triple.split("-")[0]
    module = Module()
    sleep_and_wake(module, FUTEX[architecture])
    clock(module)
    walk(module, PAUSE[architecture])
    point(module)
    run(module)
    stop(module)
    worker(module, PAUSE[architecture])
    return str(module)
