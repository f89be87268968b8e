"""Transforms of Winograd's minimal filtering, as matrices and as vector code.

m outputs of an r-tap filter are a polynomial product evaluated at m + r - 1 points: y = Aᵀ[(G g) ⊙ (Bᵀ d)] (Lavin and
Gray, "Fast algorithms for convolutional neural networks", 2016; Toom and Cook's construction of the matrices). The
points are 0, infinity, pairs ±p, which share half of each transform, and at most one single point. Their choice
determines the rounding error: ±√½ and ±√2 keep F(4×4, 3×3) within 3e-6 of the largest output, the customary ±1 and ±2
within 2e-5.

With a stride of 2 the outer taps read only pixels of even index and the middle tap those of odd index. The first are a
filter of two taps and of stride 1, in m + 1 products for m outputs; the second are one tap, m products with the same
weight. In two dimensions (2m + 1)² products replace (3m)²: 81 instead of 144 for m = 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from engine.compiler.codegen.ir import Function, Value, constant
from engine.tensor import Array

# By stride and number of products (with a stride, of the outer taps): pairs ±p, and single points. Largest error over
# largest output, float32, 256 input channels of unit variance: in two dimensions of 3 taps 7e-7, 3e-6, 2e-5 with
# stride 1, 7e-7, 5e-7, 8e-7 with stride 2; in one 1e-6 with 6 products, 3e-6 with 8. A direct convolution has 4e-7.
POINTS: dict[tuple[int, int], tuple[tuple[float, ...], tuple[float, ...]]] = {
    (1, 4): ((1.0,), ()),
    (1, 6): ((0.5**0.5, 2.0**0.5), ()),
    (1, 8): ((1.0, 2.0, 0.5), ()),
    (2, 3): ((), (1.0,)),
    (2, 4): ((1.0,), ()),
    (2, 5): ((2.0**0.5,), (0.5,)),
}
# Largest matrix product that OpenBLAS and similar libraries compute on the caller's thread.
ALONE = 1 << 17


@dataclass(frozen=True, slots=True)
class Run:
    """Contiguous filter values that multiply equally many values of the transformed tile each.

    Args:
        first, count: of the filter values.
        position: of the first transformed value; the others follow.
        repeats: transformed values for each filter value.
    """

    first: int
    count: int
    position: int
    repeats: int


@dataclass(frozen=True)
class Line:
    """F(m, r) of a stride in one dimension; with one output and one tap it is a plain product.

    Args:
        output_tile: m.
        taps: r, 3 with a stride of 2.
    """

    output_tile: int = 1
    taps: int = 1
    stride: int = 1

    @property
    def is_plain(self) -> bool:
        """Return whether there is no transform."""
        return self.taps == 1

    @property
    def reach(self) -> int:
        """Return the pixels under a tile."""
        return self.stride * (self.output_tile - 1) + self.taps

    @property
    def outer_taps(self) -> int:
        """Return the taps of the filter of stride 1 that is transformed."""
        return self.taps if self.stride == 1 else 2

    @property
    def products(self) -> int:
        """Return the products of that filter for all outputs of a tile."""
        return self.outer_taps + self.output_tile - 1

    @property
    def size(self) -> int:
        """Return the values of a transformed tile."""
        return self.products + (self.output_tile if self.stride == 2 else 0)

    @property
    def filter_size(self) -> int:
        """Return the values of a transformed filter."""
        return self.products + (self.stride == 2)

    @property
    def repeats(self) -> list[int]:
        """Return the number of tile values that each filter value multiplies."""
        return [1] * self.products + [self.output_tile] * (self.stride == 2)

    @property
    def points(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the pairs and the single points."""
        return POINTS[self.stride, self.products]

    @cached_property
    def matrix(self) -> Array:
        """Return the filter transform G, (values, taps) float64, in the order of the transformed values."""
        if self.is_plain:
            return np.ones((1, 1))
        pairs, alone = self.points
        finite = [0.0, *(sign * p for p in pairs for sign in (1.0, -1.0)), *alone]
        scales = [math.prod([p - other for j, other in enumerate(finite) if j != k]) for k, p in enumerate(finite)]
        powers = range(self.outer_taps)
        rows = [[p**power / scale for power in powers] for p, scale in zip(finite, scales, strict=True)]
        rows.append([0.0] * (self.outer_taps - 1) + [1.0])
        if self.stride == 1:
            return np.array(rows)
        return np.array([*([even, 0.0, odd] for even, odd in rows), [0.0, 1.0, 0.0]])

    def transform_pixels(self, f: Function, pixels: Sequence[Value]) -> list[Value]:
        """Emit Bᵀ d of ``reach`` neighbouring pixels. Row p of Bᵀ is the product of (x - q) over all other points q."""
        if self.is_plain:
            return [*pixels]
        if self.stride == 1:
            return _transform_inputs(f, pixels, *self.points)
        return [*_transform_inputs(f, pixels[0::2], *self.points), *pixels[1::2]]

    def transform_sums(self, f: Function, values: Sequence[Value]) -> list[Value]:
        """Emit Aᵀ v: ``size`` values back to m outputs."""
        if self.is_plain:
            return [*values]
        result = _transform_outputs(f, values[: self.products], self.output_tile, *self.points)
        if self.stride == 1:
            return result
        return [f.fadd(even, odd) for even, odd in zip(result, values[self.products :], strict=True)]


