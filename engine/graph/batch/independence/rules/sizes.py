"""Numbers that are computed from the number of items: shapes that are read, joined and split.

Such a number is a linear function of the number of items, ``a + b * n``, determined by its values for COUNTS. Only
operations that keep it linear for every number of items are followed: sums, multiples, divisions without remainder, and
comparisons with the same result for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.expression import Call, Input, List, Literal, Node, infer, postorder
from engine.graph.batch.independence.use import COUNTS, Operand, Use, has_sizes
from engine.graph.batch.independence.values import SHARED, SIZES, MixesError, Value, nested
from engine.layers.creation import numbers
from engine.layers.creation.container import Expression
from engine.layers.creation.scripted import DeviceOf, DTypeOf, FromData
from engine.layers.creation.sequences import ShapeAsTensor
from engine.layers.definition.layer import Layer
from engine.layers.elementwise import arithmetic, cast, comparison, identity
from engine.layers.elementwise.functions import Binary, Unary
from engine.layers.indexing.masking import Where
from engine.layers.onnx.elementwise.arithmetic import OnnxCast
from engine.layers.onnx.shape.shape import OnnxShape, OnnxSize
from engine.layers.reduction.reduction import Prod
from engine.layers.shape.join import _Join
from engine.layers.shape.shape import Rearrangement
from engine.tensor import TensorSpec, is_known, known_value, spec_of

Known = tuple[Any, ...]
"""A value for each of COUNTS."""

_READERS: Final = (
    numbers.Size, numbers.NumEl, numbers.Rank, numbers.Length, OnnxShape, OnnxSize, ShapeAsTensor, DTypeOf, DeviceOf,
)  # fmt: skip
_MOVERS: Final = (
    Rearrangement, numbers.Item, numbers.Scalar, FromData, cast.To, OnnxCast, identity.Identity,
    identity.RawIdentity,
)  # fmt: skip
_NAMES: Final[dict[type[Layer], str]] = {arithmetic.Add: "add", arithmetic.Sub: "sub", arithmetic.Div: "div"}


def sizes(use: Use) -> Value | None:
    """Return the abstract values of the results of an operator that computes with sizes; None for other operators.

    Raises:
        MixesError: they are no linear function of the number of items.
    """
    if isinstance(use.layer, _READERS) or (isinstance(use.layer, numbers.Item) and use.first.is_items):
        return _read(use)
    if isinstance(use.layer, Expression):
        return _of_expression(use.layer, use.operands)
    if not any(has_sizes(each.value) for each in use.operands) or any(each.is_items for each in use.operands):
        return None
    results = [_known(specs) for specs in use.results]
    if any(result is None for result in results):
        return None
    values = tuple(_compared(result) for result in results if result is not None)
    if _moves(use):
        _check_exact(use, [each.known() for each in use.operands], results)
        return values if len(values) > 1 else values[0]
    name = _name(use.layer)
    arguments = [each.known() for each in use.operands if each.is_given]
    if name is None or results[0] is None or any(each is None for each in arguments):
        return None
    return _computed(name, [each for each in arguments if each is not None], results[0])


def _read(use: Use) -> Value:
    """Follow a shape, or a part of one, which is linear for a tensor with one batch axis."""
    results = [_known(specs) for specs in use.results]
    if any(result is None for result in results):
        raise MixesError("reads a size that is unknown before a run")
    values = tuple(_compared(result) for result in results if result is not None)
    return values if len(values) > 1 else values[0]


def _moves(use: Use) -> bool:
    """Return whether the results hold numbers of the operands as they are."""
    if isinstance(use.layer, Where):
        return use["condition"].is_shared
    if isinstance(use.layer, Prod):
        known = use.first.known()
        return known is not None and int(np.sum(np.any(np.diff(known, axis=0) != 0, axis=0))) <= 1
    if isinstance(use.layer, _Join):
        return True
    rest = (*use.operands[1:], *use.parameters.values())
    return isinstance(use.layer, _MOVERS) and not any(has_sizes(each.value) for each in rest)


def _check_exact(use: Use, given: Sequence[Known | None], results: Sequence[Known | None]) -> None:
    """Check that a cast rounds or wraps no number: only whole ones, into a dtype that holds all of them.

    Raises:
        MixesError: it may.
    """
    if not isinstance(use.layer, (cast.To, OnnxCast, numbers.Scalar, FromData)):
        return
    source = next((each for each in given if each is not None), ())
    before = {np.asarray(each).dtype for each in source if not isinstance(each, (list, tuple))}
    after = {
        np.asarray(each).dtype for result in results for each in result or () if not isinstance(each, (list, tuple))
    }
    for dtype in after - before:
        is_cut = dtype.kind in "iu" and bool(source) and not _is_whole([_linear(source)])
        if is_cut or dtype.kind not in "iuf" or dtype.itemsize < 4:
            raise MixesError("computes with the number of items")


def _name(layer: Layer) -> str | None:
    if isinstance(layer, (Unary, Binary, comparison.Comparison)):
        return layer.function
    return next((name for each, name in _NAMES.items() if isinstance(layer, each)), None)


@dataclass(frozen=True, slots=True)
class _Linear:
    """``start + slope * n``, element by element."""

    start: Any
    slope: Any

    def keeps_sign(self) -> bool:
        """Return whether it is negative, zero or positive for every number of items alike, element by element."""
        first = self.start + self.slope
        return bool(np.all((self.slope == 0) | ((first > 0) & (self.slope > 0)) | ((first < 0) & (self.slope < 0))))

    def keeps_side(self) -> bool:
        """Return whether it never changes from below zero to above it."""
        first = self.start + self.slope
        return bool(np.all((self.slope == 0) | ((first >= 0) & (self.slope > 0)) | ((first <= 0) & (self.slope < 0))))

    def is_never_zero(self) -> bool:
        """Return whether no number of items makes an element zero, or every one makes it."""
        slope = np.where(self.slope == 0, 1, self.slope)
        count = -self.start / slope
        hits = (count >= 1) & (count == np.floor(count))
        return bool(np.all((self.slope == 0) | ~hits))

    def is_multiple_of(self, other: _Linear) -> bool:
        """Return whether it is the same whole multiple of another for every number of items, or one of a constant."""
        if np.any((other.start == 0) & (other.slope == 0)):
            return False
        if np.all(other.slope == 0):
            return bool(np.all(self.start % other.start == 0) and np.all(self.slope % other.start == 0))
        whole = (self.start + self.slope) % (other.start + other.slope) == 0
        return bool(np.all(self.start * other.slope == other.start * self.slope) and np.all(whole))


def _linear(values: Known) -> _Linear:
    first, second, third = (np.asarray(value, np.float64) for value in values)
    slope = (second - first) / (COUNTS[1] - COUNTS[0])
    start = first - slope * COUNTS[0]
    if np.any(start + slope * COUNTS[2] != third):
        raise MixesError("computes with the number of items")
    return _Linear(start, slope)


def _computed(name: str, arguments: Sequence[Known], results: Known) -> Value:
    """Return the abstract value of a function of numbers, at least one of which depends on the number of items."""
    numbers = [_linear(each) for each in arguments]
    if not _RULES.get(name, _never)(numbers):
        raise MixesError("computes with the number of items")
    return _compared(results)


def _never(numbers: Sequence[_Linear]) -> bool:
    return False


def _always(numbers: Sequence[_Linear]) -> bool:
    return True


def _difference(numbers: Sequence[_Linear]) -> _Linear:
    return _Linear(numbers[0].start - numbers[1].start, numbers[0].slope - numbers[1].slope)


def _is_whole(numbers: Sequence[_Linear]) -> bool:
    return all(bool(np.all(part == np.floor(part))) for each in numbers for part in (each.start, each.slope))


def _multiplies(numbers: Sequence[_Linear]) -> bool:
    return sum(bool(np.any(each.slope != 0)) for each in numbers) <= 1


def _divides(numbers: Sequence[_Linear]) -> bool:
    return _is_whole(numbers) and numbers[0].is_multiple_of(numbers[1])


_RULES: Final[dict[str, Callable[[Sequence[_Linear]], bool]]] = {
    **dict.fromkeys(("add", "sub", "neg", "positive"), _always),
    **dict.fromkeys(("int", "ceil", "floor", "round", "trunc"), _is_whole),
    **dict.fromkeys(
        ("torch.int64", "torch.int", "torch.int32", "torch.long", "torch.float", "torch.float32"), _is_whole
    ),
    "mul": _multiplies,
    **dict.fromkeys(("div", "floor_divide", "remainder", "fmod"), _divides),
    **dict.fromkeys(("eq", "ne"), lambda numbers: _difference(numbers).is_never_zero()),
    **dict.fromkeys(("lt", "le", "gt", "ge"), lambda numbers: _difference(numbers).keeps_sign()),
    **dict.fromkeys(("max", "min", "maximum", "minimum"), lambda numbers: _difference(numbers).keeps_side()),
}
"""By the function's name: whether such numbers give a linear function."""


