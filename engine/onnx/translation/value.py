"""Description of a value while a model is translated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from engine.tensor import UNKNOWN, Array, DType, TensorSpec


@dataclass(slots=True, eq=False)
class Value:
    """Value of the model: an operand of the graph, or a constant that becomes one when an operator takes it.

    Args:
        name: of the operand; empty while a constant has none.
        spec: a TensorSpec, a container of them, or UNKNOWN.
        constant: the elements, if they are the same in every run.
        sizes: elements of a scalar or vector of integers that sizes are computed with, as far as known.
    """

    name: str = ""
    spec: object = UNKNOWN
    constant: Array | None = None
    sizes: tuple[Size, ...] | None = None

    @property
    def tensor(self) -> TensorSpec | None:
        """Shape and dtype, None if unknown."""
        return self.spec if isinstance(self.spec, TensorSpec) else None

    @property
    def rank(self) -> int | None:
        """Number of dimensions, None if unknown."""
        return self.spec.rank if isinstance(self.spec, TensorSpec) else None

    @property
    def dtype(self) -> DType | None:
        """The dtype, None if unknown."""
        return self.spec.dtype if isinstance(self.spec, TensorSpec) else None

    def shape_as(self) -> tuple[Size, ...] | None:
        """Return its shape as sizes for computations."""
        if not isinstance(self.spec, TensorSpec):
            return None
        return tuple(Axis(self, k) if size is None else size for k, size in enumerate(self.spec.shape))


@dataclass(frozen=True, slots=True)
class Axis:
    """Size of an axis that is unknown before a run."""

    value: Value
    axis: int


@dataclass(frozen=True, slots=True)
class Sum:
    """Arithmetic on sizes, as an expression spells it."""

    function: str
    left: Size
    right: Size


Size: TypeAlias = int | Axis | Sum


def constant(array: Array) -> Value:
    """Return a constant as a value, with its sizes if it is a short list of integers."""
    spec = TensorSpec(array.shape, array.dtype, array if array.size <= 64 else None)
    is_sizes = array.dtype.kind == "i" and array.ndim < 2 and array.size <= 64
    sizes = tuple(map(int, array.reshape(-1).tolist())) if is_sizes else None
    return Value(spec=spec, constant=array, sizes=sizes)
