"""A small writer of LLVM IR text: values, straight-line code, counted loops and branches.

Whatever is known when a kernel is generated is a Python ``int`` and folds on the spot, so that a static stride or
trip count never becomes an instruction: ``f.add(3, 4)`` is 7. Values are in SSA form from the start: what changes in
a loop is carried through it by name, and no pass has to find it out again.

    with f.loop(0, n, carry=[zero]) as loop:
        total = f.fadd(loop.carried[0], f.load("float", f.at(x, loop.index)))
        loop.carry([total])
    f.store(loop.results[0], out)

An index counts elements unless a function says bytes: of float32, or of float64 within ``written_in("double")``.

sizes (numbers that code reads when it runs), values (constants, types) -> instructions (each a method that writes
it) -> function (blocks, loops, bounds of it).
"""

from engine.compiler.codegen.ir.function import Function, Loop, Module, TooLargeError
from engine.compiler.codegen.ir.sizes import Form, Sizes, hint, is_at_most, is_open, is_varying
from engine.compiler.codegen.ir.values import (
    Index,
    Precision,
    Value,
    as_value,
    constant,
    element_of,
    lanes_below,
    lanes_of,
    mangled,
    real,
    real_bytes,
    vector,
    written_in,
)

__all__ = [
    "Function",
    "Index",
    "Loop",
    "Module",
    "Precision",
    "Form",
    "Sizes",
    "TooLargeError",
    "Value",
    "as_value",
    "constant",
    "element_of",
    "hint",
    "is_at_most",
    "is_open",
    "is_varying",
    "lanes_below",
    "lanes_of",
    "mangled",
    "real",
    "real_bytes",
    "vector",
    "written_in",
]
