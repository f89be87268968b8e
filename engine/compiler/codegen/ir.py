"""A small writer of LLVM IR text: values, straight-line code, counted loops and branches.

Whatever is known when a kernel is generated is a Python ``int`` and folds on the spot, so that a static stride or
trip count never becomes an instruction: ``f.add(3, 4)`` is 7. Values are in SSA form from the start: what changes in
a loop is carried through it by name, and no pass has to find it out again.

    with f.loop(0, n, carry=[zero]) as loop:
        total = f.fadd(loop.carried[0], f.load("float", f.at(x, loop.index)))
        loop.carry([total])
    f.store(loop.results[0], out)

An index counts elements of float32 unless a function says bytes.

What a kernel may be is bounded here, where every instruction and every byte of stack passes: a generator that writes
out what grows with a tensor or a parameter is stopped, whichever it is.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

FLOAT_BYTES = 4

# What a function may reserve on the stack of its thread, in bytes.
STACK_BYTES = 1 << 20
# Instructions of a basic block, for which the code generator's time grows with their square, and of a module.
BLOCK_OPERATIONS = 8_000
MODULE_OPERATIONS = 40_000


class TooLargeError(Exception):
    """A kernel would take more stack, or more code, than any may."""


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value or a constant: its text and its LLVM type (``i64``, ``float``, ``ptr``, ``<16 x float>``)."""

    text: str
    type: str


Index: TypeAlias = Value | int


def vector(lanes: int, of: str = "float") -> str:
    """The type of a vector; one lane is the scalar itself."""
    return of if lanes == 1 else f"<{lanes} x {of}>"


def lanes_of(kind: str) -> int:
    """How many elements a type holds."""
    found = re.match(r"<(\d+) x", kind)
    return int(found[1]) if found else 1


def element_of(kind: str) -> str:
    """The element type of a vector, or the type itself."""
    return kind[kind.index(" x ") + 3 : -1] if kind.startswith("<") else kind


def float_text(number: float) -> str:
    """A float32 constant as LLVM wants it: the bits of the nearest double, in hexadecimal."""
    try:
        (single,) = struct.unpack("<f", struct.pack("<f", number))
    except OverflowError:  # beyond float32's largest
        single = math.copysign(math.inf, number)
    (bits,) = struct.unpack("<Q", struct.pack("<d", single))
    return f"0x{bits:016X}"


def constant(number: float, kind: str) -> Value:
    """The same number in every lane of a float or integer type."""
    element = element_of(kind)
    text = float_text(float(number)) if element == "float" else str(int(number))
    if kind == element:
        return Value(text, kind)
    return Value("<" + ", ".join([f"{element} {text}"] * lanes_of(kind)) + ">", kind)


def lanes_below(count: int, lanes: int) -> Value:
    """The mask that is on for the first ``count`` lanes."""
    bits = ", ".join(f"i1 {'true' if lane < count else 'false'}" for lane in range(lanes))
    return Value(f"<{bits}>", vector(lanes, "i1"))


@dataclass(slots=True)
class Loop:
    """A loop being written: its index, what it carries in, and the results after it."""

    index: Value
    carried: list[Value]
    results: list[Value] = field(default_factory=list)
    following: list[Value] | None = None

    def carry(self, values: Sequence[Value]) -> None:
        """What the next turn starts from; once in every body that carries."""
        self.following = list(values)


class Module:
    """A translation unit: functions, and the intrinsics they declare."""

    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}
        self.declarations: dict[str, str] = {}
        self.operations = 0

    def function(self, name: str, parameters: Sequence[tuple[str, str]], *, result: str = "void") -> Function:
        """A new function; ``parameters`` are (type, name)."""
        self.functions[name] = Function(self, name, parameters, result)
        return self.functions[name]

    def __str__(self) -> str:
        return "\n".join([*self.declarations.values(), *(str(f) for f in self.functions.values()), ""])


