"""Tensors whose values follow from their place: ranges, grids, and identities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import EngineError, ParameterError, ShapeError
from engine.expression import evaluate, parse
from engine.layers.creation.creation import FLOAT32, PLACEMENT, announced_dtype
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.overload import Overloaded
from engine.layers.definition.registry import register
from engine.layers.operands.precision import INT64
from engine.layers.shape.shape import Rearrangement
from engine.limits import check_scratch, check_size
from engine.promotion import Category, cast, dtype_category, result_type
from engine.tensor import UNKNOWN, Array, Dim, DType, TensorSpec, dtype_name, format_shape


def number(value: Any) -> Any:
    """A number given as such or as a tensor of one element.

    Raises:
        ShapeError: for anything else.
    """
    if isinstance(value, np.ndarray) and value.size == 1:
        return value.item()
    if isinstance(value, str):
        value = _computed(value)
    if not isinstance(value, (bool, int, float)):
        raise ShapeError("not a number", found=repr(value)[:40])
    return value


def _computed(text: str) -> object:
    """A number that the converter folded without computing it: ``torch.int,9`` for ``torch.int(9)``."""
    try:
        return evaluate(parse(text), ())
    except EngineError:
        return text


def _known_number(value: Any) -> Any:
    """The one element of a tensor where it is known before a run, else the value itself."""
    if isinstance(value, str):
        return _computed(value)
    elements = value.value if isinstance(value, TensorSpec) else None
    return value if elements is None or elements.size != 1 else elements.item()


@register("torch.arange", ignored=PLACEMENT, positional=("end", "start", "step", "dtype"))
class ARange(Layer):
    """start, start + step, ... up to but without end; int64 if all three are integers, else float32."""

    takes_unknown = True

    dtype: DType | None = None
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, end: Any, start: Any = 0, step: Any = 1) -> TensorSpec:
        bounds = _known_number(start), _known_number(end), _known_number(step)
        is_open = not all(isinstance(each, (bool, int, float)) for each in bounds)
        dtype = self._result_dtype(bounds)
        return TensorSpec((None if is_open else _count(*bounds, dtype),), dtype)

    def forward(self, end: Any, start: Any = 0, step: Any = 1) -> Array:
        dtype = self._result_dtype((start, end, step))
        first, last, stride = number(start), number(end), number(step)
        if any(isinstance(each, complex) for each in (first, last, stride)):
            raise ShapeError("complex numbers have no order", found=f"arange({first}, {last}, {stride})")
        count = _count(first, last, stride, dtype)
        check_size((count,), dtype)
        if dtype.kind in "iu":
            first, stride = int(first), int(stride)
        return cast(np.asarray(first + np.arange(count) * stride), dtype)

    def _result_dtype(self, bounds: tuple[Any, ...]) -> DType:
        asked = self.dtype or announced_dtype(self.annotations)
        if asked is not None:
            return asked
        return FLOAT32 if dtype_category(result_type(*bounds)) is Category.FLOATING else INT64


def _count(start: float, end: float, step: float, dtype: DType) -> int:
    is_finite = all(map(math.isfinite, (start, end, step)))
    first, last, stride = (int(each) if dtype == INT64 and is_finite else each for each in (start, end, step))
    if not is_finite or stride == 0 or (last - first) / stride < 0:
        raise ShapeError("step does not lead from start to end", found=f"arange({start}, {end}, {step})")
    if isinstance(first, int) and isinstance(last, int) and isinstance(stride, int):
        return -((first - last) // stride)
    steps = (last - first) / stride
    check_size((math.ceil(min(steps, 2.0**64)),), dtype)
    return math.ceil(steps)


@register("aten::_shape_as_tensor")
class ShapeAsTensor(Layer):
    """The lengths of all dimensions, an int64 vector."""

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec((input.rank,), INT64, np.array(input.shape, INT64) if input.is_static else None)

    def forward(self, input: Array) -> Array:
        return np.array(input.shape, INT64)

    def flops(self, output: object, *operands: object) -> int:
        return 0


class LinSpace(Layer):
    """steps numbers evenly from start to end, both included."""

    steps: int
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ParameterError("steps must not be negative", found=self.steps)

    def infer(self, start: Any, end: Any) -> TensorSpec:
        return TensorSpec((self.steps,), self.dtype or FLOAT32)

    def forward(self, start: Any, end: Any) -> Array:
        return cast(np.linspace(number(start), number(end), self.steps), self.dtype or FLOAT32)


class LogSpace(LinSpace):
    """base ** x for steps numbers x evenly from start to end."""

    steps: int
    base: float = 10.0

    def forward(self, start: Any, end: Any) -> Array:
        with np.errstate(all="ignore"):
            powers = self.base ** np.linspace(number(start), number(end), self.steps)
        return cast(np.asarray(powers), self.dtype or FLOAT32)


@register("aten::linspace")
class RawLinSpace(Overloaded):
    """linspace(start, end, steps, dtype, layout, device, pin_memory)"""

    schemas = {7: (LinSpace, "start end steps dtype . . .")}


@register("aten::logspace")
class RawLogSpace(Overloaded):
    """logspace(start, end, steps, base, dtype, layout, device, pin_memory)"""

    schemas = {8: (LogSpace, "start end steps base dtype . . .")}


class Eye(Layer):
    """1 on the main diagonal of a matrix of n rows and m columns, else 0; m is n unless given."""

    n: tuple[Dim, ...]
    m: tuple[Dim, ...] = ()
    dtype: DType | None = None

    def infer(self) -> TensorSpec:
        return TensorSpec((*self.n, *(self.m or self.n)), self.dtype or FLOAT32)

    def forward(self) -> Array:
        rows, columns = (int(each or 0) for each in (*self.n, *(self.m or self.n)))
        if rows < 0 or columns < 0:
            raise ParameterError("size must not be negative", found=f"{rows} and {columns}")
        return np.eye(rows, columns, dtype=self.dtype or FLOAT32)


@register("aten::eye")
class RawEye(Overloaded):
    """eye(n, dtype, ...) or eye(n, m, dtype, ...) with layout, device, pin_memory."""

    schemas = {5: (Eye, "n dtype . . ."), 6: (Eye, "n m dtype . . .")}


class TriangleIndices(Layer):
    """The row and column numbers of a matrix' lower triangle, row by row."""

    row: int
    col: int
    offset: int = 0
    dtype: DType | None = None

    def __post_init__(self) -> None:
        check_scratch((self.row, self.col), np.dtype(np.bool_), 0, "the matrix")

    def infer(self) -> TensorSpec:
        return TensorSpec((2, len(self._rows_and_columns()[0])), self.dtype or INT64)

    def forward(self) -> Array:
        return cast(np.stack(self._rows_and_columns()), self.dtype or INT64)

    def _rows_and_columns(self) -> tuple[Array, ...]:
        return np.nonzero(np.tri(self.row, self.col, self._inside(self.offset), np.bool_))

    def _inside(self, offset: int) -> int:
        """Of an offset beyond the matrix only that it is beyond matters; numpy computes with C integers."""
        return max(min(offset, self.col), -self.row - 1)


