"""Stores of results through the epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.compiler.codegen.ir import Function, Index, Value
from engine.compiler.kernels.channels import Panel, starts_of
from engine.compiler.kernels.expr import Expr, emit
from engine.compiler.kernels.kernel import Epilogue, Strides, element_address
from engine.compiler.kernels.numbers import FLOAT, load_numbers, store_numbers


@dataclass(frozen=True, slots=True)
class Target:
    """Addresses of a kernel's target and of its epilogue's operands at one element.

    Args:
        tensors: address, strides and dtype of the target, then of every operand.
    """

    f: Function
    tree: Expr
    tensors: tuple[tuple[Value, Strides, str], ...]

    @classmethod
    def of(cls, f: Function, epilogue: Epilogue, strides: Strides, addresses: Sequence[Value]) -> Target:
        """Return the target and the epilogue operands at these addresses."""
        dtypes = epilogue.dtypes or (FLOAT,) * len(addresses)
        return cls(f, epilogue.tree, tuple(zip(addresses, (strides, *epilogue.operands), dtypes, strict=True)))

    @property
    def addresses(self) -> list[Value]:
        """Return the addresses of the target and of every operand."""
        return [address for address, *_ in self.tensors]

    def at(self, n: Index = 0, h: Index = 0, w: Index = 0, c: Index = 0) -> Target:
        """Emit the addresses at this offset."""
        tensors = (
            (element_address(self.f, address, strides, n, h, w, c, dtype), strides, dtype)
            for address, strides, dtype in self.tensors
        )
        return replace(self, tensors=tuple(tensors))

    def store_panel(self, values: Sequence[Value], panel: Panel, w: Index = 0) -> None:
        """Store the vectors of a panel one after the other."""
        for value, first, (_, real) in zip(values, starts_of(panel), panel, strict=True):
            self.store(value, real, w=w, c=first)

    def store(self, value: Value, count: int, h: Index = 0, w: Index = 0, c: Index = 0) -> None:
        """Apply the epilogue to a vector of ``count`` channels at this offset and store it."""
        f, ((target, strides, stored), *operands) = self.f, self.tensors
        values = [
            load_numbers(f, value.type, element_address(f, at, each, 0, h, w, c, dtype), count, each.c, dtype)
            for at, each, dtype in operands
        ]
        result = emit(f, self.tree, [value, *values])
        store_numbers(f, result, element_address(f, target, strides, 0, h, w, c, stored), count, stored)
