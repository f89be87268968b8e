"""Feature preparation: normalisation, imputation, one-hot encoding, concatenation."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

from engine.errors import ParameterError, ShapeError
from engine.layers.definition.layer import Layer
from engine.layers.definition.registry import register
from engine.layers.onnx.learning.classes import labels_array
from engine.layers.onnx.learning.trees import as_table, table_shape
from engine.layers.onnx.operands.dtypes import STRING
from engine.limits import check_size
from engine.tensor import Array, Dim, DType, TensorSpec, format_shape

_FLOAT32: Final[DType] = np.dtype(np.float32)


@register("Normalizer")
class Normalizer(Layer):
    """Rows divided by their maximum, L1 norm or L2 norm; rows of zeros stay.

    Shapes:
        input (N, F) or (F)
    """

    norm: Literal["MAX", "L1", "L2"] = "MAX"

    def infer(self, input: TensorSpec) -> TensorSpec:
        table_shape(input.shape)
        return TensorSpec(input.shape, _FLOAT32)

    def forward(self, input: Array) -> Array:
        table = as_table(input).astype(np.float32)
        if not table.size:
            return table.reshape(input.shape)
        with np.errstate(all="ignore"):
            if self.norm == "MAX":
                size = table.max(axis=1, keepdims=True)
            elif self.norm == "L1":
                size = np.abs(table).sum(axis=1, keepdims=True)
            else:
                size = np.sqrt(np.square(table).sum(axis=1, keepdims=True))
            return np.asarray(table / np.where(size == 0, np.float32(1), size)).reshape(input.shape)


@register("Imputer")
class Imputer(Layer):
    """Missing elements replaced by the value of their column, or by the only value.

    Shapes:
        input (N, F) or (F)
    """

    imputed_value_floats: tuple[float, ...] = ()
    imputed_value_int64s: tuple[int, ...] = ()
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def infer(self, input: TensorSpec) -> TensorSpec:
        columns = table_shape(input.shape)[1]
        values = self.imputed_value_floats if input.dtype.kind == "f" else self.imputed_value_int64s
        if not values or columns is not None and len(values) not in (1, columns):
            raise ShapeError("no value for each column", found=len(values), expected=f"1 or {columns}, of its dtype")
        return input

    def forward(self, input: Array) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype))
        is_float = input.dtype.kind == "f"
        values = np.array(self.imputed_value_floats if is_float else self.imputed_value_int64s, input.dtype)
        missing: Any = self.replaced_value_float if is_float else self.replaced_value_int64
        is_missing = np.isnan(input) if missing != missing else input == missing
        return np.where(is_missing, values, input)


@register("OneHotEncoder")
class OneHotEncoder(Layer):
    """One-hot encoding of categories.

    Parameters:
        zeros: encode unknown elements as zeros; else refuse them.

    Shapes:
        input (*S)  ->  (*S, categories)
    """

    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    zeros: bool = True

    def __post_init__(self) -> None:
        if bool(self.cats_int64s) == bool(self.cats_strings):
            raise ParameterError("no categories", found="both kinds or none", expected="cats_int64s or cats_strings")

    @property
    def _categories(self) -> Array:
        return labels_array(self.cats_int64s or self.cats_strings)

    def infer(self, input: TensorSpec) -> TensorSpec:
        if (input.dtype == STRING) != bool(self.cats_strings):
            raise ShapeError("categories of another kind than the input", found=str(input.dtype))
        return TensorSpec((*input.shape, len(self.cats_int64s or self.cats_strings)), _FLOAT32)

    def forward(self, input: Array) -> Array:
        shape = self.infer(TensorSpec(input.shape, input.dtype)).shape
        check_size(shape, _FLOAT32)
        known = {each: place for place, each in enumerate(self._categories.tolist())}
        items = input if input.dtype == STRING else _whole(input)
        places = np.array([known.get(each, -1) for each in items.reshape(-1).tolist()], np.int64)
        if not self.zeros and bool((places < 0).any()):
            raise ShapeError("an element is of no category", found=int((places < 0).sum()), expected="none such")
        found = np.zeros((len(places), len(known)), np.float32)
        row = np.flatnonzero(places >= 0)
        found[row, places[row]] = 1
        return found.reshape([size or 0 for size in shape])


def _whole(input: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return input.astype(np.int64)


@register("FeatureVectorizer")
class FeatureVectorizer(Layer):
    """Tables concatenated by columns, each cut or padded with zeros to its number of columns.

    Shapes:
        inputs (N, F_k)  ->  (N, sum of inputdimensions)
    """

    inputdimensions: tuple[int, ...]

    def infer(self, *inputs: TensorSpec) -> TensorSpec:
        rows: Dim = None
        if len(inputs) != len(self.inputdimensions) or min(self.inputdimensions, default=0) < 0:
            found = f"{len(inputs)} inputs, {len(self.inputdimensions)} numbers of columns"
            raise ShapeError("inputdimensions do not fit the inputs", found=found)
        for each in inputs:
            if not 0 < each.rank < 3 or rows is not None and each.shape[0] not in (None, rows):
                raise ShapeError("no tables of as many rows", found=format_shape(each.shape), expected="[N, F]")
            rows = each.shape[0] if rows is None else rows
        return TensorSpec((rows, sum(self.inputdimensions)), _FLOAT32)

    def forward(self, *inputs: Array) -> Array:
        shape = self.infer(*(TensorSpec(each.shape, each.dtype) for each in inputs)).shape
        check_size(shape, _FLOAT32)
        found, place = np.zeros([size or 0 for size in shape], np.float32), 0
        for each, width in zip(inputs, self.inputdimensions, strict=True):
            table = each.reshape(len(each), -1)[:, :width]
            found[:, place : place + table.shape[1]] = table
            place += width
        return found
