"""How layers that run side by side tell each other how far they are: a count of steps each, on a cache line of its own.

A count is stored after the steps it counts (release), and looked at before they are read (acquire).
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.ir import Function, Index, Value, as_value

LINE_WORDS: Final = 8
"""Words of 8 bytes from one count to the next."""


def draw(f: Function, word: Value) -> Value:
    """The next number: 0 for the first who draws."""
    return f.op("i64", f"atomicrmw add ptr {word.text}, i64 1 acq_rel, align 8")


def tell(f: Function, word: Value, count: Index) -> None:
    """Say that so many steps are there."""
    f.do(f"store atomic i64 {as_value(count).text}, ptr {word.text} release, align 8")


def wait_for(f: Function, word: Value, count: Index) -> None:
    """Go on when so many steps are there; between looks the core is offered to whoever else wants it.

    Whoever waits for a layer came after the thread that computes it, so there is such a thread; it may have lost its
    core, though, to this one.
    """
    look, offer, there = map(f.block, ("look", "offer", "there"))
    wanted = as_value(count)
    f.jump(look)
    f.start(look)
    found = f.op("i64", f"load atomic i64, ptr {word.text} acquire, align 8")
    f.branch(f.compare("uge", found, wanted), there, offer)
    f.start(offer)
    f.call("sched_yield", [], "i32")
    f.jump(look)
    f.start(there)
