"""IR instructions, one method each: arithmetic, memory, indices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import cast

from engine.compiler.codegen.ir.sizes import is_dynamic, is_number, larger, smaller
from engine.compiler.codegen.ir.values import (
    Index,
    Value,
    as_value,
    element_of,
    lanes_below,
    lanes_of,
    mangled,
    mask,
    real,
    real_bytes,
    vector,
)


class Instructions(ABC):
    """Instructions of a block."""

    @abstractmethod
    def op(self, type_: str, text: str) -> Value:
        """Emit an instruction and return its result."""

    @abstractmethod
    def do(self, text: str) -> None:
        """Emit an instruction without a result."""

    @abstractmethod
    def declare(self, name: str, result: str, types: Sequence[str]) -> None:
        """Declare an external function, unless it is in this module."""

    def call(self, name: str, arguments: Sequence[Value], result: str = "void") -> Value:
        """Call a function of this module or an intrinsic, which is declared if not defined here."""
        self.declare(name, result, [each.type for each in arguments])
        text = f"call {result} @{name}({', '.join(f'{each.type} {each.text}' for each in arguments)})"
        if result == "void":
            self.do(text)
            return Value("", "void")
        return self.op(result, text)

    def intrinsic(self, name: str, *arguments: Value) -> Value:
        """Emit ``llvm.<name>`` overloaded on the type of its first argument: ``intrinsic("sqrt", x)``."""
        type_ = arguments[0].type
        return self.call(f"llvm.{name}.{mangled(type_)}", arguments, type_)

    def binary(self, name: str, a: Value, b: Value) -> Value:
        """Emit ``fadd``, ``fsub``, ``fmul``, ``fdiv``, ``and``, ``shl`` ... of two values of one type."""
        return self.op(a.type, f"{name} {a.type} {a.text}, {b.text}")

    def fadd(self, a: Value, b: Value) -> Value:
        """Emit a + b."""
        return self.binary("fadd", a, b)

    def fsub(self, a: Value, b: Value) -> Value:
        """Emit a - b."""
        return self.binary("fsub", a, b)

    def fmul(self, a: Value, b: Value) -> Value:
        """Emit a * b."""
        return self.binary("fmul", a, b)

    def fdiv(self, a: Value, b: Value) -> Value:
        """Emit a / b."""
        return self.binary("fdiv", a, b)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """Emit a * b + c, fused if the host has FMA."""
        return self.intrinsic("fmuladd", a, b, c)

    def compare(self, how: str, a: Value, b: Value) -> Value:
        """Emit a comparison mask; ``how`` is LLVM's predicate, such as ``olt`` for floats or ``slt`` for integers."""
        name = "fcmp" if element_of(a.type) in ("float", "double") else "icmp"
        return self.op(vector(lanes_of(a.type), "i1"), f"{name} {how} {a.type} {a.text}, {b.text}")

    def select(self, mask: Value, a: Value, b: Value) -> Value:
        """Emit a where the mask is true, else b."""
        return self.op(a.type, f"select {mask.type} {mask.text}, {a.type} {a.text}, {b.type} {b.text}")

    def any(self, mask: Value) -> Value:
        """Emit whether any lane of a mask is true, as i1."""
        lanes = lanes_of(mask.type)
        if lanes == 1:
            return mask
        bits = self.op(f"i{lanes}", f"bitcast {mask.type} {mask.text} to i{lanes}")
        return self.op("i1", f"icmp ne i{lanes} {bits.text}, 0")

    def convert(self, name: str, a: Value, type_: str) -> Value:
        """Emit ``bitcast``, ``fptosi``, ``sitofp``, ``zext`` ... to another type."""
        type_ = real(type_)
        return self.op(type_, f"{name} {a.type} {a.text} to {type_}")

    def splat(self, a: Value, lanes: int) -> Value:
        """Emit a scalar in every lane."""
        if lanes == 1:
            return a
        type_ = vector(lanes, a.type)
        first = self.op(type_, f"insertelement {type_} poison, {a.type} {a.text}, i64 0")
        return self.op(type_, f"shufflevector {type_} {first.text}, {type_} poison, <{lanes} x i32> zeroinitializer")

    def shuffle(self, a: Value, b: Value, picks: Sequence[int | None]) -> Value:
        """Emit lanes of ``a`` (numbers below its size), then of ``b``; None where any lane will do."""
        text = ", ".join("i32 poison" if pick is None else f"i32 {pick}" for pick in picks)
        type_ = vector(len(picks), element_of(a.type))
        return self.op(type_, f"shufflevector {a.type} {a.text}, {b.type} {b.text}, <{len(picks)} x i32> <{text}>")

    # -- memory -------------------------------------------------------------------------------------------------------

    def at(self, base: Value, index: Index, size: int | None = None) -> Value:
        """Emit the address ``index`` elements of ``size`` bytes after ``base``."""
        size = size or real_bytes()
        if isinstance(index, int):
            return base if index == 0 else self.op("ptr", f"getelementptr i8, ptr {base.text}, i64 {index * size}")
        type_ = {1: "i8", 2: "i16", 4: "float", 8: "i64"}[size]
        return self.op("ptr", f"getelementptr {type_}, ptr {base.text}, i64 {index.text}")

    def load(self, type_: str, address: Value, align: int = 4) -> Value:
        """Load a value; only the element's own alignment is assumed."""
        type_ = real(type_)
        return self.op(type_, f"load {type_}, ptr {address.text}, align {align}")

    def store(self, value: Value, address: Value, align: int = 4) -> None:
        """Store a value."""
        self.do(f"store {value.type} {value.text}, ptr {address.text}, align {align}")

    def load_lanes(self, type_: str, address: Value, count: int, stride: int = 1) -> Value:
        """Load ``count`` lanes, ``stride`` elements apart, zero in the others; no other bytes are read.

        With a stride of 0 a single element is broadcast.
        """
        lanes, element = lanes_of(type_), element_of(type_)
        if lanes == 1 or (stride == 1 and not is_dynamic(count) and count == lanes):
            return self.load(type_, address)
        if stride == 0:
            return self.splat(self.load(element, address), lanes)
        if stride == 1:
            arguments = [address, Value("4", "i32"), self.below(count, lanes), Value("zeroinitializer", type_)]
            return self.call(f"llvm.masked.load.{mangled(type_)}.p0", arguments, type_)
        value = Value("poison" if count == lanes else "zeroinitializer", type_)
        for lane in range(count):
            one = self.load(element, self.at(address, lane * stride))
            value = self.op(type_, f"insertelement {type_} {value.text}, {element} {one.text}, i64 {lane}")
        return value

    def load_bytes(self, address: Value, lanes: int, count: int, size: int = 1) -> Value:
        """Load ``count`` integers of ``size`` bytes, zero in the other lanes; no other bytes are read."""
        type_ = vector(lanes, f"i{8 * size}")
        if lanes == 1 or (not is_dynamic(count) and count == lanes):
            return self.load(type_, address, size)
        arguments = [address, Value(str(size), "i32"), self.below(count, lanes), Value("zeroinitializer", type_)]
        return self.call(f"llvm.masked.load.{mangled(type_)}.p0", arguments, type_)

    def store_bytes(self, value: Value, address: Value, count: int) -> None:
        """Store ``count`` integers of one or two bytes; no other bytes are written."""
        lanes = lanes_of(value.type)
        if lanes == 1 or (not is_dynamic(count) and count == lanes):
            self.store(value, address, 1)
            return
        if not is_dynamic(count) and count == 1:
            # LLVM would store the whole number that a single byte was truncated from.
            self.store(self.op(element_of(value.type), f"extractelement {value.type} {value.text}, i64 0"), address, 1)
            return
        arguments = [value, address, Value("1", "i32"), self.below(count, lanes)]
        self.call(f"llvm.masked.store.{mangled(value.type)}.p0", arguments)

    def store_lanes(self, value: Value, address: Value, count: int, stride: int = 1) -> None:
        """Store ``count`` lanes, ``stride`` elements apart; no other bytes are written."""
        lanes = lanes_of(value.type)
        if stride == 1 and lanes > 1 and is_dynamic(count):
            arguments = [value, address, Value("4", "i32"), self.below(count, lanes)]
            self.call(f"llvm.masked.store.{mangled(value.type)}.p0", arguments)
            return
        if stride == 1 or lanes == 1:
            self.store_where(value, address, [lane < count for lane in range(lanes)])
            return
        for lane in range(count):
            one = self.op(element_of(value.type), f"extractelement {value.type} {value.text}, i64 {lane}")
            self.store(one, self.at(address, lane * stride))

    def store_where(self, value: Value, address: Value, flags: Sequence[bool]) -> None:
        """Store the lanes whose flag is true; no other bytes are written."""
        if all(flags):
            self.store(value, address)
            return
        arguments = [value, address, Value("4", "i32"), mask(flags)]
        self.call(f"llvm.masked.store.{mangled(value.type)}.p0", arguments)

    def below(self, count: int, lanes: int) -> Value:
        """Emit the mask of the first ``count`` lanes; the count may be dynamic."""
        if not is_dynamic(count):
            return lanes_below(count, lanes)
        numbers = ", ".join(f"i64 {lane}" for lane in range(lanes))
        type_ = vector(lanes, "i64")
        return self.compare("slt", Value(f"<{numbers}>", type_), self.splat(as_value(count), lanes))

    def prefetch(self, address: Value, locality: int = 3) -> None:
        """Prefetch a cache line; locality 3 into every cache, 2 into all but L1. Any address is allowed."""
        arguments = [address, Value("0", "i32"), Value(str(locality), "i32"), Value("1", "i32")]
        self.call("llvm.prefetch.p0", arguments)

    # -- index arithmetic ---------------------------------------------------------------------------------------------

    def add(self, a: Index, b: Index) -> Index:
        """Emit a + b of i64, folded if both are constants."""
        if both := _numbers(a, b):
            return both[0] + both[1]
        if _is(a, 0) or _is(b, 0):
            return b if _is(a, 0) else a
        return self.op("i64", f"add i64 {as_value(a).text}, {as_value(b).text}")

    def sub(self, a: Index, b: Index) -> Index:
        """Emit a - b of i64."""
        if both := _numbers(a, b):
            return both[0] - both[1]
        return a if _is(b, 0) else self.op("i64", f"sub i64 {as_value(a).text}, {as_value(b).text}")

    def mul(self, a: Index, b: Index) -> Index:
        """Emit a * b of i64."""
        if both := _numbers(a, b):
            return both[0] * both[1]
        if _is(a, 0) or _is(b, 0):
            return 0
        if _is(a, 1) or _is(b, 1):
            return b if _is(a, 1) else a
        return self.op("i64", f"mul i64 {as_value(a).text}, {as_value(b).text}")

    def divmod(self, a: Index, b: int) -> tuple[Index, Index]:
        """Emit quotient and remainder of a non-negative i64 by a constant or a dynamic size."""
        if both := _numbers(a, b):
            return divmod(both[0], both[1])
        if _is(b, 1):
            return a, 0
        first, second = as_value(a).text, as_value(b).text
        return self.op("i64", f"udiv i64 {first}, {second}"), self.op("i64", f"urem i64 {first}, {second}")

    def minimum(self, a: Index, b: Index) -> Index:
        """Emit the smaller of two i64."""
        return smaller(*both) if (both := _numbers(a, b)) else self._extremum("smin", a, b)

    def maximum(self, a: Index, b: Index) -> Index:
        """Emit the larger of two i64."""
        return larger(*both) if (both := _numbers(a, b)) else self._extremum("smax", a, b)

    def _extremum(self, name: str, a: Index, b: Index) -> Index:
        return self.call(f"llvm.{name}.i64", [as_value(a), as_value(b)], "i64")

    def less(self, a: Index, b: Index) -> Value:
        """Emit whether a < b, as i1."""
        return self.op("i1", f"icmp slt i64 {as_value(a).text}, {as_value(b).text}")


def _numbers(a: Index, b: Index) -> tuple[int, int] | None:
    """Return both if each is a constant or a dynamic size, so that their combination is a number, too."""
    return cast(tuple[int, int], (a, b)) if is_number(a) and is_number(b) else None


def _is(index: Index, number: int) -> bool:
    return isinstance(index, int) and index == number