class UpperTriangleIndices(TriangleIndices):
    """The row and column numbers of a matrix' upper triangle, row by row."""

    row: int
    col: int

    def _rows_and_columns(self) -> tuple[Array, ...]:
        return np.nonzero(~np.tri(self.row, self.col, self._inside(self.offset - 1), np.bool_))


@register("aten::tril_indices")
class RawLowerIndices(Overloaded):
    """tril_indices(row, col, offset, dtype, layout, device, pin_memory)"""

    schemas = {7: (TriangleIndices, "row col offset dtype . . .")}


@register("aten::triu_indices")
class RawUpperIndices(Overloaded):
    """triu_indices(row, col, offset, dtype, layout, device, pin_memory)"""

    schemas = {7: (UpperTriangleIndices, "row col offset dtype . . .")}


@register("aten::meshgrid")
class MeshGrid(Rearrangement):
    """Vectors as a grid: one tensor a vector, which varies along its own axis; xy exchanges the first two axes."""

    indexing: str | None = "ij"

    def __post_init__(self) -> None:
        if self.indexing not in (None, "ij", "xy"):
            raise ParameterError("unknown indexing", found=self.indexing, expected="ij or xy")

    def infer(self, tensors: Any) -> Any:
        if not all(isinstance(tensor, TensorSpec) for tensor in tensors):
            return UNKNOWN
        shape = tuple(tensor.size for tensor in tensors)
        _check_vectors(tensors)
        swapped = (shape[1], shape[0], *shape[2:]) if self.indexing == "xy" and len(shape) > 1 else shape
        return [TensorSpec(swapped, tensor.dtype) for tensor in tensors]

    def forward(self, tensors: list[Array]) -> list[Array]:
        _check_vectors([TensorSpec(tensor.shape, tensor.dtype) for tensor in tensors])
        vectors = [tensor.reshape(-1) for tensor in tensors]
        return list(np.meshgrid(*vectors, indexing="xy" if self.indexing == "xy" else "ij", copy=False))


def _check_vectors(tensors: list[TensorSpec]) -> None:
    for tensor in tensors:
        if tensor.rank > 1:
            raise ShapeError("a grid is made of vectors", found=format_shape(tensor.shape), expected="[n]")


@register("aten::one_hot", "F.one_hot")
class OneHot(Layer):
    """1 at the place the number names along a new last axis, else 0; as many places as needed if num_classes is -1."""

    num_classes: int = -1

    def __post_init__(self) -> None:
        if self.num_classes < -1:
            raise ParameterError("num_classes must not be negative, or -1", found=self.num_classes)

    def infer(self, input: TensorSpec) -> TensorSpec:
        if input.dtype.kind not in "iu":
            raise ShapeError("only integers name classes", found=dtype_name(input.dtype))
        return TensorSpec((*input.shape, None if self.num_classes < 0 else self.num_classes), INT64)

    def forward(self, input: Array) -> Array:
        self.infer(TensorSpec(input.shape, input.dtype))
        if not input.size and self.num_classes < 0:
            raise ShapeError("nothing tells how many classes there are", found=format_shape(input.shape))
        input = cast(input, INT64)
        largest = int(input.max(initial=-1))
        count = largest + 1 if self.num_classes < 0 else self.num_classes
        if input.size and (input.min() < 0 or largest >= count):
            raise ShapeError("class out of range", found=f"{input.min()} to {largest}", expected=f"0 to {count - 1}")
        check_size((*input.shape, count), INT64)
        return np.asarray(input[..., None] == np.arange(count), INT64)