def _of_expression(layer: Expression, operands: Sequence[Operand]) -> Value | None:
    """Return the abstract value of an expression of numbers; None where it reads elements of tensors."""
    if not any(has_sizes(each.value) or not each.is_shared for each in operands):
        return None
    found = _numbers(layer.tree, operands, layer.shapes)
    return None if found is None else found[1]


def _numbers(root: Node, operands: Sequence[Operand], shapes: frozenset[int]) -> tuple[Known, Value] | None:
    """Return a tree's value for each of COUNTS, and its abstract value; None if unknown before a run."""
    found: list[tuple[Known, Value] | None] = []
    for node in postorder(root):  # without recursion: trees are as deep as their text
        first = len(found) - len(node.children)
        found[first:] = [_number(node, found[first:], operands, shapes)]
    return found[0]


def _number(
    node: Node, parts: Sequence[tuple[Known, Value] | None], operands: Sequence[Operand], shapes: frozenset[int]
) -> tuple[Known, Value] | None:
    """Return the same for a node, given its children's."""
    if isinstance(node, Literal):
        return (node.value,) * len(COUNTS), SHARED
    if isinstance(node, Input):
        operand = operands[node.index]
        if node.index in shapes:
            sizes: Known = tuple(np.array(spec.shape) for spec in operand.specs if isinstance(spec, TensorSpec))
            return sizes, _compared(sizes)
        known = None if operand.is_items else operand.known()
        return None if known is None else (known, operand.value)
    if isinstance(node, Call) and node.function == "size":
        return call_sizes(node, operands)
    given = [each for each in parts if each is not None]
    if len(given) != len(parts):
        return None
    values = tuple([each[0][k] for each in given] for k in range(len(COUNTS)))
    if isinstance(node, List):
        return values, [each[1] for each in given]
    results = tuple(_result(node, row) for row in values)
    if not all(is_known(each) for each in results):
        return None
    if all(each[1] == SHARED for each in given):
        return results, SHARED
    return results, _computed(node.function, [each[0] for each in given], results)


