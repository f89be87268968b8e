"""Expressions, and operators that only group values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from engine.expression import FUNCTIONS, Call, Input, List, Literal, Node, postorder
from engine.expression.elementwise import ElementwiseFunction, with_lists
from engine.expression.functions import Cast
from engine.layers.creation import container, numbers, scripted
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.functions import evaluate
from engine.onnx_writing.value import Operand, Value, promoted
from engine.onnx_writing.writer import BOOL, FLOAT64, INT64, Writer
from engine.promotion import Category, category, dtype_category


@writes(container.Expression)
def expression(to: Writer, layer: container.Expression, *operands: Operand) -> Operand:
    """Write an expression, call by call; equal parts are written once."""
    given = [each.all_sizes() if k in layer.shapes and isinstance(each, Value) else each
             for k, each in enumerate(operands)]  # fmt: skip
    done: dict[Node, Operand] = {}
    for node in postorder(layer.tree):
        if node not in done:
            done[node] = _written(to, layer, node, given, done)
    return done[layer.tree]


def _written(
    to: Writer, layer: container.Expression, node: Node, operands: Sequence[Operand], done: dict[Node, Operand]
) -> Operand:
    if isinstance(node, Literal):
        return node.value
    if isinstance(node, Input):
        return operands[node.index]
    if isinstance(node, List):
        return [done[each] for each in node.items]
    assert isinstance(node, Call)  # there is no other kind
    arguments = [done[each] for each in node.args]
    if node is layer.tree:
        return _outermost(to, layer, node.function, arguments)
    return call(to, node.function, arguments)


def _outermost(to: Writer, layer: container.Expression, function: str, arguments: list[Operand]) -> Operand:
    """Write the outermost call, whose annotation tells what the file's text leaves open about integers."""
    noted = layer.annotations.outputs[0] if layer.annotations.outputs else None
    is_integral = noted is not None and dtype_category(noted.dtype) is Category.INTEGER
    kinds = [category(each) for each in with_lists([promoted(each) for each in arguments])] if is_integral else []
    if function == "div" and is_integral and all(each is Category.INTEGER for each in kinds):
        return call(to, "floor_divide", arguments)
    result = call(to, function, arguments)
    if function == "pow" and is_integral and noted is not None and kinds == [Category.INTEGER, Category.FLOATING]:
        return to.cast(to.tensor(result), noted.dtype)
    return result


def call(to: Writer, function: str, arguments: list[Operand]) -> Operand:
    """Write a call of a function of expressions; known numbers are computed."""
    definition = FUNCTIONS[function]
    if not any(map(_is_tensor, arguments)):
        return definition.evaluate(*arguments)
    if isinstance(definition, ElementwiseFunction):
        return evaluate(to, definition, *arguments)
    if function == "size":
        tensor, *dim = arguments
        return to.size(tensor, *dim) if dim else tensor.all_sizes()
    if isinstance(definition, Cast):
        (value,) = arguments
        made = to.cast(value, definition.dtype)
        return replace(made, is_number=value.is_number and definition.keeps_numbers)
    return as_number(to, arguments[0], INT64)  # int(x)


def _is_tensor(operand: Operand) -> bool:
    return isinstance(operand, Value) or (isinstance(operand, list | tuple) and any(map(_is_tensor, operand)))


def as_number(to: Writer, value: Value, dtype: Any) -> Value:
    """Return a tensor of one element as a number of a dtype."""
    return replace(to.reshape(to.cast(value, dtype), ()), is_number=True)


# Groups


@writes(container.Constant, container.TupleConstruct, container.ListConstruct, container.DictConstruct, folds=False)
@writes(container.RawConstant, container.SliceIndexes, scripted.Unwrap, folds=False)
def group(to: Writer, layer: Any, *items: Operand) -> Operand:
    return layer.forward(*items)


@writes(container.Unpack, folds=False)
def unpack(to: Writer, layer: container.Unpack, items: Operand) -> Operand:
    return layer.forward(items.all_sizes() if isinstance(items, Value) else items)


# Numbers


@writes(numbers.Size, dynamic=("dim",))
def size(to: Writer, layer: numbers.Size, input: Value) -> Operand:
    return input.all_sizes() if layer.dim is None else to.size(input, layer.dim)


@writes(numbers.NumEl)
def numel(to: Writer, layer: numbers.NumEl, input: Value) -> Operand:
    return replace(to.op("Size", input, shape=()), is_number=True)


@writes(numbers.Rank)
def rank(to: Writer, layer: numbers.Rank, input: Value) -> Operand:
    return input.rank


@writes(numbers.Length)
def length(to: Writer, layer: numbers.Length, items: Operand) -> Operand:
    return to.size(items, 0) if isinstance(items, Value) else len(items)


@writes(numbers.Item)
def item(to: Writer, layer: numbers.Item, items: Operand, index: Operand) -> Operand:
    if isinstance(index, Value) or isinstance(items, Value):
        to.refuse("an item of a list is chosen in a run")
    return items[index]


_KINDS = {"int": INT64, "float": FLOAT64, "bool": BOOL}


@writes(numbers.Scalar)
def scalar(to: Writer, layer: numbers.Scalar, value: Operand) -> Operand:
    if not isinstance(value, Value):
        return layer.forward(value)
    return as_number(to, value, _KINDS.get(layer.kind, value.dtype))
