"""Tensors of an ONNX graph while it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from engine.layers.definition.composite import UnknownSizeError
from engine.promotion import Category, dtype_category
from engine.tensor import UNKNOWN, Array, DType, Shape, TensorSpec

Operand: TypeAlias = Any
"""A Value, or a Python value: a number, a text, None, or a list of operands."""


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """Tensor of the ONNX graph.

    Args:
        name: of the tensor in the file.
        dtype: of its elements.
        sizes: its shape, None for dynamic dimensions; None if the rank is unknown.
        constant: its elements, if it is stored in the file.
        is_number: whether it stands for a Python number, which counts less in type promotion; its shape is ().
    """

    name: str
    dtype: DType
    sizes: Shape | None = None
    constant: Array | None = None
    is_number: bool = False

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

    @property
    def spec(self) -> object:
        """The description that inference may use."""
        if self.is_number or self.sizes is None:
            return UNKNOWN
        return TensorSpec(self.sizes, self.dtype, self.constant)


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
