"""Progress counters of layers that run in parallel: a count of finished steps each, on a cache line of its own.

A count is stored after the steps it counts (release), and loaded before they are read (acquire).
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.ir import Function, Index, Value, as_value

LINE_WORDS: Final = 8
"""Distance of counts, in words of 8 bytes."""


def next_ticket(f: Function, word: Value) -> Value:
    """Take the next number: 0 for the first caller."""
    return f.op("i64", f"atomicrmw add ptr {word.text}, i64 1 acq_rel, align 8")


def count(f: Function, word: Value) -> Value:
    """Load the current count."""
    return f.op("i64", f"load atomic i64, ptr {word.text} acquire, align 8")


def claim(f: Function, word: Value, number: Index) -> Value:
    """Compare a word with a number and increment it atomically; true for exactly one of all threads that try."""
    was, next_ = as_value(number).text, as_value(f.add(number, 1)).text
    pair = f.op("{ i64, i1 }", f"cmpxchg ptr {word.text}, i64 {was}, i64 {next_} acq_rel acquire, align 8")
    return f.op("i1", f"extractvalue {{ i64, i1 }} {pair.text}, 1")


def publish(f: Function, word: Value, number: Index) -> None:
    """Publish the number of finished steps."""
    f.do(f"store atomic i64 {as_value(number).text}, ptr {word.text} release, align 8")


def wait_for(f: Function, word: Value, number: Index) -> None:
    """Wait until a count is reached, yielding the core between checks.

    The awaited work was already claimed by a thread, so it will finish; that thread may have lost its core to this one.
    """
    look, offer, reached = map(f.block, ("look", "offer", "there"))
    wanted = as_value(number)
    f.jump(look)
    f.start(look)
    f.branch(f.compare("uge", count(f, word), wanted), reached, offer)
    f.start(offer)
    f.call("sched_yield", [], "i32")
    f.jump(look)
    f.start(reached)
