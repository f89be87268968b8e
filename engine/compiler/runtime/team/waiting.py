"""Shared words, accessed as the protocol's table says, and waiting for other threads: a spin, then a futex."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from engine.compiler.codegen.ir import Function, Module, Value
from engine.compiler.runtime import protocol
from engine.compiler.runtime.protocol import PROTOCOL, Word

NULL, ZERO, ONE = Value("null", "ptr"), Value("0", "i64"), Value("1", "i64")
BITS, MASK = Value(str(protocol.SEGMENT_BITS), "i64"), Value(str(protocol.STOP), "i64")
Pause: TypeAlias = tuple[str, list[Value]]
FUTEX: Final = {"x86_64": 202, "aarch64": 98}
PAUSE: Final[dict[str, Pause]] = {
    "x86_64": ("llvm.x86.sse2.pause", []),
    "aarch64": ("llvm.aarch64.hint", [Value("1", "i32")]),
}
_FUTEX_WAIT, _FUTEX_WAKE = 128, 129  # private to the process


def access(f: Function, row: str, address: Value, *values: Value, into: Value | None = None) -> Value:
    """Emit the access of a protocol row; return the value found, or whether a swap succeeded."""
    rule = PROTOCOL[row]
    kind, ordering, align = rule.word.type, rule.ordering, int(rule.word.type[1:]) // 8
    where = f"ptr {address.text}"
    if rule.operation == "store":
        f.do(f"store atomic {kind} {values[0].text}, {where} {ordering}, align {align}")
        return values[0]
    if rule.operation == "swap":
        old, new = values
        pair = f"{{ {kind}, i1 }}"
        swap = f"cmpxchg {where}, {kind} {old.text}, {kind} {new.text} {ordering} monotonic, align {align}"
        return f.op("i1", f"extractvalue {pair} {f.op(pair, swap).text}, 1")
    if rule.operation == "load":
        text = f"load atomic {kind}, {where} {ordering}, align {align}"
    else:
        text = f"atomicrmw {rule.operation} {where}, {kind} 1 {ordering}, align {align}"
    found = forward_value(f, kind) if into is None else into
    define(f, found, text)
    return found


def at(f: Function, block: Value, word: Word) -> Value:
    """Return the address of a word in the team's block, or in a step's counters."""
    return f.at(block, word.offset, 1)


def count(f: Function, counter: Value, its_epoch: Value, epoch: Value) -> Value:
    """Return the count in a counter; one of another epoch counts as 0."""
    is_mine = f.compare("eq", its_epoch, epoch)
    return f.select(is_mine, f.binary("and", counter, MASK), ZERO)


def forward_value(f: Function, kind: str) -> Value:
    """Return a value that is named before it is defined."""
    return Value(f"%{f.block('later')}", kind)


def define(f: Function, value: Value, text: str) -> None:
    f.do(f"{value.text} = {text}")


def sleep_and_wake(module: Module, futex: int) -> None:
    """Emit ``sleep_on(word, value)``, which sleeps while the word holds the value, and ``wake_all(word)``."""
    module.declarations["syscall"] = "declare i64 @syscall(i64, ...)"
    f = module.inner("sleep_on", [("ptr", "word"), ("i32", "value")])
    word, value = f.parameters
    _system(f, f"i64 {futex}, ptr {word.text}, i32 {_FUTEX_WAIT}, i32 {value.text}, ptr null, ptr null, i32 0")
    f.finish()
    f = module.inner("wake_all", [("ptr", "word")])
    (word,) = f.parameters
    _system(f, f"i64 {futex}, ptr {word.text}, i32 {_FUTEX_WAKE}, i32 {2**31 - 1}, ptr null, ptr null, i32 0")
    f.finish()


def _system(f: Function, arguments: str) -> None:
    f.op("i64", f"call i64 (i64, ...) @syscall({arguments})")


def wait_for(
    f: Function,
    pause: Pause,
    before: str,
    *,
    rows: tuple[str, str, str, str],
    word: Value,
    is_over: Callable[[Value], Value],
    into: Value,
    then: str,
    spin: Value,
    waiters: Value,
    futex_word: Value,
    ticket: Callable[[], Value],
) -> None:
    """Read a word until its value ends the wait: spin for a while, then sleep between reads.

    Args:
        before, then: labels of the blocks around.
        rows: of the protocol: poll, register, recheck, unregister.
        is_over: whether a value found in the word ends the wait; that value goes ``into``.
        spin: reads before the first sleep.
        futex_word, ticket: the word to sleep on, and the value it must have had before the last read.
    """
    look_row, down_row, last_row, up_row = rows
    look, idle, retry, doze, slept = map(f.block, ("look", "idle", "again", "doze", "slept"))
    next_turn = forward_value(f, "i64")
    f.jump(look)

    f.start(look)
    turn = f.phi((ZERO, before), (next_turn, retry), (spin, slept))
    access(f, look_row, word, into=into)
    f.branch(is_over(into), then, idle)

    f.start(idle)
    f.branch(f.compare("uge", turn, spin), doze, retry)

    f.start(retry)
    f.call(*pause)
    define(f, next_turn, f"add i64 {turn.text}, 1")
    f.jump(look)

    f.start(doze)
    access(f, down_row, waiters)
    drawn = ticket()
    with f.unless(is_over(access(f, last_row, word))):
        f.call("sleep_on", [futex_word, drawn])
    f.jump(slept)

    f.start(slept)
    access(f, up_row, waiters)
    f.jump(look)
