"""Matrix products; half precision is computed in float32.

Operands of several dtypes are converted to their common dtype; PyTorch refuses them, but half-precision weights in a
float32 file cause them.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import may_equal, may_match
from engine.layers.operands.precision import working_dtype
from engine.promotion import broadcast_shapes, cast, promote_types
from engine.tensor import Array, Shape, TensorSpec, format_shape


def matmul(a: Array, b: Array) -> Array:
    """Compute a @ b by numpy's rules."""
    return np.asarray(np.matmul(a, b))


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """Return the shape of a @ b: vectors lose their axis, leading axes broadcast.

    Raises:
        ShapeError: when the inner sizes differ or an operand is 0-dim.
    """
    inner = b[-2:-1] or b
    if not a or not b or not may_equal(a[-1], inner[0]):
        found = f"{format_shape(a)} by {format_shape(b)}"
        raise ShapeError("matrices cannot be multiplied", found=found, expected="[..., M, K] by [..., K, N]")
    return (*broadcast_shapes(a[:-2], b[:-2]), *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def check_ranks(a: Shape, b: Shape, ranks: tuple[int, ...]) -> None:
    """Refuse operands of other ranks than demanded.

    Raises:
        ShapeError: naming both ranks.
    """
    if ranks and (len(a), len(b)) != ranks:
        found = f"{format_shape(a)} and {format_shape(b)}"
        raise ShapeError("operands have the wrong ranks", found=found, expected=f"{ranks[0]} and {ranks[1]} axes")


@register("torch.matmul")
class Matmul(Layer):
    """input @ other.

    Shapes:
        (..., M, K) and (..., K, N)  ->  (..., M, N); a vector is a row or column, which is dropped again
    Parameters:
        ranks: the ranks the type demands, empty for any.
    """

    ranks: tuple[int, ...] = ()

    def infer(self, input: TensorSpec, other: TensorSpec) -> TensorSpec:
        check_ranks(input.shape, other.shape, self.ranks)
        return TensorSpec(matmul_shape(input.shape, other.shape), promote_types(input.dtype, other.dtype))

    def forward(self, input: Array, other: Array) -> Array:
        dtype = promote_types(input.dtype, other.dtype)
        working = working_dtype(dtype)
        with np.errstate(all="ignore"):
            return cast(matmul(cast(input, working), cast(other, working)), dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return multiply_adds(output, operands[0])


@register("aten::_grouped_mm", positional=("input", "other", "ends", "bias", "out_dtype"))
class GroupedMatmul(Layer):
    """input[rows of e] @ other[e] for every expert e, whose rows end at ends[e]; 0 in rows after the last end.

    Shapes:
        input (M, K), other (E, K, N), ends (E,)  ->  (M, N); without ends (E, M, K) and (E, K, N)  ->  (E, M, N)
    Raises:
        ParameterError: there is a bias or another dtype, or ends fall or lie beyond the rows.
    Source:
        torch.nn.functional.grouped_mm.
    """

    bias: None = None
    out_dtype: None = None

    def infer(self, input: TensorSpec, other: TensorSpec, ends: TensorSpec | None = None) -> TensorSpec:
        self._check(input.shape, other.shape, None if ends is None else ends.shape)
        return TensorSpec((*input.shape[:-1], other.shape[-1]), promote_types(input.dtype, other.dtype))

    def forward(self, input: Array, other: Array, ends: Array | None = None) -> Array:
        dtype = promote_types(input.dtype, other.dtype)
        a, b = (cast(each, working_dtype(dtype)) for each in (input, other))
        with np.errstate(all="ignore"):
            if ends is None:
                return cast(matmul(a, b), dtype)
            result = np.zeros((*a.shape[:-1], b.shape[-1]), a.dtype)
            for expert, (first, last) in enumerate(self._rows(ends, len(a))):
                result[first:last] = matmul(a[first:last], b[expert])
        return cast(result, dtype)

    def _rows(self, ends: Array, count: int) -> list[tuple[int, int]]:
        """Return where the rows of every expert begin and end."""
        lasts = [int(each) for each in ends]
        spans = list(pairwise([0, *lasts]))
        if any(not first <= last <= count for first, last in spans):
            raise ParameterError("the ends of groups do not ascend", found=lasts, expected=f"rising to {count}")
        return spans

    def _check(self, input: Shape, other: Shape, ends: Shape | None) -> None:
        check_ranks(input, other, (3 if ends is None else 2, 3))
        if ends is None and not may_equal(input[0], other[0]):
            raise ShapeError(
                "one matrix for each group is needed", found=format_shape(input), expected=f"[{other[0]}, M, K]"
            )
        matmul_shape(input if ends is None else (other[0], *input), other)
        if ends is not None and (len(ends) != 1 or not may_equal(ends[0], other[0])):
            raise ShapeError("one end for each group is needed", found=format_shape(ends), expected=f"[{other[0]}]")

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return multiply_adds(output, operands[0])


def multiply_adds(output: TensorSpec, left: object) -> int:
    """Return the floating-point operations of a product that sums over the left factor's last axis."""
    inner = left.shape[-1] if isinstance(left, TensorSpec) and left.shape else 1
    return 2 * (output.size or 0) * (inner or 0)


@register("torch.baddbmm", presets={"ranks": (3, 3)}, renamed={"batch1": "first", "batch2": "second"})
class AddMatmul(Layer):
    """beta * input + alpha * (first @ second); with beta = 0 the input is ignored, even NaN.

    Shapes:
        first (M, K), second (K, N), input broadcast to  ->  (M, N); baddbmm the same with a batch, addmv with a vector
    """

    ranks: tuple[int, ...] = ()
    beta: int | float = 1
    alpha: int | float = 1

    def infer(self, input: TensorSpec, first: TensorSpec, second: TensorSpec) -> TensorSpec:
        dtype = promote_types(promote_types(input.dtype, first.dtype), second.dtype)
        return TensorSpec(self._shape(input.shape, first.shape, second.shape), dtype)

    def forward(self, input: Array, first: Array, second: Array) -> Array:
        dtype = promote_types(promote_types(input.dtype, first.dtype), second.dtype)
        term, a, b = (cast(each, working_dtype(dtype)) for each in (input, first, second))
        with np.errstate(all="ignore"):
            result = matmul(a, b)
            result = result if self.alpha == 1 else result * self.alpha
            if self.beta != 0:
                result = result + (term if self.beta == 1 else term * self.beta)
        return cast(result, dtype)

    def flops(self, output: TensorSpec, *operands: object) -> int:
        return multiply_adds(output, operands[1])

    def _shape(self, input: Shape, first: Shape, second: Shape) -> Shape:
        check_ranks(first, second, self.ranks)
        shape = matmul_shape(first, second)
        if not may_match(broadcast_shapes(input, shape), shape):
            found = f"{format_shape(input)} and {format_shape(shape)}"
            raise ShapeError("input does not broadcast to the product", found=found)
        return shape
