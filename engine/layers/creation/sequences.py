"""Tensors whose values depend on their position: ranges, grids, and identities."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from engine.errors import EngineError, ParameterError, ShapeError
from engine.expression import evaluate, parse
from engine.ir.dims import largest
from engine.ir.ratios import FLOAT64_BITS, InexactError, parts, subtract, truncate
from engine.ir.sizes import has_sizes, size_array, specialise_sizes, step_count
from engine.layers.creation.creation import FLOAT32, announced_dtype
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.overload import PLACEMENT, overload
from engine.layers.definition.registry import register
from engine.layers.operands.precision import INT64
from engine.limits import check_size
from engine.promotion import Category, cast, dtype_category, result_type
from engine.tensor import Array, DType, TensorSpec


def number(value: Any) -> Any:
    """Return a number given as such or as a tensor of one element.

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
    """Return a number that the converter folded without computing it: ``torch.int,9`` for ``torch.int(9)``."""
    try:
        return evaluate(parse(text), ())
    except EngineError:
        return text


def known_number(value: Any) -> Any:
    """Return the one element of a tensor if it is known before a run, else the value itself."""
    if isinstance(value, str):
        return _computed(value)
    elements = value.value if isinstance(value, TensorSpec) else None
    return value if elements is None or elements.size != 1 else elements.item()


@register("torch.arange", ignored=PLACEMENT, positional=("end", "start", "step", "dtype"))
class ARange(Layer):
    """start, start + step, ... up to but without end; int64 if all three are integers, else float32.

    Parameters:
        may_be_empty: if the step does not lead from start to end there are no elements (ONNX); else this is refused.
    """

    takes_unknown = True

    dtype: DType | None = None
    may_be_empty: bool = False
    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, end: Any, start: Any = 0, step: Any = 1) -> TensorSpec:
        bounds = known_number(start), known_number(end), known_number(step)
        is_dynamic = not all(isinstance(each, (bool, int, float)) for each in bounds)
        dtype = self.result_dtype(bounds)
        return TensorSpec((None if is_dynamic else self._count(*bounds, dtype),), dtype)

    def forward(self, end: Any, start: Any = 0, step: Any = 1) -> Array:
        dtype = self.result_dtype((start, end, step))
        first, last, stride = number(start), number(end), number(step)
        if any(isinstance(each, complex) for each in (first, last, stride)):
            raise ShapeError("complex numbers have no order", found=f"arange({first}, {last}, {stride})")
        count = self._count(first, last, stride, dtype)
        check_size((count,), dtype)
        if dtype.kind in "iu":
            first, stride = int(first), int(stride)
        return cast(np.asarray(first + np.arange(count) * stride), dtype)

    def _count(self, start: float, end: float, step: float, dtype: DType) -> int:
        if self.may_be_empty and has_sizes((start, end, step)):
            try:
                return largest(step_count(start, end, step), 0)
            except InexactError:
                start, end, step = specialise_sizes((start, end, step))
        if self.may_be_empty and (end - start) * step < 0:
            return 0
        return _count(start, end, step, dtype)

    def result_dtype(self, bounds: tuple[Any, ...]) -> DType:
        """Return the dtype of the result for these bounds or their specs."""
        asked = self.dtype or announced_dtype(self.annotations)
        if asked is not None:
            return asked
        return FLOAT32 if dtype_category(result_type(*bounds)) is Category.FLOATING else INT64


def _cut(number: Any) -> Any:
    return truncate(number) if has_sizes(number) else int(number)


def _count(start: float, end: float, step: float, dtype: DType) -> int:
    if has_sizes((start, end, step)):
        try:
            first, last, stride = (_cut(each) if dtype == INT64 else each for each in (start, end, step))
            count, distance = step_count(first, last, stride), parts(subtract(last, first, FLOAT64_BITS))[0]
        except InexactError:
            first, last, stride = specialise_sizes((start, end, step))
            return _count(first, last, stride, dtype)
        if distance * parts(stride)[0] < 0:
            raise ShapeError("step does not lead from start to end", found=f"arange({start}, {end}, {step})")
        return count
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
    """The lengths of the dimensions from start up to end, an int64 vector."""

    does_arithmetic = False

    start: int = 0
    end: int | None = None

    def infer(self, input: TensorSpec) -> TensorSpec:
        lengths = input.shape[self.start : self.end]
        return TensorSpec((len(lengths),), INT64, None if None in lengths else size_array(lengths))

    def forward(self, input: Array) -> Array:
        return np.array(input.shape[self.start : self.end], INT64)


class LinSpace(Layer):
    """steps numbers evenly from start to end, both included; with a base, its powers by those."""

    steps: int
    base: float | None = None
    dtype: DType | None = None

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ParameterError("steps must not be negative", found=self.steps)

    def infer(self, start: Any, end: Any) -> TensorSpec:
        return TensorSpec((self.steps,), self.dtype or FLOAT32)

    def forward(self, start: Any, end: Any) -> Array:
        points = np.linspace(number(start), number(end), self.steps)
        with np.errstate(all="ignore"):
            return cast(points if self.base is None else np.asarray(self.base**points), self.dtype or FLOAT32)


overload("aten::linspace", (LinSpace, "start end steps dtype layout device pin_memory"))
overload("aten::logspace", (LinSpace, "start end steps base dtype layout device pin_memory"))
