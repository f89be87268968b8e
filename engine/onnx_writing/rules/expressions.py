"""Expressions, and operators that only group values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.expression import FUNCTIONS, Call, Input, List, Literal, Node, postorder
from engine.expression.elementwise import ElementwiseFunction, with_lists
from engine.expression.functions import Cast
from engine.layers.creation import container, numbers
from engine.onnx_writing.registry import writes
from engine.onnx_writing.rules.functions import evaluate
from engine.onnx_writing.value import Operand, Value, promoted
from engine.onnx_writing.writer import BOOL, FLOAT64, INT64, Writer
from engine.promotion import Category, category, dtype_category


@writes(container.Expression)
def expression(to: Writer, layer: container.Expression, *operands: Operand) -> Operand:
    """Write an expression, call by call; equal parts are written once."""
    given = [
        [to.size(each, axis) for axis in range(each.rank)] if k in layer.shapes and isinstance(each, Value) else each
        for k, each in enumerate(operands)
    ]
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
        return to.size(tensor, *dim) if dim else [to.size(tensor, axis) for axis in range(tensor.rank)]
    if isinstance(definition, Cast):
        (value,) = arguments
        keeps = value.is_number and definition._keeps_numbers
        return _number(to.cast(value, definition.dtype), keeps)
    return as_number(to, arguments[0], INT64)  # int(x)


def _is_tensor(operand: Operand) -> bool:
    return isinstance(operand, Value) or (isinstance(operand, list | tuple) and any(map(_is_tensor, operand)))


def as_number(to: Writer, value: Value, dtype: Any) -> Value:
    """Return a tensor of one element as a number of a dtype."""
    return _number(to.reshape(to.cast(value, dtype), ()), True)


def _number(value: Value, is_number: bool) -> Value:
    from dataclasses import replace

    return replace(value, is_number=is_number)


# Groups


@writes(container.Constant, folds=False)
def constant(to: Writer, layer: container.Constant, data: Value) -> Value:
    return data


@writes(container.TupleConstruct, folds=False)
def tuple_construct(to: Writer, layer: container.TupleConstruct, *items: Operand) -> Operand:
    return items


@writes(container.ListConstruct, folds=False)
def list_construct(to: Writer, layer: container.ListConstruct, *items: Operand) -> Operand:
    return list(items)


@writes(container.DictConstruct, folds=False)
def dict_construct(to: Writer, layer: container.DictConstruct, *items: Operand) -> Operand:
    return layer.forward(*items)


@writes(container.Unpack, folds=False)
def unpack(to: Writer, layer: container.Unpack, items: Operand) -> Operand:
    if isinstance(items, Value):
        items = [to.size(items, axis) for axis in range(items.rank)]
    return layer.forward(items)


@writes(container.RawConstant, folds=False)
def raw_constant(to: Writer, layer: container.RawConstant) -> Operand:
    return layer.value


@writes(container.SliceIndexes, folds=False)
def slice_indexes(to: Writer, layer: container.SliceIndexes, *operands: Operand) -> Operand:
    return layer.forward(*operands)


# Numbers


@writes(numbers.Size, dynamic=("dim",))
def size(to: Writer, layer: numbers.Size, input: Value) -> Operand:
    if layer.dim is None:
        return [to.size(input, axis) for axis in range(input.rank)]
    return to.size(input, layer.dim)


@writes(numbers.NumEl)
def numel(to: Writer, layer: numbers.NumEl, input: Value) -> Operand:
    return _number(to.op("Size", input, dtype=INT64, shape=()), True)


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
