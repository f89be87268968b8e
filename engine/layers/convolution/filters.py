"""Common parts of convolutions: a bank of filters, in groups, and its checks against the input and the parameters."""

from __future__ import annotations

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.operands.axes import may_equal
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.spatial import NUMERIC, Operand, check_rank, spread, tensor
from engine.promotion import Category, cast, dtype_category, promote_types
from engine.tensor import Array, Dim, DType, TensorSpec, dtype_name, format_shape


class Filters(Layer):
    """Base of layers that hold a bank of filters."""

    spatial_rank: int
    stride: tuple[int, ...] = (1,)
    dilation: tuple[int, ...] = (1,)
    groups: int = 1
    in_channels: int | None = None
    out_channels: int | None = None
    kernel_size: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.groups < 1:
            raise ParameterError("groups must be positive", found=self.groups)
        for name in ("in_channels", "out_channels"):
            if (getattr(self, name) or 0) % self.groups:
                raise ParameterError(
                    f"{name} cannot be split into groups",
                    found=getattr(self, name),
                    expected=f"a multiple of {self.groups}",
                )
        spread(self.stride, self.spatial_rank, "stride")
        spread(self.dilation, self.spatial_rank, "dilation")

    def lead(self, input: Array) -> tuple[int, ...]:
        """Return the input's batch size, if it has one."""
        return input.shape[: -self.spatial_rank - 1]

    def batched(self, input: Array) -> Array:
        """Return the input with a batch axis."""
        return input if input.ndim == self.spatial_rank + 2 else input[None]

    def check_weight(self, weight: Operand, declared: tuple[Dim, Dim]) -> TensorSpec:
        """Return the weight's spec.

        Args:
            declared: its first two sizes according to the parameters.

        Raises:
            ParameterError: when the weight contradicts the parameters.
            ShapeError: when it has the wrong rank or its first axis cannot be split into the groups.
        """
        spec = tensor(weight, "weight", NUMERIC)
        check_rank(spec, self.spatial_rank + 2, name="weight")
        kernel = self.kernel_size or (None,)
        expected = (*declared, *(kernel * self.spatial_rank if len(kernel) == 1 else kernel))
        if len(expected) != spec.rank or not all(map(may_equal, spec.shape, expected)):
            raise ParameterError(
                "weight does not fit the parameters", found=format_shape(spec.shape), expected=format_shape(expected)
            )
        if spec.shape[0] is not None and spec.shape[0] % self.groups:
            raise ShapeError(
                "weight cannot be split into groups",
                found=format_shape(spec.shape),
                expected=f"a multiple of {self.groups}",
            )
        return spec

    def check_fit(
        self, input: TensorSpec, weight: TensorSpec, bias: Operand | None, channels: tuple[Dim, Dim]
    ) -> DType:
        """Return the dtype of the result.

        Args:
            channels: of the input and of the output, according to the weight.

        Raises:
            ShapeError: when channels or dtypes do not fit each other.
        """
        found = input.shape[-self.spatial_rank - 1]
        if not may_equal(found, channels[0]):
            raise ShapeError("input has the wrong number of channels", found=found, expected=channels[0])
        if bias is None:
            return common_dtype(input, weight)
        spec = tensor(bias, "bias", NUMERIC)
        check_shape(spec.shape, channels[1:], "bias does not fit")
        return common_dtype(input, weight, spec)


def common_dtype(*specs: TensorSpec) -> DType:
    """Return the dtype of a sum of products of operands.

    Raises:
        ShapeError: when dtypes differ and are not all floating.
    """
    dtypes = list(dict.fromkeys(spec.dtype for spec in specs))
    if len(dtypes) > 1 and any(dtype_category(dtype) is not Category.FLOATING for dtype in dtypes):
        raise ShapeError("operands have different dtypes", found=" and ".join(map(dtype_name, dtypes)))
    result = dtypes[0]
    for dtype in dtypes[1:]:
        result = promote_types(result, dtype)
    return result


def add_bias(y: Array, bias: Array | None) -> Array:
    """Return ``y`` (N, O, *S) with ``bias`` (O,) added to every element of a channel."""
    return y if bias is None else y + cast(bias, y.dtype).reshape(-1, *(1,) * (y.ndim - 2))
