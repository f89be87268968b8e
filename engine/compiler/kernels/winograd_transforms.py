"""The transforms of Winograd's minimal filtering F(m×m, 3×3), as matrices and as vector code.

m outputs of a 3-tap filter are a polynomial product evaluated at m + 2 points: y = Aᵀ[(G g) ⊙ (Bᵀ d)] (Lavin and Gray,
"Fast algorithms for convolutional neural networks", 2016; Toom and Cook's construction of the matrices). The points
are 0, infinity and pairs ±p, so that half of each transform is shared between the two points of a pair. Which pairs
decides the rounding error: ±√½ and ±√2 keep F(4×4) within 3e-6 of the largest output, the customary ±1 and ±2 within
2e-5.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.ir import Function, Value, constant
from engine.tensor import Array

# Pairs ±p by output tile. The largest error over the largest output, 256 input channels of unit variance, float32:
# 7e-7, 3e-6, 2e-5; a direct convolution has 4e-7.
POINTS: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (0.5**0.5, 2.0**0.5), 6: (1.0, 2.0, 0.5)}


def filter_matrix(output_tile: int) -> Array:
    """G, (m + 2, 3) float64: what evaluates a filter of 3 taps; the rows in the order of the transformed values."""
    finite = [0.0, *(sign * p for p in POINTS[output_tile] for sign in (1.0, -1.0))]
    rows = []
    for k, p in enumerate(finite):
        scale = np.prod([p - other for j, other in enumerate(finite) if j != k])
        rows.append([1.0 / scale, p / scale, p * p / scale])
    return np.array([*rows, [0.0, 0.0, 1.0]])


def transform_filters(weight: Array, output_tile: int) -> Array:
    """G g Gᵀ of every filter: (O, I, 3, 3) to ((m + 2)², I, O) in float64."""
    matrix = filter_matrix(output_tile)
    both = np.kron(matrix, matrix)
    out_channels, in_channels = weight.shape[:2]
    taps = weight.astype(np.float64).reshape(out_channels, in_channels, 9).transpose(2, 1, 0).reshape(9, -1)
    return (both @ taps).reshape(len(both), in_channels, out_channels)


def input_transform(f: Function, pixels: Sequence[Value], output_tile: int) -> list[Value]:
    """Bᵀ d of m + 2 neighbouring values. Row p of Bᵀ is the product of (x - q) over all other points q."""
    squares = [p * p for p in POINTS[output_tile]]
    whole = _product_of(squares)
    result = [_combine(f, whole, pixels[0::2])]
    for k, p in enumerate(POINTS[output_tile]):
        rest = _product_of(squares[:k] + squares[k + 1 :])
        even, odd = _combine(f, rest, pixels[2::2]), _combine(f, rest, pixels[1:-2:2])
        result += [_combine(f, [p, 1.0], [odd, even]), _combine(f, [-p, 1.0], [odd, even])]
    return [*result, _combine(f, whole, pixels[1::2])]


def output_transform(f: Function, values: Sequence[Value], output_tile: int) -> list[Value]:
    """Aᵀ v of m + 2 values: output i sums the values weighted by their points to the power of i."""
    points = POINTS[output_tile]
    pairs = [(values[1 + 2 * k], values[2 + 2 * k]) for k in range(len(points))]
    sums, differences = [f.fadd(*pair) for pair in pairs], [f.fsub(*pair) for pair in pairs]
    result = []
    for i in range(output_tile):
        powers, terms = [p**i for p in points], list(differences if i % 2 else sums)
        if i == 0:
            powers, terms = [1.0, *powers], [values[0], *terms]
        if i == output_tile - 1:
            powers, terms = [1.0, *powers], [values[-1], *terms]
        result.append(_combine(f, powers, terms))
    return result


def _product_of(squares: Sequence[float]) -> list[float]:
    """Coefficients of the product of (y - s), lowest power first, rid of the noise of squared roots."""
    coefficients = [1.0]
    for s in squares:
        shifted, scaled = [0.0, *coefficients], [*(s * each for each in coefficients), 0.0]
        coefficients = [round(a - b, 12) for a, b in zip(shifted, scaled, strict=True)]
    return coefficients


def _combine(f: Function, coefficients: Sequence[float], values: Sequence[Value]) -> Value:
    """The sum of coefficient times value, in additions where a coefficient is ±1 and fused products elsewhere."""
    order = sorted(zip(coefficients, values, strict=True), key=lambda term: (term[0] != 1.0, abs(term[0]) != 1.0))
    first, value = order[0]
    total = value if first == 1.0 else f.fmul(value, constant(first, value.type))
    for coefficient, value in order[1:]:
        if abs(coefficient) == 1.0:
            total = f.fadd(total, value) if coefficient > 0 else f.fsub(total, value)
        else:
            total = f.fma(value, constant(coefficient, value.type), total)
    return total
