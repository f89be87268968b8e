"""Rules of products: of matrices, with weights, sums of products."""

from __future__ import annotations

from typing import Any

from engine.graph.batch.independence.rules.elementwise import broadcast
from engine.graph.batch.independence.rules.table import rule
from engine.graph.batch.independence.use import Operand, Use
from engine.graph.batch.independence.values import SHARED, Items, MixesError, Value
from engine.layers.linear import einsum, linear, matmul, product, square
from engine.layers.onnx.products import matmul as onnx_matmul
from engine.layers.onnx.products import quantise
from engine.layers.operands.axes import checked_axis
from engine.layers.quantised.quantise import FakeQuantizeChannels
from engine.layers.quantised.quantised_product import QuantisedLinear
from engine.layers.reduction import distance
from engine.tensor import TensorSpec


def multiplied(a: Operand, b: Operand) -> Value:
    """Return the abstract value of a @ b, by numpy's rules for vectors and leading axes.

    Raises:
        MixesError: items are summed over, or meet others.
    """
    if a.is_shared and b.is_shared:
        return SHARED
    rank = max(a.rank, b.rank, 2) - (a.rank == 1) - (b.rank == 1)
    if (a.is_items and a.value.axis == a.rank - 1) or (b.is_items and b.value.axis == max(b.rank - 2, 0)):
        raise MixesError("sums over the batch axis")
    if a.is_items and a.value.axis == a.rank - 2:
        if not b.is_shared:
            raise MixesError("multiplies items by items")
        return a.value.at(rank - (1 if b.rank == 1 else 2))
    if b.is_items and b.value.axis == b.rank - 1:
        if not a.is_shared:
            raise MixesError("multiplies items by items")
        return b.value.at(rank - 1)
    return broadcast([each for each in (a, b) if each.rank > 1])  # leading axes broadcast, and a vector has none


def transposed(operand: Operand) -> Operand:
    """Return a matrix with its axes swapped."""
    value = operand.value.at(1 - operand.value.axis) if operand.is_items else operand.value
    specs = tuple(TensorSpec(spec.shape[::-1], spec.dtype) for spec in operand.specs)
    return Operand(value, specs)


def result_of(value: Value, use: Use) -> Operand:
    """Return a value with the specs of the operator's result."""
    return Operand(value, use.results[0])


@rule(matmul.Matmul)
def matmul_rule(use: Use) -> Value:
    """Follow the product of matrices."""
    return multiplied(use["input"], use["other"])


@rule(onnx_matmul.MatMulInteger)
def matmul_integer(use: Use) -> Value:
    """Follow the product of matrices of integers; zero points are numbers, or shared vectors of columns."""
    zero = use["a_zero_point"]
    if zero.rank and zero.shape != (1,):
        raise MixesError("has zero points that differ between items")
    use.only("a", "b")
    return multiplied(use["a"], use["b"])


@rule(matmul.AddMatmul)
def add_matmul(use: Use) -> Value:
    """Follow a product with an added operand."""
    value = multiplied(use["first"], use["second"])
    return broadcast((use["input"], result_of(value, use)))


@rule(onnx_matmul.Gemm)
def gemm(use: Use) -> Value:
    """Follow a product of matrices with an added operand."""
    layer: Any = use.layer
    a = transposed(use["a"]) if layer.transA else use["a"]
    b = transposed(use["b"]) if layer.transB else use["b"]
    return broadcast((result_of(multiplied(a, b), use), use["c"]))


@rule(linear.Linear, QuantisedLinear)
def linear_rule(use: Use) -> Value:
    """Follow every row multiplied by the same weights."""
    use.only("input")
    items, rank = use.batch("input"), use["input"].rank
    if items.axis == rank - 1:
        raise MixesError("sums over the batch axis")
    return broadcast((result_of(items, use), use["bias"])) if use["bias"].is_given else items


@rule(linear.Bilinear)
def bilinear(use: Use) -> Value:
    """Follow pairs of rows multiplied by the same weights."""
    use.only("input1", "input2")
    items = broadcast((use["input1"], use["input2"]))
    if use["input1"].rank != use["input2"].rank or items.axis == use["input1"].rank - 1:
        raise MixesError("sums over the batch axis")
    return items


@rule(einsum.Einsum)
def einsum_rule(use: Use) -> Value:
    """Follow sums of products by labels: the batch must have the same one everywhere, and keep it."""
    operands = use.others
    equation = use.layer.labelled([each.shape for each in operands])  # type: ignore[attr-defined]
    pairs = list(zip(operands, equation.terms, strict=True))
    labels = {term[each.value.axis] for each, term in pairs if each.is_items}
    layouts = {each.value.layout for each in operands if each.is_items}
    if len(labels) != 1 or len(layouts) != 1:
        raise MixesError("combines operands that hold the batch along different axes")
    (label,) = labels
    if equation.output.count(label) != 1 or any(term.count(label) > 1 for term in equation.terms):
        raise MixesError("sums over the batch axis")
    for each, term in pairs:
        if not each.is_items and (not each.is_shared or (label in term and each.shape[term.index(label)] != 1)):
            raise MixesError("has a constant that differs between items")
    (outer, inner), *_ = layouts
    return Items(equation.output.index(label), outer, inner)


@rule(distance.Cdist)
def distances(use: Use) -> Value:
    """Follow the distances of all rows of one matrix from all of another."""
    first, second = use["x1"], use["x2"]
    if all(each.is_shared or each.value.axis < each.rank - 2 for each in (first, second)):
        return broadcast((first, second))
    raise MixesError("takes distances between items")


@rule(product.Cross)
def cross(use: Use) -> Value:
    """Follow products of vectors of three along an axis."""
    items: Items = broadcast(use.operands)
    dim = use.layer.dim  # type: ignore[attr-defined]
    if dim is None or items.axis == checked_axis(dim, max(each.rank for each in use.operands)):
        raise MixesError("works along the batch axis")
    return items


@rule(square._OfMatrices)
def square_rule(use: Use) -> Value:
    """Follow a function of every matrix."""
    use.only("input")
    items = use.batch("input")
    if items.axis >= use["input"].rank - 2:
        raise MixesError("sums over the batch axis")
    return items


@rule(quantise._Blocks, FakeQuantizeChannels)
def quantised(use: Use) -> Value:
    """Follow numbers rounded to integers, or back, by shared scales."""
    use.only("input")
    items, rank = use.batch("input"), use["input"].rank
    scales = [each for each in (use["scale"], use["zero_point"]) if each.rank and each.shape != (1,)]
    axis = checked_axis(use.layer.axis, rank) if scales else None  # type: ignore[attr-defined]
    if any(axis == items.axis or each.rank > 1 for each in scales):
        raise MixesError("has scales that differ between items")
    return items
