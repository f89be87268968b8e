"""Arithmetic, comparisons and logic of elements."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np

from engine.errors import ParameterError
from engine.onnx.translation.node import Node
from engine.onnx.translation.registry import Translator, translates
from engine.onnx.translation.value import Size, Sum, Value
from engine.onnx.translators.precision import in_dtype_of, widened
from engine.tensor import DType, Number

_UNARY = {
    "Abs": "abs", "Neg": "neg", "Sqrt": "sqrt", "Exp": "exp", "Log": "log", "Sin": "sin", "Cos": "cos", "Tan": "tan",
    "Asin": "asin", "Acos": "acos", "Atan": "atan", "Sinh": "sinh", "Cosh": "cosh", "Asinh": "asinh",
    "Acosh": "acosh", "Atanh": "atanh", "Floor": "floor", "Ceil": "ceil", "Round": "round", "Sign": "sign",
    "Reciprocal": "reciprocal", "Erf": "erf",
}  # fmt: skip
_BINARY = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div"}
_COMPARISONS = {
    "Equal": "torch.eq", "Less": "torch.lt", "LessOrEqual": "torch.le", "Greater": "torch.gt",
    "GreaterOrEqual": "torch.ge",
}  # fmt: skip
_LOGIC = {"And": "torch.logical_and", "Or": "torch.logical_or", "Xor": "torch.logical_xor"}
_BITS = {"BitwiseAnd": "and", "BitwiseOr": "or", "BitwiseXor": "xor"}
_ON_SIZES = {"Add": "add", "Sub": "sub", "Mul": "mul", "Div": "floor_divide"}


def literal(value: Value | None, dtype: DType | None) -> Number | None:
    """Return a one-element constant as a number if an expression computes the same with it; else None."""
    if value is None or value.constant is None or value.constant.size != 1 or value.constant.dtype != dtype:
        return None
    number = value.constant.reshape(()).item()
    if isinstance(number, float):
        if not math.isfinite(number):
            return None
        return float(str(value.constant.reshape(())[()])) if dtype == np.float32 else number
    return number if isinstance(number, int) else None


def operand_texts(a: Value, b: Value) -> tuple[list[str], list[Value]]:
    """Return texts of two operands for an expression, and those it takes: a number of the tensor's dtype is inlined."""
    texts: list[str] = []
    operands: list[Value] = []
    for value, other in ((a, b), (b, a)):
        number = None
        if other.tensor is not None and value.rank is not None and value.rank <= other.tensor.rank:
            number = literal(value, other.tensor.dtype) if other.constant is None else None
        if number is None:
            operands.append(value)
            texts.append(f"@{len(operands) - 1}")
        else:
            texts.append(repr(number))
    return texts, operands


def _unary(function: str) -> Translator:
    def translator(node: Node) -> Value:
        x = node.input(0)
        # An expression would treat a value with an unknown spec as a number.
        return node.make(f"torch.{function}", x) if x.tensor is None else node.expression(f"{function}(@0)", x)

    return translator


for _type, _function in _UNARY.items():
    translates(_type)(_unary(_function))


@translates(*_BINARY)
def binary(node: Node) -> Value:
    """Translate to an expression, to nn.SiLU or nn.Hardswish, or to arithmetic on sizes."""
    a, b = _aligned(node)
    if node.type == "Mul" and (known := _gated(node, a, b)) is not None:
        return known
    function = _BINARY[node.type]
    dtype = a.dtype or b.dtype
    if node.type == "Div" and dtype is not None and dtype.kind in "iu":
        result = node.make("torch.div", a, b, rounding_mode="trunc")
    elif dtype is not None and dtype.kind == "b":
        return node.make("torch.logical_or" if node.type == "Add" else "torch.logical_and", a, b)
    elif node.type == "Div" and dtype is None:
        return node.make("torch.div", a, b, truncates_integers=True)
    elif a.tensor is None or b.tensor is None:
        return node.make(f"torch.{function}", a, b)
    else:
        texts, operands = operand_texts(a, b)
        result = node.expression(f"{function}({texts[0]},{texts[1]})", *operands)
    if result.constant is None:
        result.sizes = _computed(_ON_SIZES[node.type], a.sizes, b.sizes)
    return result


def _gated(node: Node, a: Value, b: Value) -> Value | None:
    """Return nn.SiLU for x * sigmoid(x) and nn.Hardswish for x * hardsigmoid(x); else None."""
    for gate, x in ((a, b), (b, a)):
        maker = node.builder.maker(gate)
        if maker is not None and maker.inputs == (x.name,) and x.name:
            if maker.type == "nn.Sigmoid":
                return node.make("nn.SiLU", x)
            if maker.type == "nn.Hardsigmoid":
                return node.make("nn.Hardswish", x)
    return None


def _aligned(node: Node) -> tuple[Value, Value]:
    """Return both operands; before operator set 7, ``axis`` says where the second one is aligned."""
    a, b = node.input(0), node.input(1)
    axis, rank, own = node.attributes.get("axis"), a.rank, b.rank
    if not isinstance(axis, int) or node.version >= 7 or rank is None or own is None or b.tensor is None:
        return a, b
    missing = rank - own - (axis + rank if axis < 0 else axis)
    if missing <= 0:
        return a, b
    shape = tuple(-1 if size is None else size for size in b.tensor.shape) + (1,) * missing
    return a, node.make("Tensor.reshape", b, shape=shape)


