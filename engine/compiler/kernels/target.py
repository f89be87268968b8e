"""Stores of results through the epilogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.compiler.codegen.ir import Function, Index, Value
from engine.compiler.kernels.channels import Panel, starts_of
from engine.compiler.kernels.expr import Expr, emit
from engine.compiler.kernels.kernel import Epilogue, Strides, element_address


@dataclass(frozen=True, slots=True)
class Target:
    """Addresses of a kernel's target and of its epilogue's operands at one element.

    Args:
        tensors: address and strides of the target, then of every operand.
    """

    f: Function
    tree: Expr
    tensors: tuple[tuple[Value, Strides], ...]

    @classmethod
    def of(cls, f: Function, epilogue: Epilogue, strides: Strides, addresses: Sequence[Value]) -> Target:
        """Return the target and the epilogue operands at these addresses."""
        return cls(f, epilogue.tree, tuple(zip(addresses, (strides, *epilogue.operands), strict=True)))

    @property
    def addresses(self) -> list[Value]:
        """Return the addresses of the target and of every operand."""
        return [address for address, _ in self.tensors]

    def at(self, n: Index = 0, h: Index = 0, w: Index = 0, c: Index = 0) -> Target:
        """Emit the addresses at this offset."""
        tensors = (
            (element_address(self.f, address, strides, n, h, w, c), strides) for address, strides in self.tensors
        )
        return replace(self, tensors=tuple(tensors))

    def store_panel(self, values: Sequence[Value], panel: Panel, w: Index = 0) -> None:
        """Store the vectors of a panel one after the other."""
        for value, first, (_, real) in zip(values, starts_of(panel), panel, strict=True):
            self.store(value, real, w=w, c=first)

    def store(self, value: Value, count: int, h: Index = 0, w: Index = 0, c: Index = 0) -> None:
        """Apply the epilogue to a vector of ``count`` channels at this offset and store it."""
        f, ((target, strides), *operands) = self.f, self.tensors
        values = [
            f.load_lanes(value.type, element_address(f, at, each, 0, h, w, c), count, each.c) for at, each in operands
        ]
        result = emit(f, self.tree, [value, *values])
        f.store_lanes(result, element_address(f, target, strides, 0, h, w, c), count)
