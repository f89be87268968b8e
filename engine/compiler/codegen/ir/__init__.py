"""Small writer of LLVM IR text: values, straight-line code, counted loops and branches.

Numbers known when a kernel is generated are Python ``int`` and are folded at once, so a static stride or trip count
never becomes an instruction: ``f.add(3, 4)`` is 7. Values are in SSA form from the start: a loop names the values it
carries, and no pass has to find them.

    with f.loop(0, n, carry=[zero]) as loop:
        total = f.fadd(loop.carried[0], f.load("float", f.at(x, loop.index)))
        loop.carry([total])
    f.store(loop.results[0], out)

Indices count elements unless a function says bytes: of float32, or of float64 within ``written_in("double")``.

Modules: ``sizes`` (numbers read at run time), ``values`` (constants, types) -> ``instructions`` (one method each) ->
``function`` (blocks, loops, size limits).
"""

from engine.compiler.codegen.ir.function import Function, Loop, Module, TooLargeError
from engine.compiler.codegen.ir.sizes import GuardedTable, Sizes, hint, is_at_most, is_dynamic, is_varying
from engine.compiler.codegen.ir.values import (
    Index,
    Precision,
    Value,
    as_value,
    constant,
    element_of,
    fuses_products,
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
    "GuardedTable",
    "Sizes",
    "TooLargeError",
    "Value",
    "as_value",
    "constant",
    "element_of",
    "fuses_products",
    "hint",
    "is_at_most",
    "is_dynamic",
    "is_varying",
    "lanes_below",
    "lanes_of",
    "mangled",
    "real",
    "real_bytes",
    "vector",
    "written_in",
]
