"""Spatial transformers: grids of positions, and images sampled at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import widened
from engine.layers.operands.spatial import FLOATING, Operand, check_rank, tensor
from engine.layers.vision.sampling import sample_cubic, sample_linear, sample_nearest
from engine.limits import check_size
from engine.promotion import cast
from engine.tensor import Array, Dim, DType, TensorSpec, dtype_name, format_shape

_MODES: Final = ("bilinear", "nearest", "bicubic")
_ONNX_MODES: Final = {"linear": "bilinear", "cubic": "bicubic"}
_PADDING_MODES: Final = ("zeros", "border", "reflection")


@register("F.grid_sample")
class GridSample(Layer):
    """The input's values at the positions of a grid.

    Positions are x, y[, z] in [-1, 1]: from corner to corner of the image, or with align_corners from the centre of
    the first element to the centre of the last.

    Shapes:
        input (N, C, H, W), grid (N, OH, OW, 2)  ->  (N, C, OH, OW), or with a depth each and 3 coordinates.
    Dtypes:
        floating, both the same.
    Parameters:
        mode: bilinear (also for volumes), nearest (halves to even) or bicubic (images only); linear and cubic are
            ONNX's names of the first and the last.
        padding_mode: values outside: zeros, border (the nearest element) or reflection.
    Raises:
        ShapeError: when input and grid do not fit.
    Source:
        torch.nn.functional.grid_sample.
    """

    mode: str = "bilinear"
    padding_mode: str = "zeros"
    align_corners: bool | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", _ONNX_MODES.get(self.mode, self.mode))
        if self.mode not in _MODES:
            raise ParameterError("unknown mode", found=self.mode, expected=", ".join(_MODES))
        if self.padding_mode not in _PADDING_MODES:
            raise ParameterError("unknown padding_mode", found=self.padding_mode, expected=", ".join(_PADDING_MODES))

    def infer(self, input: Operand, grid: Operand) -> TensorSpec:
        spec, places = tensor(input, "input", FLOATING), tensor(grid, "grid", FLOATING)
        check_rank(spec, *((4,) if self.mode == "bicubic" else (4, 5)))
        check_same_dtype(spec, places, "grid")
        expected: tuple[Dim, ...] = (spec.shape[0], *(None,) * (spec.rank - 2), spec.rank - 2)
        check_shape(places.shape, expected, "grid does not fit")
        if 0 in spec.shape[1:]:
            raise ShapeError("input is empty", found=format_shape(spec.shape))
        return TensorSpec((*spec.shape[:2], *places.shape[1:-1]), spec.dtype)

    def forward(self, input: Array, grid: Array) -> Array:
        x, places = widened(input), widened(grid)
        with np.errstate(all="ignore"):
            # The grid's last coordinate belongs to the image's first axis.
            coordinates = [places[..., -1 - axis] for axis in range(x.ndim - 2)]
            rows = zip(coordinates, x.shape[2:], strict=True)
            return cast(self._sample(x, [self._position(place, size) for place, size in rows]), input.dtype)

    def _sample(self, x: Array, positions: Sequence[Array]) -> Array:
        if self.mode == "bicubic":
            return sample_cubic(x, positions, self._bounded)
        bounded = [self._bounded(place, size) for place, size in zip(positions, x.shape[2:], strict=True)]
        return sample_nearest(x, bounded) if self.mode == "nearest" else sample_linear(x, bounded)

    def _position(self, coordinate: Array, size: int) -> Array:
        """Convert from [-1, 1] to element positions."""
        if self.align_corners:
            return (coordinate + 1) / 2 * (size - 1)
        return ((coordinate + 1) * size - 1) / 2

    def _bounded(self, position: Array, size: int) -> Array:
        if self.padding_mode == "zeros":
            return position
        if self.padding_mode == "reflection":
            position = self._reflected(position, size)
        inside: Array = np.clip(np.nan_to_num(position, nan=0), 0, size - 1)
        return inside

    def _reflected(self, position: Array, size: int) -> Array:
        """Reflect positions at the centres of the first and last elements (align_corners), or at their outer edges."""
        low, span = (0.0, size - 1) if self.align_corners else (-0.5, size)
        if span == 0:
            return np.zeros_like(position)
        distance = np.abs(position - position.dtype.type(low))
        extra = np.fmod(distance, position.dtype.type(span))
        is_back = np.floor(distance / position.dtype.type(span)) % 2 == 1
        folded: Array = np.where(is_back, span - extra, extra) + position.dtype.type(low)
        return folded


@register("F.affine_grid")
class AffineGrid(Layer):
    """The positions that an affine map gives to every element of an image: a grid for F.grid_sample.

    Shapes:
        theta (N, 2, 3), size (N, C, H, W)  ->  (N, H, W, 2); theta (N, 3, 4), size (N, C, D, H, W)  ->  (N, D, H, W, 3)
    Dtypes:
        floating.
    Raises:
        ShapeError: when theta does not fit the size.
    Source:
        torch.nn.functional.affine_grid.
    """

    size: tuple[Dim, ...]
    align_corners: bool | None = None

    def __post_init__(self) -> None:
        if len(self.size) not in (4, 5):
            raise ParameterError(
                "size does not describe images", found=format_shape(self.size), expected="4 or 5 numbers"
            )

    def infer(self, theta: Operand) -> TensorSpec:
        spec = tensor(theta, "theta", FLOATING)
        rank = len(self.size) - 2
        check_shape(spec.shape, (self.size[0], rank, rank + 1), "theta does not fit the size")
        return TensorSpec((self.size[0], *self.size[2:], rank), spec.dtype)

    def forward(self, theta: Array) -> Array:
        spec = self.infer(theta)
        matrix, sizes = widened(theta), [size or 0 for size in self.size[2:]]
        if any(size < 1 for size in sizes):
            raise ShapeError("there are no positions", found=format_shape(self.size), expected="positive sizes")
        check_size(spec.shape, matrix.dtype)
        axes = [self.coordinates(size, matrix.dtype) for size in sizes]
        base = np.stack([*np.meshgrid(*axes, indexing="ij")[::-1], np.ones(sizes, matrix.dtype)], axis=-1)
        grid = base.reshape(-1, len(sizes) + 1) @ matrix.swapaxes(1, 2)
        return cast(grid.reshape(len(theta), *sizes, len(sizes)), theta.dtype)

    def coordinates(self, size: int, dtype: DType) -> Array:
        """Return the coordinates of an axis's elements in [-1, 1]."""
        if size < 2:
            return np.zeros(size, dtype)
        ends = np.linspace(-1, 1, size, dtype=dtype)
        return ends if self.align_corners else ends * dtype.type(size - 1) / dtype.type(size)


def check_same_dtype(spec: TensorSpec, other: TensorSpec, name: str) -> None:
    """Refuse an operand whose dtype is not the input's.

    Raises:
        ShapeError: naming both dtypes.
    """
    if other.dtype != spec.dtype:
        raise ShapeError(
            f"{name} has another dtype than input", found=dtype_name(other.dtype), expected=dtype_name(spec.dtype)
        )
