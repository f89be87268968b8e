"""Rules of operators that compute each element from those at the same position, with operands broadcast."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.expression import Call, Input, List, Node, postorder
from engine.graph.batch.independence.rules.sizes import call_sizes
from engine.graph.batch.independence.rules.table import kept, rule
from engine.graph.batch.independence.use import Operand, Use, has_sizes
from engine.graph.batch.independence.values import SHARED, Items, MixesError, Value
from engine.layers.creation.container import Expression
from engine.layers.creation.scripted import RawTo
from engine.layers.elementwise import (
    arithmetic,
    cast,
    comparison,
    complex,
    identity,
    logical,
    mathematics,
    piecewise,
    ternary,
)
from engine.layers.elementwise.base import UnaryFunction
from engine.layers.elementwise.functions import Binary, Unary
from engine.layers.indexing.masking import Copy, Fill, MaskedFill, Where
from engine.layers.onnx.control.text import LabelEncoder, StringConcat
from engine.layers.onnx.elementwise import activation as onnx_activation
from engine.layers.onnx.elementwise import arithmetic as onnx_arithmetic
from engine.layers.quantised.quantise import Dequantize, FakeQuantize, IntRepr, QuantizePerTensor
from engine.layers.sorting.searching import Bucketize, IsIn, SearchSorted
from engine.tensor import TensorSpec


def broadcast(operands: Iterable[Operand]) -> Value:
    """Return the abstract value of an element-wise result of operands.

    Raises:
        MixesError: the batch lies along different axes, or a shared operand has more than one slice along it.
    """
    given = [each for each in operands if each.is_given]
    items = [each for each in given if each.is_items]
    rest = [each for each in given if not each.is_items]
    if any(has_sizes(each.value) for each in rest):
        raise MixesError("computes with the number of items")
    if not all(each.is_shared for each in rest):
        raise MixesError("computes with a list of tensors")
    if not items:
        return SHARED
    places = {(each.value.axis - each.rank, each.value.layout) for each in items}
    if len(places) > 1:
        raise MixesError("combines operands that hold the batch along different axes")
    ((place, _),) = places
    if any(each.rank >= -place and each.shape[place] != 1 for each in rest):
        raise MixesError("has a constant that differs between items")
    rank = max(each.rank for each in given)
    return items[0].value.at(rank + place)


@rule(
    Unary, Binary, UnaryFunction, comparison.Comparison, comparison.Predicate, comparison.IsClose, logical.Logical,
    logical.BitwiseNot, arithmetic.Add, arithmetic.Sub, arithmetic.Div, complex.Complex,
    complex.Real, complex.Imag, complex.Conjugate, complex.Angle, complex.Direction,
    mathematics.FloatPower, mathematics.NanToNum, mathematics.FrExp, piecewise.ReLU, piecewise.Hardtanh,
    piecewise.Threshold,
    ternary.Clamp, ternary.Lerp, ternary.AddCMul, ternary.AddCDiv, MaskedFill,
    Where, FakeQuantize, QuantizePerTensor, Dequantize, IntRepr, StringConcat, LabelEncoder,
)  # fmt: skip
def elementwise(use: Use) -> Value:
    """Follow results whose elements depend on the elements at the same position."""
    return broadcast(use.operands)


@rule(Bucketize, IsIn)
def looked_up(use: Use) -> Value:
    """Follow elements that are looked up in a shared table."""
    name = next(iter(use.named))
    use.only(name)
    return use.batch(name)


@rule(SearchSorted)
def search_sorted(use: Use) -> Value:
    """Follow values that are looked up in a shared table, or in their own row."""
    items, rows = use.batch("values"), use["sorted_sequence"]
    use.only("values", "sorted_sequence")
    if (
        not (rows.is_shared or rows.is_items)
        or (rows.is_shared and rows.rank != 1)
        or (rows.is_items and rows.value != items)
    ):
        raise MixesError("has a table that differs between items")
    return kept(items, () if rows.is_shared else (rows.rank - 1,), "searches along")


@rule(Copy)
def copied(use: Use) -> Value:
    """Follow an input that is overwritten by other elements, broadcast."""
    items, source = use.batch("input"), use["src"]
    if broadcast((use["input"], source)) != items or source.rank > use["input"].rank:
        raise MixesError("combines operands that hold the batch along different axes")
    return items


@rule(Fill)
def fill(use: Use) -> Value:
    """Follow an input that is overwritten by one number."""
    use.only("input")
    return use.batch("input")


@rule(cast.To, cast.TypeAs, RawTo, onnx_arithmetic.OnnxCast, identity.Identity,
      identity.RawIdentity, complex.Resolved, takes_numbers=True)  # fmt: skip
def same(use: Use) -> Value:
    """Follow an input that is returned, possibly in another dtype; of other operands only the dtype counts."""
    value = use.first.value
    if isinstance(value, Items) and value.is_numbered:
        dtypes = {spec.dtype for specs in use.results for spec in specs if isinstance(spec, TensorSpec)}
        if any(dtype.kind not in "iuf" or dtype.itemsize < 4 for dtype in dtypes):
            raise MixesError("computes with the item indices")
    return value


@rule(identity.Dropout, onnx_activation.OnnxDropout)
def dropout(use: Use) -> Value:
    """Follow dropout in inference; in training it draws random numbers."""
    if getattr(use.layer, "training", False) or getattr(use.layer, "training_mode", False):
        raise MixesError("draws random numbers")
    return use.first.value


@rule(piecewise.PReLU)
def prelu(use: Use) -> Value:
    """Follow a slope that is broadcast, or one for each channel, which is axis 1."""
    items = use.batch()
    slope = use.find("weight")
    count = slope.shape[0] if slope.rank else 1
    if not slope.is_shared or (count != 1 and (items.axis == 1 or use.first.shape[1] != count)):
        raise MixesError("has slopes that differ between items")
    return items


@rule(Expression, takes_numbers=True)
def expression(use: Use) -> Value:
    """Follow arithmetic on the operands; their sizes must not depend on the batch."""
    tree: Node = use.layer.tree  # type: ignore[attr-defined]
    if use.layer.shapes:  # type: ignore[attr-defined]
        raise MixesError("computes with the number of items")
    if isinstance(tree, List):
        return ([_computed(node, use) for node in tree.items],)
    return _computed(tree, use)


def _computed(tree: Node, use: Use) -> Value:
    """Return the abstract value of an expression tree."""
    if isinstance(tree, Input):
        return use.operands[tree.index].value
    read: list[Operand] = []
    for node in postorder(tree):
        if isinstance(node, List):
            raise MixesError("makes nested lists that depend on the items")
        if isinstance(node, Call) and node.function == "size":
            found = call_sizes(node, use.operands)
            if found is None or found[1] != SHARED:
                raise MixesError("computes with the number of items")
        elif isinstance(node, Call):
            read += [use.operands[arg.index] for arg in node.args if isinstance(arg, Input)]
    if any(each.is_items and each.value.is_numbered for each in read):
        raise MixesError("computes with the item indices")
    return broadcast(read)


@rule(complex.ViewAsReal, complex.ViewAsComplex)
def paired(use: Use) -> Any:
    """Follow real and imaginary parts as the last axis, which is added or removed."""
    items = use.batch()
    if isinstance(use.layer, complex.ViewAsComplex) and items.axis == use.first.rank - 1:
        raise MixesError("combines the items along the batch axis")
    return items