def _result(node: Call, arguments: Sequence[Any]) -> Any:
    """Return the value of a call with known arguments."""
    call = Call(node.function, tuple(Input(k) for k in range(len(arguments))))
    given = [np.asarray(each) if isinstance(each, list) else each for each in arguments]
    given = [spec_of(each, with_value=True) if isinstance(each, np.ndarray) else each for each in given]
    return known_value(infer(call, given))


def call_sizes(node: Call, operands: Sequence[Operand]) -> tuple[Known, Value] | None:
    """Return the value of ``size(@k,d)`` for each of COUNTS, and its abstract value; None if unknown before a run."""
    known = tuple(known_value(infer(node, [operand.specs[k] for operand in operands])) for k in range(len(COUNTS)))
    return (known, _compared(known)) if all(is_known(value) for value in known) else None


def _known(specs: Sequence[Any]) -> Known | None:
    values = tuple(known_value(spec) for spec in specs)
    return values if all(is_known(value) for value in values) else None


def _compared(values: Known) -> Value:
    """Return Shared if a linear function is constant, item by item of nested values, else Sizes."""
    try:
        return nested(_compared_numbers, *values)
    except ValueError:  # lists of different lengths
        raise MixesError("makes a list as long as there are items") from None


def _compared_numbers(*values: Any) -> Value:
    first, *rest = (np.asarray(value) for value in values)
    return SHARED if all(np.array_equal(first, each) for each in rest) else SIZES
