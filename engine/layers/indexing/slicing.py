"""Slices: of one axis or several at once, read or written.

Bounds are lists, one item an axis of ``dims``; the single-axis spelling (``dim=1 start=0 ...``) is a list of one.
An item is None if it is unknown before a run. Negative bounds count from the end, and bounds are clipped to the axis,
so the converter's 2147483647 is "to the end". ``selects`` is a single index instead, unless it is 2147483647.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from engine.errors import ParameterError, ShapeError
from engine.ir.sizes import slice_length
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.operands.axes import checked_axes, checked_axis, may_match
from engine.layers.operands.fitting import check_shape
from engine.layers.operands.views import sliding
from engine.layers.shape.shape import Rearrangement
from engine.promotion import broadcast_shapes, cast
from engine.tensor import Array, Dim, Shape, TensorSpec, format_shape

NOT_SELECTED: Final = 2147483647
FIRST_AXES: Final = (-1, -1)
_ONE_AXIS: Final = {"dim": "dims", "start": "starts", "end": "ends", "step": "steps", "select": "selects"}

Bounds: TypeAlias = tuple[Dim, ...]


class _Window(Rearrangement):
    """Base of layers on a part of a tensor.

    ``dims`` are axes of the input, before any is removed by a select; (-1, -1) are the first ones, one for each start.
    """

    dims: tuple[int, ...] = (0,)
    starts: Bounds = ()
    ends: Bounds = ()
    steps: Bounds = ()
    selects: Bounds = ()
    backwards: bool = False

    def __post_init__(self) -> None:
        if self.dims == FIRST_AXES:
            object.__setattr__(self, "dims", tuple(range(len(self.starts))))
        for name, bounds in (
            ("starts", self.starts),
            ("ends", self.ends),
            ("steps", self.steps),
            ("selects", self.selects),
        ):
            if len(bounds) not in (0, len(self.dims)):
                raise ParameterError(f"{name} and dims differ in length", found=len(bounds), expected=len(self.dims))

    def _window_shape(self, shape: Shape) -> Shape:
        if not shape and self.dims:
            raise ShapeError("a 0-dim tensor cannot be sliced", found="[]", expected="at least one dimension")
        axes = checked_axes(self.dims, len(shape))
        lengths = list(shape)
        selected = set()
        for item, axis in enumerate(axes):
            if self._selects(item):
                _checked_index(self.selects[item], shape[axis])
                selected.add(axis)
            else:
                lengths[axis] = self._length(item, shape[axis])
        return tuple(dim for axis, dim in enumerate(lengths) if axis not in selected)

    def place(self, shape: Shape) -> tuple[slice | int, ...]:
        """Return the index of the part in an array of this shape."""
        self._window_shape(shape)
        index: list[slice | int] = [slice(None)] * len(shape)
        for item, axis in enumerate(checked_axes(self.dims, len(shape))):
            select = self.selects[item] if self._selects(item) else None
            index[axis] = self._slice(item, shape[axis]) if select is None else select
        return tuple(index)

    def _selects(self, item: int) -> bool:
        return bool(self.selects) and self.selects[item] != NOT_SELECTED

    def _slice(self, item: int, length: Dim) -> slice:
        step = self.steps[item] if self.steps else 1
        if step is not None and (step == 0 or (step < 0 and not self.backwards)):
            raise ParameterError("step must be positive", found=step)
        start = self.starts[item] if self.starts else None
        if step is not None and step < 0 and start is not None and length is not None and start < -length:
            start = 0  # unlike in numpy, a start before the first element is clipped to it
        return slice(start, self.ends[item] if self.ends else None, step)

    def _length(self, item: int, length: Dim) -> Dim:
        piece = self._slice(item, length)
        is_dynamic = any(bounds and bounds[item] is None for bounds in (self.starts, self.ends, self.steps))
        return None if length is None or is_dynamic else slice_length(piece, length)


def _checked_index(index: Dim, length: Dim) -> None:
    if index is not None and length is not None and not -length <= index < length:
        raise ShapeError("index is out of range", found=index, expected=f"{-length} to {length - 1}")


@register("Tensor.slice", renamed=_ONE_AXIS)
class Slice(_Window):
    """input[starts[0]:ends[0]:steps[0], ...] on the given axes, with the others whole.

    Parameters:
        backwards: accept negative steps (ONNX).
    """

    def infer(self, input: TensorSpec) -> TensorSpec:
        return TensorSpec(self._window_shape(input.shape), input.dtype)

    def forward(self, input: Array) -> Array:
        return input[(*self.place(input.shape), ...)]


@register("Tensor.select", positional=("input", "dim", "index"))
class Select(Rearrangement):
    """One slice of an axis, without that axis.

    pnnx also writes ONNX's Gather like this: several indices select slices in their order, and a single one keeps its
    axis if the annotated result has as many axes as the input.
    """

    canonical_layers = (Slice,)

    dim: int
    index: Bounds
    annotations: Annotations = NO_ANNOTATIONS

    def canonicalise(self) -> Layer:
        if len(self.index) != 1 or self.keeps_axis:
            return self
        return self._slice

    def infer(self, input: TensorSpec) -> TensorSpec:
        if len(self.index) == 1 and not self.keeps_axis:
            return self._slice.infer(input)
        axis = checked_axis(self.dim, input.rank)
        for index in self.index:
            _checked_index(index, input.shape[axis] if input.rank else 1)
        return TensorSpec((*input.shape[:axis], len(self.index), *input.shape[axis + 1 :]), input.dtype)

    def forward(self, input: Array) -> Array:
        if len(self.index) == 1 and not self.keeps_axis:
            return self._slice.forward(input)
        return input.take([index or 0 for index in self.index], checked_axis(self.dim, input.ndim))

    @property
    def _slice(self) -> Slice:
        return Slice(dims=(self.dim,), selects=self.index)

    @property
    def keeps_axis(self) -> bool:
        """Return whether a single index keeps its axis."""
        noted = [each[0] if each else None for each in (self.annotations.inputs, self.annotations.outputs)]
        given, made = noted
        return given is not None and made is not None and given.rank == made.rank > 0


@register("Tensor.slice_copy", renamed={"self": "input", **_ONE_AXIS})
class SliceCopy(_Window):
    """A copy of input in which src, broadcast and converted, stands in place of a slice."""

    def infer(self, input: TensorSpec, src: TensorSpec) -> TensorSpec:
        self._check_fits(src.shape, self._window_shape(input.shape))
        return input

    def forward(self, input: Array, src: Array) -> Array:
        index = self.place(input.shape)
        result = input.copy()
        result[index] = cast(src, input.dtype)
        return result

    def _check_fits(self, source: Shape, window: Shape) -> None:
        if not may_match(broadcast_shapes(source, window), window):
            raise ShapeError("source does not fit the slice", found=format_shape(source), expected=format_shape(window))


@register("torch.slice_scatter", renamed={"self": "input", **_ONE_AXIS})
class SliceScatter(SliceCopy):
    """A copy of input with src, of the size of the slice, in place of a slice."""

    def _check_fits(self, source: Shape, window: Shape) -> None:
        check_shape(source, window)


@register("torch.narrow")
class Narrow(Rearrangement):
    """length slices of one axis, from start on; unlike in a slice all must exist."""

    dim: int
    start: Bounds
    length: Bounds

    def infer(self, input: TensorSpec) -> TensorSpec:
        axis, start, length = self._window(input.shape)
        return TensorSpec((*input.shape[:axis], length, *input.shape[axis + 1 :]), input.dtype)

    def forward(self, input: Array) -> Array:
        axis, start, length = self._window(input.shape)
        end = None if start is None or length is None else start + length
        return input[(slice(None),) * axis + (slice(start, end),)]

    def _window(self, shape: Shape) -> tuple[int, Dim, Dim]:
        axis = checked_axis(self.dim, len(shape))
        if not shape or len(self.start) != 1 or len(self.length) != 1:
            raise ShapeError("narrow takes one start and one length of one axis", found=format_shape(shape))
        start, length, n = self.start[0], self.length[0], shape[axis]
        if start is None or length is None or n is None:
            return axis, start, length
        first = start + n if start < 0 else start
        if first < 0 or length < 0 or first + length > n:
            raise ShapeError(
                "the slices are out of range", found=f"start {start} and length {length}", expected=f"within {n}"
            )
        return axis, first, length


@register("aten::unfold")
class Windows(Rearrangement):
    """All windows of an axis, step apart: out[..., i, ..., j] = input[..., i * step + j, ...], j the last axis."""

    dim: int
    size: int
    step: int

    def __post_init__(self) -> None:
        if self.size < 0 or self.step < 1:
            raise ParameterError("size and step must be positive", found=f"{self.size} and {self.step}")

    def infer(self, input: TensorSpec) -> TensorSpec:
        axis = self._axis(input.shape)
        length = input.shape[axis]
        count = None if length is None else (length - self.size) // self.step + 1
        return TensorSpec((*input.shape[:axis], count, *input.shape[axis + 1 :], self.size), input.dtype)

    def forward(self, input: Array) -> Array:
        axis = self._axis(input.shape)
        windows = sliding(input, (self.size,), (axis,))
        return windows[(slice(None),) * axis + (slice(None, None, self.step),)]

    def _axis(self, shape: Shape) -> int:
        if not shape:
            raise ShapeError("a 0-dim tensor has no axis for windows")
        axis = checked_axis(self.dim, len(shape))
        length = shape[axis]
        if length is not None and length < self.size:
            raise ShapeError("window is longer than the axis", found=self.size, expected=f"at most {length}")
        return axis