@dataclass(frozen=True)
class Filtering:
    """Transforms of pixels, filters and sums, and the order of transformed values.

    It is F(m×m, 3×3) of a stride, or F(1×m, 1×r): then a filter of any size is the sum of parts that are rows of r taps
    each. The last part of a row is shifted back, so that nothing beyond the filter is read.

    Args:
        output_tile: m.
        kernel: rows and columns of the filter.
        taps: r, if rows are transformed separately; else 0.
    """

    output_tile: int
    stride: int = 1
    kernel: tuple[int, int] = (3, 3)
    taps: int = 0

    @property
    def is_row(self) -> bool:
        """Return whether rows are transformed separately."""
        return self.taps > 0

    @property
    def lines(self) -> tuple[Line, Line]:
        """Return the transforms down and across a tile."""
        across = Line(self.output_tile, self.taps or 3, self.stride)
        return (Line() if self.is_row else across), across

    @property
    def tile(self) -> tuple[int, int]:
        """Return rows and columns of an output tile."""
        down, across = self.lines
        return down.output_tile, across.output_tile

    @property
    def reach(self) -> tuple[int, int]:
        """Return rows and columns of the pixels a part needs under a tile."""
        down, across = self.lines
        return down.reach, across.reach

    @property
    def size(self) -> tuple[int, int]:
        """Return rows and columns of a transformed tile."""
        down, across = self.lines
        return down.size, across.size

    @property
    def filter_size(self) -> tuple[int, int]:
        """Return rows and columns of a transformed filter."""
        down, across = self.lines
        return down.filter_size, across.filter_size

    @property
    def parts(self) -> tuple[int, int]:
        """Return the parts of a filter, down and across."""
        return (self.kernel[0], -(-self.kernel[1] // self.taps)) if self.is_row else (1, 1)

    @property
    def rounds(self) -> int:
        """Return the number of parts."""
        return math.prod(self.parts)

    @property
    def positions(self) -> int:
        """Return the values of a transformed tile."""
        return math.prod(self.size)

    @property
    def weights(self) -> int:
        """Return the values of a transformed part of a filter."""
        return math.prod(self.filter_size)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """Return all values of a transformed filter, in storage order."""
        runs, first, position = [], 0, 0
        for repeats in sorted(set(self._repeats.values())):
            count = sum(each == repeats for each in self._repeats.values())
            runs.append(Run(first, count, position, repeats))
            first, position = first + count, position + count * repeats
        return tuple(runs)

    @cached_property
    def _repeats(self) -> dict[tuple[int, int], int]:
        """Return the number of tile values each filter value multiplies, by its row and column."""
        down, across = (line.repeats for line in self.lines)
        repeats = {(i, j): m * n for i, m in enumerate(down) for j, n in enumerate(across)}
        return dict(sorted(repeats.items(), key=lambda item: item[1]))

    @cached_property
    def storage_order(self) -> dict[tuple[int, int], int]:
        """Return the storage position of each value of a transformed tile, by row and column."""
        down, across = (
            [min(i, count - 1) for i in range(size)] for size, count in zip(self.size, self.filter_size, strict=True)
        )
        order = [
            (i, j)
            for value in self._repeats
            for i, m in enumerate(down)
            for j, n in enumerate(across)
            if (m, n) == value
        ]
        return {each: position for position, each in enumerate(order)}

    def transform_filters(self, weight: Array) -> Array:
        """Return G g Gᵀ of filters (O, I, KH, KW): (parts, weights, I, O) in float64, in storage order."""
        order = [i * self.filter_size[1] + j for i, j in self._repeats]
        down, across = self.lines
        both = np.kron(down.matrix, across.matrix)[order]
        out_channels, in_channels = weight.shape[:2]
        parts = [
            _product(both, part.transpose(2, 3, 1, 0).reshape(both.shape[1], -1)).reshape(
                len(both), in_channels, out_channels
            )
            for part in self._parts_of(weight.astype(np.float64))
        ]
        return np.stack(parts) if len(parts) > 1 else parts[0][np.newaxis]

    def _parts_of(self, weight: Array) -> Iterator[Array]:
        """Yield the parts of filters; a tap in two parts belongs to the first."""
        if not self.is_row:
            yield weight
            return
        for row in range(self.kernel[0]):
            for part in range(self.parts[1]):
                first = min(part * self.taps, self.kernel[1] - self.taps)
                taps = weight[:, :, row : row + 1, first : first + self.taps].copy()
                taps[..., : part * self.taps - first] = 0
                yield taps


def _product(left: Array, right: Array) -> Array:
    """Return a matrix product, computed in pieces too small for BLAS to use threads of its own.

    Starting and joining threads takes longer than such products; on a busy machine many times as long.
    """
    step = max(1, ALONE // left.size)
    result = np.empty((len(left), right.shape[1]))
    for first in range(0, right.shape[1], step):
        np.matmul(left, right[:, first : first + step], out=result[:, first : first + step])
    return result


def _transform_inputs(
    f: Function, values: Sequence[Value], pairs: Sequence[float], alone: Sequence[float]
) -> list[Value]:
    squares = [p * p for p in pairs]
    whole = _product_of(squares)
    lonely = [_combine(f, whole, values[1 : 2 * len(whole) : 2]) for _ in alone]
    for point in alone:  # a factor of all other rows
        values = [_combine(f, [1.0, -point], [after, each]) for each, after in zip(values, values[1:], strict=False)]
    result = [_combine(f, whole, values[0::2])]
    for k, p in enumerate(pairs):
        rest = _product_of(squares[:k] + squares[k + 1 :])
        even, odd = _combine(f, rest, values[2::2]), _combine(f, rest, values[1:-2:2])
        result += [_combine(f, [p, 1.0], [odd, even]), _combine(f, [-p, 1.0], [odd, even])]
    return [*result, *lonely, _combine(f, whole, values[1::2])]


def _transform_outputs(
    f: Function, values: Sequence[Value], count: int, pairs: Sequence[float], alone: Sequence[float]
) -> list[Value]:
    """Emit the outputs: output i sums the values weighted by their points to the power of i."""
    twos = [(values[1 + 2 * k], values[2 + 2 * k]) for k in range(len(pairs))]
    sums, differences = [f.fadd(*two) for two in twos], [f.fsub(*two) for two in twos]
    result = []
    for i in range(count):
        powers = [p**i for p in (*pairs, *alone)]
        terms = [*(differences if i % 2 else sums), *values[1 + 2 * len(pairs) : -1]]
        if i == 0:
            powers, terms = [1.0, *powers], [values[0], *terms]
        if i == count - 1:
            powers, terms = [1.0, *powers], [values[-1], *terms]
        result.append(_combine(f, powers, terms))
    return result


def _product_of(squares: Sequence[float]) -> list[float]:
    """Return the coefficients of the product of (y - s), lowest power first, rounded against the noise of roots."""
    coefficients = [1.0]
    for s in squares:
        shifted, scaled = [0.0, *coefficients], [*(s * each for each in coefficients), 0.0]
        coefficients = [round(a - b, 12) for a, b in zip(shifted, scaled, strict=True)]
    return coefficients


def _combine(f: Function, coefficients: Sequence[float], values: Sequence[Value]) -> Value:
    """Emit the sum of coefficient times value: additions for coefficients ±1, fused products for others."""
    order = sorted(zip(coefficients, values, strict=True), key=lambda term: (term[0] != 1.0, abs(term[0]) != 1.0))
    first, value = order[0]
    total = value if first == 1.0 else f.fmul(value, constant(first, value.type))
    for coefficient, value in order[1:]:
        if abs(coefficient) == 1.0:
            total = f.fadd(total, value) if coefficient > 0 else f.fsub(total, value)
        else:
            total = f.fma(value, constant(coefficient, value.type), total)
    return total
