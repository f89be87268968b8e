"""Arithmetic sequences: a first number and a constant step.

Argument: target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from engine.compiler.codegen.ir import Module, as_value
from engine.compiler.kernels.kernel import Lines, block_of, start

COUNTED: Final = {"int32": ("i32", 4), "int64": ("i64", 8), "float32": ("float", 4), "float64": ("double", 8)}
"""Supported dtypes: LLVM type and bytes."""


@dataclass(frozen=True, kw_only=True)
class ArithmeticSequence(Lines):
    """Arithmetic sequence of integers, contiguous in memory.

    Args:
        dtype: one of ``COUNTED``.
    """

    kind = "count"
    dynamic_fields = ("count",)
    symbolic_fields = ("first", "step")
    count: int
    first: int
    step: int
    dtype: str

    @property
    def lines(self) -> int:
        return self.count

    @property
    def line_bytes(self) -> int:
        return COUNTED[self.dtype][1]

    def emit(self, module: Module) -> None:
        f, (target,), chunk = start(module, self, 1)
        type_, size = COUNTED[self.dtype]
        with f.loop(*block_of(f, chunk, self.block, self.count)) as each:
            number = as_value(f.add(self.first, f.mul(each.index, self.step)))
            if type_ != "i64":
                number = f.convert("trunc" if type_ == "i32" else "sitofp", number, type_)
            f.store(number, f.at(target, each.index, size), size)
        f.finish()
