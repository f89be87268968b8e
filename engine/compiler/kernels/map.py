"""Element-wise expressions over strided, broadcast operands: activations, sums, and every kind of copy.

Loops follow the target's layout: dimensions are ordered by stride, those contiguous in all operands are merged, and
the last is vectorised. Where the last is short or strided (three channels of an image), another dimension is
vectorised and its elements are gathered or scattered.

Arguments: target, operands.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from engine.compiler.codegen.host import Host
from engine.compiler.codegen.ir import Function, Index, Module, Sizes, Value, as_value, is_dynamic, vector
from engine.compiler.kernels.channels import fitting_lanes
from engine.compiler.kernels.expr import Expr, cost, emit
from engine.compiler.kernels.kernel import Kernel, block_of, derived, start
from engine.ir.dims import hint, is_same, largest, smallest

# Relative cost of an element when a vector is gathered or scattered element by element.
SCATTER_COST = 6


@dataclass(frozen=True, kw_only=True)
class Map(Kernel):
    """Element-wise map of static geometry; see ``make_map``.

    Args:
        sizes: of the loops, the outermost first; the last is vectorised.
        target: strides of the target along the loops.
        operands: strides of each operand along the loops, 0 where it is broadcast.
        lanes: vector width, no more than the last loop can use.
    """

    kind = "map"
    sizes: tuple[int, ...]
    target: tuple[int, ...]
    operands: tuple[tuple[int, ...], ...]
    tree: Expr
    lanes: int

    @cached_property
    def rows(self) -> int:
        """Return the iterations of all loops but the last."""
        return math.prod(self.sizes[:-1])

    @cached_property
    def blocking(self) -> tuple[int, int]:
        """Return the rows, and the elements of a row, in a chunk."""
        n_bytes, most = self.host.chunk_bytes, 2 * self.host.chunk_flops
        wanted = max(1, n_bytes // max(4 * (1 + len(self.operands)), n_bytes * max(1, cost(self.tree)) // most))
        length = self.sizes[-1]
        if hint(length) > wanted:
            return 1, -(-wanted // self.lanes) * self.lanes
        return smallest(self.rows, largest(1, wanted // length)), length

    @property
    def chunks(self) -> int:
        rows, length = self.blocking
        return -(-self.rows // rows) * -(-self.sizes[-1] // length)

    @property
    def flops(self) -> int:
        return self.rows * self.sizes[-1] * cost(self.tree)

    def dynamic(self, sizes: Sizes) -> Self:
        rows, length = self.blocking
        dynamic = self.with_dynamic(sizes, "sizes", "target", "operands")
        return derived(dynamic, blocking=(sizes.dynamic_count(rows), sizes.dynamic_count(length)))

    def emit(self, module: Module) -> None:
        f, (target, *operands), chunk = start(module, self, 1 + len(self.operands))
        rows, length = self.blocking
        row_block, segment = f.divmod(chunk, -(-self.sizes[-1] // length))
        with f.loop(*block_of(f, row_block, rows, self.rows)) as each:
            indices = self._indices(f, each.index)
            at = [f.at(base, self._offset(f, indices, strides)) for base, strides in self._strided(target, operands)]
            self._emit_row(f, at[0], at[1:], *block_of(f, segment, length, self.sizes[-1]))
        f.finish()

    def _strided(self, target: Value, operands: Sequence[Value]) -> list[tuple[Value, tuple[int, ...]]]:
        return [(target, self.target), *zip(operands, self.operands, strict=True)]

    def _indices(self, f: Function, row: Index) -> list[Index]:
        """Emit the index along every loop but the last."""
        indices: list[Index] = []
        for size in reversed(self.sizes[1:-1]):
            row, index = f.divmod(row, size)
            indices.append(index)
        return [row, *reversed(indices)] if len(self.sizes) > 1 else []

    def _offset(self, f: Function, indices: Sequence[Index], strides: Sequence[int]) -> Index:
        offset: Index = 0
        for index, stride in zip(indices, strides, strict=False):
            offset = f.add(offset, f.mul(index, stride))
        return offset

    def _emit_row(self, f: Function, target: Value, operands: Sequence[Value], begin: Index, end: Index) -> None:
        """Emit elements begin .. end of one row; its last vector may be partial."""
        type_ = vector(self.lanes)
        shared = {
            k: f.splat(f.load("float", at), self.lanes)
            for k, (at, strides) in enumerate(zip(operands, self.operands, strict=True))
            if strides[-1] == 0
        }
        whole = self.sizes[-1] // self.lanes * self.lanes
        rest = self.sizes[-1] - whole

        def element(index: Index, count: int) -> None:
            def load(at: Value, stride: int) -> Value:
                return f.load_lanes(type_, f.at(at, f.mul(index, stride)), count, stride)

            pairs = enumerate(zip(operands, self.operands, strict=True))
            values = [shared[k] if k in shared else load(at, strides[-1]) for k, (at, strides) in pairs]
            result = emit(f, self.tree, values, type_)
            f.store_lanes(result, f.at(target, f.mul(index, self.target[-1])), count, self.target[-1])

        if is_dynamic(whole) or whole:
            with f.loop(begin, f.minimum(end, whole), self.lanes) as loop:
                element(loop.index, self.lanes)
        # A dynamic remainder may be empty: with masks no lane is active then; without masks it is a scalar loop.
        is_masked = self.lanes > 1 and all(strides[-1] in (0, 1) for strides in (self.target, *self.operands))
        if is_dynamic(rest) and not is_masked:
            with f.loop(f.maximum(begin, whole), end) as loop:
                element(loop.index, 1)
        elif is_dynamic(rest) or rest:
            if isinstance(end, int):
                element(whole, rest)
            else:
                with f.when(f.compare("eq", end, as_value(self.sizes[-1]))):
                    element(whole, rest)


def make_map(
    shape: Sequence[int], target: Sequence[int], operands: Sequence[Sequence[int]], tree: Expr, host: Host
) -> Map:
    """Return the map over ``shape`` whose target and operands have these strides."""
    merged = merge_loops(shape, [target, *operands])
    merged = merged or [(1, (1, *(1 for _ in operands)))]
    merged.append(merged.pop(vector_loop(merged, host.lanes)))
    return Map(
        sizes=tuple(size for size, _ in merged),
        target=tuple(strides[0] for _, strides in merged),
        operands=tuple(tuple(strides[1 + k] for _, strides in merged) for k in range(len(operands))),
        tree=tree,
        lanes=fitting_lanes(hint(merged[-1][0]), host.lanes),
        host=host,
    )


def merge_loops(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the loops over ``shape`` as (size, strides of each tensor), ordered by the first tensor's strides.

    Dimensions of size 1 are dropped; neighbours that are contiguous in all tensors are merged.
    """
    loops = [(size, tuple(each[axis] for each in strides)) for axis, size in enumerate(shape) if size != 1]
    loops.sort(key=lambda loop: tuple(-abs(stride) for stride in hint(loop[1])))
    merged: list[tuple[int, tuple[int, ...]]] = []
    for size, steps in loops:
        if merged and all(is_same(outer, inner * size) for outer, inner in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = merged[-1][0] * size, steps
        else:
            merged.append((size, steps))
    return merged


def vector_loop(loops: Sequence[tuple[int, tuple[int, ...]]], lanes: int) -> int:
    """Return the loop to vectorise: a long one with stride 1."""

    def cost(loop: tuple[int, tuple[int, ...]]) -> float:
        size, (target, *operands) = hint(loop)
        vectors = -(-size // lanes)
        scattered = sum(stride not in (0, 1) for stride in operands) + (target != 1)
        return vectors / size * (1 + len(operands) + 0.5) + scattered * SCATTER_COST / lanes + 1 / size

    return min(range(len(loops)), key=lambda k: (cost(loops[k]), -k))
