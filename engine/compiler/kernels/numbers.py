"""Numbers in memory that kernels compute with as floats: floats, bytes, which hold whole numbers, and bfloat16.

What is stored as bfloat16 is a factor of products, where subnormal numbers count as 0.
"""

from __future__ import annotations

from typing import Final

from engine.compiler.codegen.ir import Function, Value, constant, element_of, lanes_of, vector
from engine.compiler.kernels.functions.rounding import Code

FLOAT: Final = "float"
BFLOAT16: Final = "bfloat16"
_EXTENSIONS: Final = {"uint8": "uitofp", "int8": "sitofp"}
"""Dtypes of bytes -> LLVM's conversion to floats."""


def size_of(dtype: str) -> int | None:
    """Return the bytes of an element; None for the kernel's float."""
    return {FLOAT: None, BFLOAT16: 2}.get(dtype, 1)


def load_numbers(f: Function, type_: str, address: Value, count: int, stride: int = 1, dtype: str = FLOAT) -> Value:
    """Load ``count`` lanes as floats, ``stride`` elements apart, zero in the others; no other bytes are read.

    With a stride of 0 a single element is broadcast.
    """
    if dtype == FLOAT:
        return f.load_lanes(type_, address, count, stride)
    lanes = lanes_of(type_)
    if stride == 0:
        one = f.convert(_EXTENSIONS[dtype], f.load("i8", address, 1), element_of(type_))
        return f.splat(one, lanes)
    if stride == 1 or lanes == 1:
        return f.convert(_EXTENSIONS[dtype], f.load_bytes(address, lanes, count), type_)
    value = constant(0, vector(lanes, "i8"))
    for lane in range(count):
        one = f.load("i8", f.at(address, lane * stride, 1), 1)
        value = f.op(value.type, f"insertelement {value.type} {value.text}, i8 {one.text}, i64 {lane}")
    return f.convert(_EXTENSIONS[dtype], value, type_)


def store_numbers(f: Function, value: Value, address: Value, count: int, dtype: str = FLOAT) -> None:
    """Store ``count`` lanes; no other bytes are written. What becomes bytes is a whole number in their range."""
    if dtype == FLOAT:
        f.store_lanes(value, address, count)
        return
    lanes = lanes_of(value.type)
    if dtype == BFLOAT16:
        short = f.convert("fptrunc", value, vector(lanes, "bfloat"))
        f.store_bytes(f.convert("bitcast", short, vector(lanes, "i16")), address, count)
        return
    whole = value.whole if isinstance(value, Code) else f.convert("fptosi", value, vector(lanes, "i32"))
    f.store_bytes(f.convert("trunc", whole, vector(lanes, "i8")), address, count)
