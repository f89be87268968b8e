"""Values that are not tensors, and tensors that are constants: expressions, tuples, lists, dicts, attributes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from engine.errors import EngineError, ExpressionError, ParameterError, ShapeError
from engine.expression import Call, Literal, Node, check_arity, evaluate, infer, parse, peak_bytes, postorder
from engine.ir.sizes import size_array
from engine.layers.definition.composite import CallLayer
from engine.layers.definition.known import is_dropped_shape
from engine.layers.definition.layer import NO_ANNOTATIONS, Annotations, Layer
from engine.layers.definition.registry import register
from engine.layers.operands.precision import INT64
from engine.tensor import UNKNOWN, Array, TensorSpec


@register("pnnx.Attribute", positional=("data",))
class Constant(Layer):
    """A tensor stored with the model: a buffer, a literal or a folded sub-graph."""

    does_arithmetic = False

    def infer(self, data: TensorSpec) -> TensorSpec:
        return data

    def forward(self, data: Array) -> Array:
        return data


@register("pnnx.Expression")
class Expression(Layer):
    """Scalar and element-wise arithmetic, list building and constants, written as text."""

    takes_unknown = True
    takes_sizes = True
    gives_numbers = True

    expr: str
    annotations: Annotations = NO_ANNOTATIONS

    def __post_init__(self) -> None:
        check_arity(self.tree, len(self.annotations.inputs))

    @cached_property
    def tree(self) -> Node:
        """The parsed text; an einsum equation, a constant at optlevel 1, is returned as text."""
        if "->" in self.expr and not self.annotations.inputs:
            return Literal(self.expr)
        return parse(self.expr)

    @cached_property
    def shapes(self) -> frozenset[int]:
        """Operands that stand for their shape, because the converter dropped the operator that asks for it (ONNX).

        The result is annotated as a vector of integers, which arithmetic never makes of floats or of several axes.
        """
        noted = self.annotations.outputs[0]
        if noted is None or noted.rank != 1 or noted.dtype.kind != "i":
            return frozenset()
        calls = [node for node in postorder(self.tree) if isinstance(node, Call)]
        if not calls or any(_asks_or_casts(node.function) for node in calls):
            return frozenset()
        rows = enumerate(self.annotations.inputs)
        return frozenset(
            k for k, each in rows if each is not None and is_dropped_shape(each) and each.rank == noted.shape[0]
        )

    def infer(self, *operands: object) -> Any:
        return infer(self.tree, self._with_shapes(operands), annotated=self.annotations.outputs[0])

    def forward(self, *operands: object) -> Any:
        try:
            return evaluate(self.tree, self._with_shapes(operands), annotated=self.annotations.outputs[0])
        except ExpressionError as error:  # the text was parsed long ago: the values do not fit it
            raise ShapeError.like(error) from error.__cause__

    def scratch_bytes(self, output: TensorSpec, *operands: object) -> int:
        """Return the bytes of intermediate values."""
        result = (output.size or 0) * output.dtype.itemsize
        return max(
            0, peak_bytes(self.tree, self._with_shapes(operands), annotated=self.annotations.outputs[0]) - result
        )

    def _with_shapes(self, operands: Sequence[Any]) -> Sequence[object]:
        if not self.shapes:
            return operands
        return [_shape_vector(each) if k in self.shapes else each for k, each in enumerate(operands)]


def formula(call: CallLayer, text: str, *operands: Any) -> Any:
    """Apply an expression to operands of a composition."""
    given = Annotations(inputs=(None,) * len(operands), outputs=(None,))
    try:
        return call(Expression(expr=text, annotations=given), *operands)
    except EngineError as error:
        error.where = ""  # the text is not the file's
        raise


def _asks_or_casts(function: str) -> bool:
    return function in ("size", "int") or function.startswith("torch.")


def _shape_vector(tensor: Any) -> Array | TensorSpec:
    if None in tensor.shape:
        return TensorSpec((len(tensor.shape),), INT64)
    return size_array(tensor.shape)


class Arrangement(Layer):
    """Base of layers that only group values: their results contain the operands themselves."""

    does_arithmetic = False
    takes_unknown = True

    def infer(self, *items: object) -> Any:
        return self.forward(*items)


@register("prim::TupleConstruct")
class TupleConstruct(Arrangement):
    """A tuple (a, b, ...)."""

    def forward(self, *items: object) -> tuple[object, ...]:
        return items


@register("prim::ListConstruct")
class ListConstruct(Arrangement):
    """A list [a, b, ...]."""

    def forward(self, *items: object) -> list[object]:
        return list(items)


@register("prim::DictConstruct")
class DictConstruct(Arrangement):
    """A dict {key: value, ...}; operands alternate key, value."""

    def forward(self, *items: object) -> dict[object, object]:
        if len(items) % 2:
            raise ShapeError("keys and values do not pair up", found=f"{len(items)} operands")
        return dict(zip(items[::2], items[1::2], strict=True))


@register("prim::TupleUnpack")
class Unpack(Arrangement):
    """The items of a tuple or list, one output each.

    For a tensor its sizes: the converter drops the operator that asks for them in ``n, c, h, w = x.shape`` of a script.
    """

    annotations: Annotations = NO_ANNOTATIONS

    def infer(self, *items: object) -> Any:
        known = isinstance(items[0], (tuple, list, TensorSpec))
        return self.forward(*items) if known else UNKNOWN

    def forward(self, items: object) -> Any:
        count = len(self.annotations.outputs)
        if isinstance(items, (np.ndarray, TensorSpec)) and not any(self.annotations.outputs):
            items = [UNKNOWN if size is None else size for size in items.shape]
        if not isinstance(items, (tuple, list)) or len(items) != count:
            found = f"{len(items)} items" if isinstance(items, (tuple, list)) else type(items).__name__
            raise ShapeError("cannot unpack", found=found, expected=f"{count} items")
        return items[0] if count == 1 else tuple(items)


@register("prim::Constant")
class RawConstant(Arrangement):
    """A literal that the converter left as an operator (optlevel 0)."""

    value: Any = None

    def forward(self) -> object:
        return self.value


@register("pnnx.SliceIndexes")
class SliceIndexes(Arrangement):
    """A list of ints, some literal, some ``@k``: the value of the k-th operand."""

    indexes: tuple[str | int, ...]

    def forward(self, *operands: object) -> list[object]:
        return [self._item(str(text), operands) for text in self.indexes]

    def _item(self, text: str, operands: tuple[object, ...]) -> object:
        literal = text.removeprefix("@")
        if not literal.removeprefix("-").isdecimal():
            raise ParameterError("indexes: not an int or an operand", found=text)
        if literal == text:
            return int(text)
        if int(literal) not in range(len(operands)):
            raise ParameterError("indexes: unknown operand", found=text, expected=f"below @{len(operands)}")
        return operands[int(literal)]
