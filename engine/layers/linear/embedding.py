"""Table lookup."""

from __future__ import annotations

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.precision import working_dtype
from engine.promotion import Category, cast, dtype_category
from engine.tensor import UNKNOWN, Array, Dim, DType, Shape, TensorSpec, dtype_name, format_shape

_MODES = ("sum", "mean", "max")


@register("F.embedding", ignored=("scale_grad_by_freq", "sparse"))
class Embedding(Layer):
    """weight[input]: one row of the table for every index.

    Shapes:
        input (*), integers from 0 to V - 1; weight (V, E)  ->  (*, E)
    Raises:
        ShapeError: when the table is not a matrix or an index is out of range.
    """

    does_arithmetic = False

    def infer(self, input: TensorSpec, weight: TensorSpec) -> TensorSpec:
        _check_table(weight.shape)
        _check_integers(input.dtype)
        return TensorSpec((*input.shape, weight.shape[1]), weight.dtype)

    def forward(self, input: Array, weight: Array) -> Array:
        return _rows(weight, input)


@register("aten::embedding_bag", positional=(
    "weight", "indices", "offsets", "scale_grad_by_freq", "mode", "sparse", "per_sample_weights", "include_last_offset",
    "padding_idx"))  # fmt: skip
class EmbeddingBag(Layer):
    """Sum, mean or maximum of the rows in every bag; an empty bag gives zeros.

    Shapes:
        weight (V, E); indices (N,); offsets (B,), where each bag begins; per_sample_weights (N,), factors of a sum
        ->  (B, E), and what PyTorch keeps for the gradient: the bag of every index, the size of every bag (twice)
    Parameters:
        mode: 0 sum, 1 mean, 2 max.
        include_last_offset: the last offset is the end of the last bag, not the beginning of another.
        padding_idx: rows of this index do not count; negative from the end.
        scale_grad_by_freq, sparse: of no consequence at inference.
    Raises:
        ShapeError: when shapes do not fit, an index lies outside of the table, or offsets do not ascend from 0.
    """

    scale_grad_by_freq: bool = False
    mode: int = 0
    sparse: bool = False
    include_last_offset: bool = False
    padding_idx: int | None = None

    def __post_init__(self) -> None:
        if self.mode not in range(len(_MODES)):
            raise ParameterError("unknown mode", found=self.mode, expected="0 (sum), 1 (mean) or 2 (max)")

    def infer(
        self,
        weight: TensorSpec,
        indices: TensorSpec,
        offsets: TensorSpec,
        per_sample_weights: TensorSpec | None = None,
    ) -> tuple[object, ...]:
        _check_table(weight.shape)
        _check_integers(indices.dtype)
        _check_integers(offsets.dtype)
        if indices.rank != 1 or offsets.rank != 1:
            found = f"{format_shape(indices.shape)} and {format_shape(offsets.shape)}"
            raise ShapeError("indices and offsets must be vectors", found=found)
        if per_sample_weights is not None:
            check_shape(per_sample_weights.shape, indices.shape, "per_sample_weights do not fit")
        return TensorSpec((self._bags(offsets.shape[0]), weight.shape[1]), weight.dtype), UNKNOWN, UNKNOWN, UNKNOWN

    def forward(
        self, weight: Array, indices: Array, offsets: Array, per_sample_weights: Array | None = None
    ) -> tuple[Array, ...]:
        bags = self._bags(len(offsets)) or 0
        end = int(offsets[-1]) if self.include_last_offset and len(offsets) else len(indices)
        _check_offsets(offsets, len(indices))
        if end and not bags:
            raise ShapeError("there is no bag for the indices", found=f"{end} indices", expected="offsets from 0")
        bag = np.searchsorted(offsets[:bags], np.arange(end), side="right") - 1
        rows = cast(_rows(weight, indices[:end]), working_dtype(weight.dtype))
        if per_sample_weights is not None:
            rows = rows * cast(per_sample_weights, rows.dtype)[:end, None]
        rows_bag = bag
        if self.padding_idx is not None:
            counted = indices[:end] != (self.padding_idx % len(weight) if len(weight) else self.padding_idx)
            rows, rows_bag = rows[counted], bag[counted]
        sizes = np.bincount(rows_bag, minlength=bags)
        return cast(self._pool(rows, rows_bag, sizes), weight.dtype), bag, sizes, sizes

    def _pool(self, rows: Array, bag: Array, sizes: Array) -> Array:
        combine = np.maximum if self.mode == 2 else np.add
        result: Array = np.zeros((len(sizes), rows.shape[1]), rows.dtype)
        if len(rows) and sizes.min() == sizes.max():  # the rows of a bag stand together
            result = combine.reduce(rows.reshape(len(sizes), len(rows) // len(sizes), rows.shape[1]), axis=1)
        elif len(rows):
            starts = np.flatnonzero(np.diff(bag, prepend=-1))
            result[bag[starts]] = combine.reduceat(rows, starts, axis=0)
        if self.mode == 1:
            result /= np.maximum(sizes, 1).astype(rows.dtype)[:, None]
        return result

    def _bags(self, offsets: Dim) -> Dim:
        return offsets if offsets is None or not self.include_last_offset else max(offsets - 1, 0)


def _check_table(weight: Shape) -> None:
    if len(weight) != 2:
        raise ShapeError("weight must be a table", found=format_shape(weight), expected="[rows, width]")


def _check_integers(dtype: DType) -> None:
    if dtype_category(dtype) is not Category.INTEGER:
        raise ShapeError("indices must be integers", found=dtype_name(dtype))


def _check_offsets(offsets: Array, indices: int) -> None:
    if len(offsets) and (offsets[0] != 0 or offsets[-1] > indices or bool((offsets[1:] < offsets[:-1]).any())):
        raise ShapeError("offsets must ascend from 0", found=offsets.tolist()[:8], expected=f"0 to {indices}")


def _rows(weight: Array, indices: Array) -> Array:
    """weight[indices], without numpy's counting from the end."""
    outside = (indices < 0) | (indices >= len(weight))
    if outside.any():
        found = indices[outside].flat[0]
        raise ShapeError("index is outside of the table", found=found, expected=f"0 to {len(weight) - 1}")
    return np.asarray(weight.take(indices, axis=0))