def _computed(function: str, left: tuple[Size, ...] | None, right: tuple[Size, ...] | None) -> tuple[Size, ...] | None:
    """Compute with sizes, for Reshape and similar operators; a number is applied to each item of a list."""
    if left is None or right is None or not left or not right:
        return None
    count = max(len(left), len(right))
    if len(left) not in (1, count) or len(right) not in (1, count):
        return None
    lefts, rights = (each if len(each) == count else each * count for each in (left, right))
    return tuple(computed(function, a, b) for a, b in zip(lefts, rights, strict=True))


def computed(function: str, a: Size, b: Size) -> Size:
    """Return a size computed from two others."""
    if isinstance(a, int) and isinstance(b, int):
        if function == "floor_divide":
            return a // b if b else 0
        return {"add": a + b, "sub": a - b, "mul": a * b, "maximum": max(a, b)}[function]
    if b == 1 and function in ("mul", "floor_divide"):
        return a
    return Sum(function, a, b)


@translates("Pow")
def power(node: Node) -> Value:
    """Translate to pow in the dtype of the base; integers with a fractional exponent are computed in float64."""
    a, b = _aligned(node)
    if a.dtype is None or b.dtype is None:
        return in_dtype_of(node, node.make("torch.pow", a, b), a)
    if a.dtype.kind in "iu":
        if b.dtype.kind not in "iu":
            y = node.make("torch.pow", *(node.make("Tensor.to", each, dtype="torch.double") for each in (a, b)))
        else:
            y = node.make("torch.pow", a, in_dtype_of(node, b, a) if a.dtype.kind == "u" else b)
        return in_dtype_of(node, y, a)
    if a.dtype.name not in ("float32", "float64"):
        return in_dtype_of(node, node.make("torch.pow", a, b), a)
    texts, operands = operand_texts(a, in_dtype_of(node, b, a))
    return node.expression(f"pow({texts[0]},{texts[1]})", *operands)


@translates("Max", "Min")
def extremum(node: Node) -> Value:
    """Translate to the maximum or minimum of any number of operands."""
    return _folded(node, "maximum" if node.type == "Max" else "minimum")


@translates("Sum")
def total(node: Node) -> Value:
    """Translate to the sum of any number of operands."""
    return _folded(node, "add")


def _folded(node: Node, function: str) -> Value:
    """Fold a function of two operands over any number of them."""
    operands = [value for value in node.inputs if value is not None]
    if not operands:
        raise ParameterError("an operand is missing", found="none", expected="one or more")
    if any(value.tensor is None for value in operands):
        return reduce(lambda done, value: node.make(f"torch.{function}", done, value), operands)
    text = reduce(lambda done, k: f"{function}({done},@{k})", range(1, len(operands)), "@0")
    return operands[0] if len(operands) == 1 else node.expression(text, *operands)


@translates("Mean")
def mean(node: Node) -> Value:
    """Translate to the sum of the operands divided by their number."""
    operands = [node.input(k) for k in range(len(node.inputs) or 1)]
    wide = [each if each.dtype is None else widened(node, each) for each in operands]
    total = reduce(lambda done, value: node.make("torch.add", done, value), wide)
    return in_dtype_of(node, node.make("torch.div", total, other=float(len(wide))), operands[0])


@translates("Mod", since=10)
def remainder(node: Node) -> Value:
    """torch.remainder, with the sign of the divisor; torch.fmod, with that of the dividend; 0 of integers by 0."""
    x, other = node.input(0), node.input(1)
    if other.dtype is not None and other.dtype.kind in "iu":
        other = node.make("Tensor.masked_fill", other, node.make("torch.eq", other, other=0), value=1)
    return node.make("torch.fmod" if node.number("fmod", 0) else "torch.remainder", x, other)


def _pair(type: str) -> Translator:
    def translator(node: Node) -> Value:
        a, b = _aligned(node)
        return node.make(type, a, b)

    return translator


for _type, _torch in {**_COMPARISONS, **_LOGIC}.items():
    translates(_type)(_pair(_torch))


def _bits(function: str) -> Translator:
    def translator(node: Node) -> Value:
        return node.make(f"torch.bitwise_{function}", node.input(0), node.input(1))

    return translator


for _type, _function in _BITS.items():
    translates(_type, since=18)(_bits(_function))


@translates("BitShift", since=11)
def shifted(node: Node) -> Value:
    """Translate to torch.bitwise_left_shift or torch.bitwise_right_shift."""
    direction = node.text("direction", "").lower()
    return node.make(f"torch.bitwise_{direction}_shift", node.input(0), node.input(1))


@translates("BitwiseNot", since=18)
def bitwise_not(node: Node) -> Value:
    """Translate to torch.bitwise_not."""
    return node.make("torch.bitwise_not", node.input(0))


@translates("Not")
def logical_not(node: Node) -> Value:
    """Translate to torch.logical_not."""
    return node.make("torch.logical_not", node.input(0))


@translates("Where", since=9)
def where(node: Node) -> Value:
    """Translate to torch.where."""
    return node.make("torch.where", node.input(0), node.input(1), node.input(2))
