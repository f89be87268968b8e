"""A PNNX file pair as plain data: nothing added, left out or interpreted.

Operators are in file order. Type names are today's (``pnnx.Input``), whichever dialect was read. The semantics of
operators, and whether the graph can run, are decided elsewhere.

Equality is that of the format: two graphs are equal when the same file pair could represent both. NaN equals NaN,
``1`` differs from ``1.0`` and ``True``, and attributes are compared byte by byte. The line an operator was read from,
and a name it shared with others there, are ignored.

Operator names are unique, though optimisation level 0 repeats the name of a module that is used twice: the first
operator keeps it, later ones are called ``name_1``, ``name_2``, ..., skipping names that the file has. The names in
the file are kept, so that they are written as they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from engine.tensor import CODES, Array, DType, Shape, TensorSpec

Scalar: TypeAlias = None | bool | int | float | complex | str
Parameter: TypeAlias = Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Attribute:
    """A tensor stored with an operator.

    Args:
        shape: its dimensions; ``()`` is a single element without dimensions, a dimension may be zero.
        dtype: numpy dtype of the values.
        data: the values, C-contiguous, read-only. As read they are a view of the archive: not aligned. complex32 has no
            numpy dtype and is a widened copy.
        code: the PNNX dtype code in the file. May be left out except for ``c32``, whose dtype is c64's too.
    """

    shape: tuple[int, ...]
    dtype: DType
    data: Array
    code: str = ""

    def __post_init__(self) -> None:
        if not self.code:
            object.__setattr__(self, "code", CODES.get(self.dtype, ""))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Attribute):
            return NotImplemented
        mine, theirs = ((a.shape, a.dtype, a.code, a.data.shape, a.data.dtype) for a in (self, other))
        return mine == theirs and np.array_equal(as_bytes(self.data), as_bytes(other.data))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class Operator:
    """A line of the text file.

    Args:
        type: ``nn.Conv2d``, ``pnnx.Expression``, ``aten::sort``, ...
        name: unique in the graph. Where the file repeats a name, the later operators are called ``name_1``, ``name_2``,
            ...
        inputs: operands consumed, in order; an operand may appear more than once.
        outputs: operands made, in order.
        params: static arguments by name. ``expr`` is always text.
        attributes: stored tensors by name.
        labels: for each input the Python argument it stands for, None where the file names none.
        line: where the operator was read, counted from 1; 0 when it was made in memory.
        written: the name in the file, if another operator has it too; else empty.
        subgraphs: subgraphs that it runs itself, by name; the format cannot express them.
    """

    type: str
    name: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    params: dict[str, Parameter] = field(default_factory=dict)
    attributes: dict[str, Attribute] = field(default_factory=dict)
    labels: tuple[str | None, ...] = ()
    line: int = 0
    written: str = ""
    subgraphs: dict[str, Graph] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.labels:
            object.__setattr__(self, "labels", (None,) * len(self.inputs))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operator):
            return NotImplemented
        mine, theirs = ((o.type, o.name, o.inputs, o.outputs, o.labels) for o in (self, other))
        is_equal = mine == theirs and self.attributes == other.attributes and self.subgraphs == other.subgraphs
        return is_equal and same_params(self.params, other.params)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Graph:
    """The content of a file pair.

    Args:
        operators: in file order; every operand is made before it is used.
        annotations: shape and dtype of operands in the file, None for a dynamic dimension. Operands that are not
            tensors, or have no dimensions, usually have none.
        untyped: shapes of the operands whose announced dtype is ``null``, unknown to the converter.
        complex32: operands announced as c32, whose annotation says complex64 for want of a narrower numpy dtype.
        size_names: names of the dynamic dimensions of inputs and outputs, None for one without; ignored by equality,
            as a pair cannot express them.
        labels: names of classes in the file; a pair has none.
    """

    operators: list[Operator]
    annotations: dict[str, TensorSpec] = field(default_factory=dict)
    untyped: dict[str, Shape] = field(default_factory=dict)
    complex32: set[str] = field(default_factory=set)
    size_names: dict[str, tuple[str | None, ...]] = field(default_factory=dict, compare=False)
    labels: tuple[str, ...] = field(default=(), compare=False)


def as_bytes(data: Array) -> Array:
    """Return the memory of an array as a flat uint8 array; a copy only when it is not contiguous, or holds texts."""
    if data.dtype.hasobject:
        return np.frombuffer(repr(data.tolist()).encode("utf-8", "surrogatepass"), np.uint8)
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8)


def same_params(mine: dict[str, Parameter], theirs: dict[str, Parameter]) -> bool:
    """Return whether two sets of static arguments are equal in kind and value."""
    return mine.keys() == theirs.keys() and all(same(value, theirs[key]) for key, value in mine.items())


def same(mine: Parameter, theirs: Parameter) -> bool:
    """Return whether two static arguments are equal in kind and value; NaN equals NaN, -0.0 differs from 0.0."""
    if type(mine) is not type(theirs):
        return False
    if isinstance(mine, tuple) and isinstance(theirs, tuple):
        return len(mine) == len(theirs) and all(map(same, mine, theirs))
    if isinstance(mine, (float, complex)):
        return repr(mine) == repr(theirs)
    return mine == theirs


def unique_names(written: Sequence[str]) -> list[str]:
    """Return a unique name for every operator, from the names in the file."""
    taken, numbers, names = set(written), dict.fromkeys(written, -1), []
    for name in written:
        unique = name
        numbers[name] += 1
        while numbers[name] and (unique := f"{name}_{numbers[name]}") in taken:
            numbers[name] += 1
        taken.add(unique)
        names.append(unique)
    return names


def named_apart(operators: Sequence[Operator]) -> list[Operator]:
    """Return the operators of a file, each under a unique name."""
    pairs = zip(operators, unique_names([operator.name for operator in operators]), strict=True)
    return [op if op.name == name else replace(op, name=name, written=op.name) for op, name in pairs]


def written_names(operators: Sequence[Operator]) -> list[str]:
    """Return the names of all operators in a file from which reading restores their names.

    They are the names that were read, unless the first operator of a repeated name is gone.
    """
    names = [operator.name for operator in operators]
    written = [operator.written or operator.name for operator in operators]
    return written if unique_names(written) == names else names