class Function:
    """One function, written from top to bottom."""

    def __init__(self, module: Module, name: str, parameters: Sequence[tuple[str, str]], result: str) -> None:
        self.module = module
        self.name = name
        self.result = result
        self.parameters = [Value(f"%{each}", kind) for kind, each in parameters]
        self.attributes = "nounwind"
        self.linkage = ""
        self._lines: list[str] = []
        self._count = 0
        self._block = "entry"
        self._in_block = 0
        self._reserved = 0

    def __str__(self) -> str:
        parameters = ", ".join(f"{each.type} {each.text}" for each in self.parameters)
        head = f"define {self.linkage}{self.result} @{self.name}({parameters}) {self.attributes} {{"
        return "\n".join([head, "entry:", *self._lines, "}", ""])

    # -- instructions -------------------------------------------------------------------------------------------------

    def op(self, kind: str, text: str) -> Value:
        """The result of an instruction."""
        value = Value(self._fresh("v"), kind)
        self._write(f"  {value.text} = {text}")
        return value

    def do(self, text: str) -> None:
        """An instruction without a result."""
        self._write(f"  {text}")

    def _write(self, line: str) -> None:
        self._lines.append(line)
        self._in_block += 1
        self.module.operations += 1
        if self._in_block > BLOCK_OPERATIONS or self.module.operations > MODULE_OPERATIONS:
            raise TooLargeError("its kernel would be too much code")

    def call(self, name: str, arguments: Sequence[Value], result: str = "void") -> Value:
        """Call a function of this module or an intrinsic; what is not defined here is declared."""
        if name not in self.module.functions:
            kinds = ", ".join(each.type for each in arguments)
            self.module.declarations[name] = f"declare {result} @{name}({kinds})"
        text = f"call {result} @{name}({', '.join(f'{each.type} {each.text}' for each in arguments)})"
        if result == "void":
            self.do(text)
            return Value("", "void")
        return self.op(result, text)

    def intrinsic(self, name: str, *arguments: Value, result: str | None = None) -> Value:
        """``llvm.<name>`` overloaded on the type of its first argument: ``intrinsic("sqrt", x)``."""
        kind = arguments[0].type
        return self.call(f"llvm.{name}.{_mangled(kind)}", arguments, result or kind)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """``fadd``, ``fsub``, ``fmul``, ``fdiv``, ``and``, ``shl`` ... of two values of one type."""
        return self.op(a.type, f"{name} {a.type} {a.text}, {b.text}")

    def fadd(self, a: Value, b: Value) -> Value:
        """a + b"""
        return self.binary("fadd", a, b)

    def fsub(self, a: Value, b: Value) -> Value:
        """a - b"""
        return self.binary("fsub", a, b)

    def fmul(self, a: Value, b: Value) -> Value:
        """a * b"""
        return self.binary("fmul", a, b)

    def fdiv(self, a: Value, b: Value) -> Value:
        """a / b"""
        return self.binary("fdiv", a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, in one rounding where the host can."""
        return self.intrinsic("fmuladd", a, b, c)

    def compare(self, how: str, a: Value, b: Value) -> Value:
        """A mask; ``how`` is LLVM's: ``olt``, ``une`` for floats, ``slt``, ``eq`` for integers."""
        name = "fcmp" if element_of(a.type) == "float" else "icmp"
        return self.op(vector(lanes_of(a.type), "i1"), f"{name} {how} {a.type} {a.text}, {b.text}")

    def select(self, mask: Value, a: Value, b: Value) -> Value:
        """a where the mask is on, else b."""
        return self.op(a.type, f"select {mask.type} {mask.text}, {a.type} {a.text}, {b.type} {b.text}")

    def any(self, mask: Value) -> Value:
        """Whether a lane of a mask is on, as i1."""
        lanes = lanes_of(mask.type)
        if lanes == 1:
            return mask
        bits = self.op(f"i{lanes}", f"bitcast {mask.type} {mask.text} to i{lanes}")
        return self.op("i1", f"icmp ne i{lanes} {bits.text}, 0")

    def convert(self, name: str, a: Value, kind: str) -> Value:
        """``bitcast``, ``fptosi``, ``sitofp``, ``zext`` ... to another type."""
        return self.op(kind, f"{name} {a.type} {a.text} to {kind}")

    def splat(self, a: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1:
            return a
        kind = vector(lanes, a.type)
        first = self.op(kind, f"insertelement {kind} poison, {a.type} {a.text}, i64 0")
        return self.op(kind, f"shufflevector {kind} {first.text}, {kind} poison, <{lanes} x i32> zeroinitializer")

    # -- memory -------------------------------------------------------------------------------------------------------

    def at(self, base: Value, index: Index, size: int = FLOAT_BYTES) -> Value:
        """The address ``index`` elements of ``size`` bytes after ``base``."""
        if isinstance(index, int):
            return base if index == 0 else self.op("ptr", f"getelementptr i8, ptr {base.text}, i64 {index * size}")
        kind = {1: "i8", 2: "i16", 4: "float", 8: "i64"}[size]
        return self.op("ptr", f"getelementptr {kind}, ptr {base.text}, i64 {index.text}")

    def load(self, kind: str, address: Value, align: int = FLOAT_BYTES) -> Value:
        """A value from memory; only the element's own alignment is assumed."""
        return self.op(kind, f"load {kind}, ptr {address.text}, align {align}")

    def store(self, value: Value, address: Value, align: int = FLOAT_BYTES) -> None:
        """A value to memory."""
        self.do(f"store {value.type} {value.text}, ptr {address.text}, align {align}")

    def load_lanes(self, kind: str, address: Value, count: int) -> Value:
        """The first ``count`` lanes from memory, zero in the others; no byte beyond them is touched."""
        lanes = lanes_of(kind)
        if count == lanes:
            return self.load(kind, address)
        arguments = [address, Value("4", "i32"), lanes_below(count, lanes), Value("zeroinitializer", kind)]
        return self.call(f"llvm.masked.load.{_mangled(kind)}.p0", arguments, kind)

    def store_lanes(self, value: Value, address: Value, count: int) -> None:
        """The first ``count`` lanes to memory; no byte beyond them is touched."""
        lanes = lanes_of(value.type)
        if count == lanes:
            self.store(value, address)
            return
        arguments = [value, address, Value("4", "i32"), lanes_below(count, lanes)]
        self.call(f"llvm.masked.store.{_mangled(value.type)}.p0", arguments)

    def reserve(self, count: int, size: int = FLOAT_BYTES) -> Value:
        """Memory for ``count`` elements of ``size`` bytes on the stack, 64-byte aligned; at a function's beginning.

        Raises:
            TooLargeError: it is more than a thread's stack may be trusted to have.
        """
        self._reserved += count * size
        if self._reserved > STACK_BYTES:
            raise TooLargeError("its kernel would take too much of the stack")
        return self.op("ptr", f"alloca [{count * size} x i8], align 64")

    def prefetch(self, address: Value, locality: int = 3) -> None:
        """Begin to fetch a cache line; 3 into every cache, 2 into all but the first. Any address may be given."""
        arguments = [address, Value("0", "i32"), Value(str(locality), "i32"), Value("1", "i32")]
        self.call("llvm.prefetch.p0", arguments)

    # -- index arithmetic ---------------------------------------------------------------------------------------------

    def add(self, a: Index, b: Index) -> Index:
        """a + b of i64, folded where both are known."""
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if a == 0 or b == 0:
            return b if a == 0 else a
        return self.op("i64", f"add i64 {_text(a)}, {_text(b)}")

    def sub(self, a: Index, b: Index) -> Index:
        """a - b of i64."""
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if b == 0 else self.op("i64", f"sub i64 {_text(a)}, {_text(b)}")

    def mul(self, a: Index, b: Index) -> Index:
        """a * b of i64."""
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if a == 0 or b == 0:
            return 0
        if a == 1 or b == 1:
            return b if a == 1 else a
        return self.op("i64", f"mul i64 {_text(a)}, {_text(b)}")

    def divmod(self, a: Index, b: int) -> tuple[Index, Index]:
        """Quotient and remainder of a non-negative i64 by a known number."""
        if isinstance(a, int):
            return divmod(a, b)
        if b == 1:
            return a, 0
        quotient = self.op("i64", f"udiv i64 {a.text}, {b}")
        return quotient, self.op("i64", f"urem i64 {a.text}, {b}")

    def minimum(self, a: Index, b: Index) -> Index:
        """The smaller of two i64."""
        return self._extremum("smin", a, b)

    def maximum(self, a: Index, b: Index) -> Index:
        """The larger of two i64."""
        return self._extremum("smax", a, b)

    def _extremum(self, name: str, a: Index, b: Index) -> Index:
        if isinstance(a, int) and isinstance(b, int):
            return min(a, b) if name == "smin" else max(a, b)
        return self.call(f"llvm.{name}.i64", [as_value(a), as_value(b)], "i64")

    def less(self, a: Index, b: Index) -> Value:
        """Whether a < b, as i1."""
        return self.op("i1", f"icmp slt i64 {_text(a)}, {_text(b)}")

    # -- control ------------------------------------------------------------------------------------------------------

    @contextmanager
    def loop(self, start: Index, stop: Index, step: int = 1, carry: Sequence[Value] = ()) -> Iterator[Loop]:
        """Count from ``start`` to below ``stop``; what is carried comes out in ``results``."""
        if isinstance(start, int) and isinstance(stop, int) and start >= stop:
            raise ValueError(f"a loop from {start} to {stop} has no turn")
        is_certain = isinstance(start, int) and isinstance(stop, int)
        name = self._fresh("loop").removeprefix("%")
        before, body, after = self._block, f"{name}.body", f"{name}.after"
        if is_certain:
            self.do(f"br label %{body}")
        else:
            enters = self.less(start, stop)
            self.do(f"br i1 {enters.text}, label %{body}, label %{after}")
        self._start_block(body)
        place = len(self._lines)
        index = Value(f"%{name}.i", "i64")
        carried = [Value(f"%{name}.c{k}", each.type) for k, each in enumerate(carry)]
        self._lines.extend([""] * (1 + len(carried)))
        loop = Loop(index, carried)
        yield loop
        following = loop.following if loop.following is not None else carried
        advanced = self.add(index, step)
        again = self.less(advanced, stop)
        last = self._block
        self.do(f"br i1 {again.text}, label %{body}, label %{after}")
        self._lines[place] = f"  {index.text} = phi i64 [ {_text(start)}, %{before} ], [ {_text(advanced)}, %{last} ]"
        for k, (first, value, back) in enumerate(zip(carry, carried, following, strict=True), 1):
            self._lines[place + k] = (
                f"  {value.text} = phi {value.type} [ {first.text}, %{before} ], [ {back.text}, %{last} ]"
            )
        self._start_block(after)
        if is_certain:
            loop.results = following
            return
        for first, back in zip(carry, following, strict=True):
            loop.results.append(
                self.op(first.type, f"phi {first.type} [ {first.text}, %{before} ], [ {back.text}, %{last} ]")
            )

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Code that runs only when an i1 is on."""
        name = self._fresh("when").removeprefix("%")
        with self._branch(name, condition, f"{name}.then", f"{name}.after"):
            yield

    @contextmanager
    def unless(self, condition: Value) -> Iterator[None]:
        """Code that runs only when an i1 is off."""
        name = self._fresh("unless").removeprefix("%")
        with self._branch(name, condition, f"{name}.after", f"{name}.then"):
            yield

    @contextmanager
    def _branch(self, name: str, condition: Value, on: str, off: str) -> Iterator[None]:
        self.do(f"br i1 {condition.text}, label %{on}, label %{off}")
        self._start_block(f"{name}.then")
        yield
        self.do(f"br label %{name}.after")
        self._start_block(f"{name}.after")

    def block(self, name: str) -> str:
        """A fresh label for hand-written control flow."""
        return f"{self._fresh(name).removeprefix('%')}"

    def start(self, label: str) -> None:
        """Begin the block of a label made by ``block``; the one before must have ended in a branch."""
        self._start_block(label)

    def finish(self) -> None:
        """Return nothing; the last thing in a function."""
        self.do("ret void")

    def _start_block(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self._block = label
        self._in_block = 0

    def _fresh(self, stem: str) -> str:
        self._count += 1
        return f"%{stem}{self._count}"


def as_value(index: Index) -> Value:
    """An index as an i64 value."""
    return Value(str(index), "i64") if isinstance(index, int) else index


def _text(index: Index) -> str:
    return as_value(index).text


def _mangled(kind: str) -> str:
    lanes, element = (
        lanes_of(kind),
        {"float": "f32", "double": "f64", "ptr": "p0"}.get(element_of(kind), element_of(kind)),
    )
    return element if lanes == 1 else f"v{lanes}{element}"
