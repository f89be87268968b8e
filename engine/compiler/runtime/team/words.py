"""Words that threads share, accessed as the protocol's table says; values that are named before they are defined."""

from __future__ import annotations

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.runtime import protocol
from engine.compiler.runtime.protocol import PROTOCOL, Word

NULL, ZERO, ONE = Value("null", "ptr"), Value("0", "i64"), Value("1", "i64")
BITS, MASK = Value(str(protocol.SEGMENT_BITS), "i64"), Value(str(protocol.STOP), "i64")


def access(f: Function, row: str, address: Value, *values: Value, into: Value | None = None) -> Value:
    """A row of the protocol, done to its word: the value found there, or whether a swap held."""
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
    found = later(f, kind) if into is None else into
    define(f, found, text)
    return found


def at(f: Function, block: Value, word: Word) -> Value:
    """The address of a word in the team's block, or in a step's counters."""
    return f.at(block, word.offset, 1)


def count(f: Function, counter: Value, its_epoch: Value, epoch: Value) -> Value:
    """What a step's counter holds, as read; one of another epoch holds nothing yet."""
    is_mine = f.compare("eq", its_epoch, epoch)
    return f.select(is_mine, f.binary("and", counter, MASK), ZERO)


def later(f: Function, kind: str) -> Value:
    """A value that is named before it is defined."""
    return Value(f"%{f.block('later')}", kind)


def define(f: Function, value: Value, text: str) -> None:
    f.do(f"{value.text} = {text}")
