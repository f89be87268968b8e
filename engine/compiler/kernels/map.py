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
from typing import Any, Self

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

    @property
    def element_bytes(self) -> int:
        """Return the bytes of an element of the target and of all operands."""
        return 4 * (1 + len(self.operands))

    @cached_property
    def blocking(self) -> tuple[int, int]:
        """Return the rows, and the elements of a row, in a chunk."""
        n_bytes, most = self.host.chunk_bytes, 2 * self.host.chunk_flops
        wanted = max(1, n_bytes // max(self.element_bytes, n_bytes * max(1, cost(self.tree)) // most))
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
        f, pointers, chunk = start(module, self, 1 + len(self.operands) + self.sets_fault_flag)
        rows, length = self.blocking
        row_block, segment = f.divmod(chunk, -(-self.sizes[-1] // length))
        with f.loop(*block_of(f, row_block, rows, self.rows)) as each:
            indices = loop_indices(f, each.index, self.sizes)
            strided = enumerate(zip(pointers, (self.target, *self.operands), strict=False))
            at = [self.address(f, k, base, offset_of(f, indices, strides)) for k, (base, strides) in strided]
            self._emit_row(f, [*at, *pointers[len(at) :]], *block_of(f, segment, length, self.sizes[-1]))
        f.finish()

    def _emit_row(self, f: Function, at: Sequence[Value], begin: Index, end: Index) -> None:
        """Emit elements begin .. end of one row; its last vector may be partial."""
        steps = enumerate(strides[-1] for strides in self.operands)
        shared = {k: self.load(f, k, at[1 + k], 0, self.lanes) for k, step in steps if step == 0}
        whole = self.sizes[-1] // self.lanes * self.lanes
        rest = self.sizes[-1] - whole

        def element(index: Index, count: int) -> None:
            numbers = range(len(self.operands))
            values = [shared[k] if k in shared else self.load(f, k, at[1 + k], index, count) for k in numbers]
            self.store(f, at, index, count, values)

        if is_dynamic(whole) or whole:
            with f.loop(begin, f.minimum(end, whole), self.lanes) as loop:
                element(loop.index, self.lanes)
        # A dynamic remainder may be empty: with masks no lane is active then; without masks it is a scalar loop.
        if is_dynamic(rest) and not self.is_masked:
            with f.loop(f.maximum(begin, whole), end) as loop:
                element(loop.index, 1)
        elif is_dynamic(rest) or rest:
            if isinstance(end, int):
                element(whole, rest)
            else:
                with f.when(f.compare("eq", end, as_value(self.sizes[-1]))):
                    element(whole, rest)

    @property
    def is_masked(self) -> bool:
        """Return whether masks select the elements of a partial vector."""
        return self.lanes > 1 and all(strides[-1] in (0, 1) for strides in (self.target, *self.operands))

    def address(self, f: Function, number: int, base: Value, offset: Index) -> Value:
        """Emit the address of an element of the target, number 0, or of an operand."""
        return f.at(base, offset)

    def load(self, f: Function, number: int, at: Value, index: Index, count: int) -> Value:
        """Emit a vector of an operand with ``count`` elements from ``index`` on; one in all lanes if it is shared."""
        stride = self.operands[number][-1]
        if stride == 0:
            return f.splat(f.load("float", at), self.lanes)
        return f.load_lanes(vector(self.lanes), f.at(at, f.mul(index, stride)), count, stride)

    def store(self, f: Function, at: Sequence[Value], index: Index, count: int, values: Sequence[Value]) -> None:
        """Emit the result of a vector of every operand, and its store; ``at`` are the addresses of the row."""
        result, stride = emit(f, self.tree, values, vector(self.lanes)), self.target[-1]
        f.store_lanes(result, f.at(at[0], f.mul(index, stride)), count, stride)


def loop_indices(f: Function, row: Index, sizes: Sequence[int]) -> list[Index]:
    """Emit the index along every loop but the last, from the number of a row."""
    indices: list[Index] = []
    for size in reversed(sizes[1:-1]):
        row, index = f.divmod(row, size)
        indices.append(index)
    return [row, *reversed(indices)] if len(sizes) > 1 else []


def offset_of(f: Function, indices: Sequence[Index], strides: Sequence[int]) -> Index:
    """Emit the offset of an element from its indices along the first loops."""
    offset: Index = 0
    for index, stride in zip(indices, strides, strict=False):
        offset = f.add(offset, f.mul(index, stride))
    return offset


def make_map(
    shape: Sequence[int], target: Sequence[int], operands: Sequence[Sequence[int]], tree: Expr, host: Host
) -> Map:
    """Return the map over ``shape`` whose target and operands have these strides."""
    return Map(**map_loops(shape, [target, *operands], host.lanes), tree=tree, host=host)


def map_loops(shape: Sequence[int], strides: Sequence[Sequence[int]], lanes: int) -> dict[str, Any]:
    """Return the fields of a map that describe its loops."""
    merged = merge_loops(shape, strides) or [(1, tuple(1 for _ in strides))]
    merged.append(merged.pop(vector_loop(merged, lanes)))
    by_tensor = [tuple(steps[k] for _, steps in merged) for k, _ in enumerate(strides)]
    return {
        "sizes": tuple(size for size, _ in merged),
        "target": by_tensor[0],
        "operands": tuple(by_tensor[1:]),
        "lanes": fitting_lanes(hint(merged[-1][0]), lanes),
    }


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
