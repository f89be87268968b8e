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


def count(f: Function, word: Value) -> Value:
    """What a word counts just now."""
    return f.op("i64", f"load atomic i64, ptr {word.text} acquire, align 8")


def claim(f: Function, word: Value, number: Index) -> Value:
    """Make a word's number one more if it is this one, and say whether it was: of all who try, one is told so."""
    was, next_ = as_value(number).text, as_value(f.add(number, 1)).text
    pair = f.op("{ i64, i1 }", f"cmpxchg ptr {word.text}, i64 {was}, i64 {next_} acq_rel acquire, align 8")
    return f.op("i1", f"extractvalue {{ i64, i1 }} {pair.text}, 1")


def tell(f: Function, word: Value, number: Index) -> None:
    """Say that so many steps are there."""
    f.do(f"store atomic i64 {as_value(number).text}, ptr {word.text} release, align 8")


def wait_for(f: Function, word: Value, number: Index) -> None:
    """Go on when a word counts so many; between looks the core is offered to whoever else wants it.

    Who waits came after a thread that has drawn or claimed what it waits for, so there is such a thread; it may have
    lost its core, though, to this one.
    """
    look, offer, there = map(f.block, ("look", "offer", "there"))
    wanted = as_value(number)
    f.jump(look)
    f.start(look)
    f.branch(f.compare("uge", count(f, word), wanted), there, offer)
    f.start(offer)
    f.call("sched_yield", [], "i32")
    f.jump(look)
    f.start(there)
