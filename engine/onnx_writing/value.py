"""Tensors of an ONNX graph while it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from engine.layers.definition.composite import UnknownSizeError
from engine.promotion import Category, broadcast_shapes, dtype_category
from engine.tensor import UNKNOWN, Array, DType, Shape, TensorSpec

if TYPE_CHECKING:
    from engine.onnx_writing.writer import Writer

Operand: TypeAlias = Any
"""A Value, or a Python value: a number, a text, None, or a list of operands."""


def _operator(type: str) -> tuple[Callable[[Value, Any], Value], Callable[[Value, Any], Value]]:
    """Return a method that writes a node of two operands, and the method for a number on the left."""
    return lambda a, b: a.to.op(type, a, b), lambda a, b: a.to.op(type, b, a)


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Tensor of the ONNX graph. Arithmetic, comparisons and logic write nodes; numbers get its dtype.

    Args:
        to: the writer of the graph.
        name: of the tensor in the file.
        dtype: of its elements.
        sizes: its shape, None for dynamic dimensions; None if the rank is unknown.
        constant: its elements, if it is stored in the file.
        is_number: whether it stands for a Python number, which counts less in type promotion; its shape is ().
    """

    to: Writer = field(repr=False)
    name: str
    dtype: DType
    sizes: Shape | None = None
    constant: Array | None = None
    is_number: bool = False

    __add__, __radd__ = _operator("Add")
    __sub__, __rsub__ = _operator("Sub")
    __mul__, __rmul__ = _operator("Mul")
    __truediv__, __rtruediv__ = _operator("Div")
    __and__, __rand__ = _operator("And")
    __or__, __ror__ = _operator("Or")
    __lt__, __gt__ = _operator("Less")[0], _operator("Greater")[0]
    __le__, __ge__ = _operator("LessOrEqual")[0], _operator("GreaterOrEqual")[0]

    def __invert__(self) -> Value:
        return self.to.op("Not", self)

    @property
    def shape(self) -> Shape:
        """Dimensions, None for dynamic ones.

        Raises:
            UnknownSizeError: the rank is unknown.
        """
        if self.sizes is None:
            raise UnknownSizeError("the number of dimensions of an operand is unknown before a run")
        return self.sizes

    @property
    def rank(self) -> int:
        """Number of dimensions; raises like ``shape``."""
        return len(self.shape)

    def all_sizes(self) -> list[Operand]:
        """Return the size of every axis: a number if it is known, else a tensor of no dimensions."""
        return [self.to.size(self, axis) for axis in range(self.rank)]

    @property
    def spec(self) -> object:
        """The description that inference may use."""
        if self.is_number or self.sizes is None:
            return UNKNOWN
        return TensorSpec(self.sizes, self.dtype, self.constant)


def common_shape(*operands: Operand) -> Shape | None:
    """Return the shape that tensors and numbers broadcast to; None if a rank is unknown. None stands for no operand."""
    shapes = [each.sizes if isinstance(each, Value) else np.shape(each) for each in operands if each is not None]
    return None if None in shapes else broadcast_shapes(*(each for each in shapes if each is not None))


def described(operand: Operand) -> Any:
    """Return what inference may know of an operand."""
    if isinstance(operand, Value):
        return operand.spec
    if isinstance(operand, list | tuple):
        return type(operand)(map(described, operand))
    return operand


def promoted(operand: Operand) -> Any:
    """Return an operand as type promotion sees it: a spec, a Python number, or the category of an unknown one."""
    if isinstance(operand, Value):
        return dtype_category(operand.dtype) if operand.is_number else TensorSpec(operand.shape, operand.dtype)
    if isinstance(operand, list | tuple):
        return [promoted(each) for each in operand]
    return operand


def is_static(operand: Operand) -> bool:
    """Return whether an operand is known before a run, so that a parameter can hold it."""
    if isinstance(operand, Value):
        return operand.constant is not None
    if isinstance(operand, list | tuple):
        return all(map(is_static, operand))
    return not isinstance(operand, Category)


def as_parameter(operand: Operand) -> Any:
    """Return an operand as a parameter of a layer: constants as arrays, lists as tuples."""
    if isinstance(operand, Value) and operand.constant is not None:
        return operand.constant
    if isinstance(operand, list | tuple):
        return tuple(map(as_parameter, operand))
    return operand


def holds_value(parameter: object) -> bool:
    """Return whether a parameter of a layer holds a tensor, so that only a run decides it."""
    if isinstance(parameter, list | tuple):
        return any(map(holds_value, parameter))
    return isinstance(parameter, Value)


def flattened(operand: Operand) -> Sequence[Operand]:
    """Return the leaves of nested lists and dicts, in order."""
    if isinstance(operand, Mapping):
        operand = list(operand.values())
    if isinstance(operand, list | tuple):
        return [leaf for item in operand for leaf in flattened(item)]
    return [operand]
