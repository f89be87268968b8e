"""Functions of elements, by their names in expressions and in the core operators of one or two operands.

Operands have been cast to the dtype that the function computes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from engine.expression.elementwise import ElementwiseFunction, is_tensor, with_lists
from engine.onnx_writing.value import Operand, Value, promoted
from engine.onnx_writing.writer import BOOL, FLOAT32, FLOAT64, INT32, Writer
from engine.promotion import broadcast_shapes
from engine.tensor import DType

Function = Callable[..., Value]


def evaluate(to: Writer, definition: ElementwiseFunction, *operands: Operand) -> Value:
    """Write a function of operands, with PyTorch's promotion of their dtypes."""
    write = FUNCTIONS.get(definition.name)
    if write is None:
        to.refuse(f"ONNX has no counterpart of the function '{definition.name}'")
    given = with_lists([promoted(each) for each in operands])
    are_numbers = not any(map(is_tensor, given))
    dtype = definition.working_dtype(*given)
    if are_numbers and dtype == FLOAT32:
        dtype = FLOAT64  # as Python computes
    if dtype.kind == "c":
        to.refuse("ONNX has no arithmetic of complex numbers")
    values = [to.tensor(each, dtype) for each in operands]
    shape = None if any(each.sizes is None for each in values) else broadcast_shapes(*[each.shape for each in values])
    made = write_in(to, write, values, dtype)
    return replace(to.cast(made, definition.result_dtype(dtype)), sizes=shape, is_number=are_numbers)


def write_in(to: Writer, write: Function, values: list[Value], dtype: DType) -> Value:
    """Write a function of values of one dtype; small integers, for which runtimes have no kernels, as int32."""
    wide = INT32 if dtype.kind in "iu" and dtype.itemsize < 4 else dtype
    made = write(to, *(to.cast(each, wide) for each in values))
    return made if made.dtype in (BOOL, dtype) else to.cast(made, dtype)


# Helpers


def number(to: Writer, value: float, like: Value) -> Value:
    """Return a number in the dtype of a value."""
    return to.constant(value, like.dtype)


def _node(type: str, **attributes: Any) -> Function:
    return lambda to, *operands: to.op(type, *operands, **attributes)


def _logical(type: str, bools: str) -> Function:
    return lambda to, *operands: to.op(bools if operands[0].dtype == BOOL else type, *operands)


def compare(to: Writer, type: str, a: Value, b: Value | float) -> Value:
    """Write a comparison of two values, or of a value and a number."""
    other = b if isinstance(b, Value) else number(to, b, a)
    shape = None if a.sizes is None or other.sizes is None else broadcast_shapes(a.sizes, other.sizes)
    return to.op(type, a, other, dtype=BOOL, shape=shape)


def where(to: Writer, condition: Value, a: Value | float, b: Value | float) -> Value:
    """Write a choice between two values, one of which may be a number."""
    like = a if isinstance(a, Value) else b
    assert isinstance(like, Value)  # callers choose between values of one dtype
    given = [each if isinstance(each, Value) else number(to, each, like) for each in (a, b)]
    return to.where(condition, *given)


def times(to: Writer, x: Value, factor: float) -> Value:
    """Write a value times a number."""
    return to.op("Mul", x, number(to, factor, x))


def _scaled(type: str, factor: float) -> Function:
    return lambda to, x: times(to, to.op(type, x), factor)


def _absolute(to: Writer, x: Value) -> Value:
    return to.op("Abs", x)


def square(to: Writer, x: Value) -> Value:
    return to.op("Mul", x, x)


def _rounded(type: str) -> Function:
    def write(to: Writer, x: Value) -> Value:
        return to.op(type, x) if x.dtype.kind == "f" else x

    return write


def truncated(to: Writer, x: Value) -> Value:
    if x.dtype.kind != "f":
        return x
    return where(to, compare(to, "Less", x, 0), to.op("Ceil", x), to.op("Floor", x))


def _rsqrt(to: Writer, x: Value) -> Value:
    return to.op("Reciprocal", to.op("Sqrt", x))


def expm1(to: Writer, x: Value) -> Value:
    """Write exp(x) - 1 as 2 sinh(x/2) exp(x/2), which is exact near 0; large numbers directly, without inf - inf."""
    half = times(to, x, 0.5)
    near = times(to, to.op("Mul", to.op("Sinh", half), to.op("Exp", half)), 2)
    far = to.op("Sub", to.op("Exp", x), number(to, 1, x))
    return where(to, compare(to, "Less", to.op("Abs", x), 1), near, far)


def log1p(to: Writer, x: Value) -> Value:
    """Write log(1 + x) with the rounding error of the sum divided out."""
    total = to.op("Add", x, number(to, 1, x))
    rest = to.op("Sub", total, number(to, 1, x))
    exact = to.op("Mul", to.op("Log", total), to.op("Div", x, rest))
    is_plain = to.op("Or", compare(to, "Equal", rest, 0), compare(to, "Equal", total, math.inf), dtype=BOOL)
    plain = where(to, compare(to, "Equal", rest, 0), x, to.op("Log", total))
    return where(to, is_plain, plain, exact)


def _log_sigmoid(to: Writer, x: Value) -> Value:
    return to.op("Neg", to.op("Softplus", to.op("Neg", x)))


def _silu(to: Writer, x: Value) -> Value:
    return to.op("Mul", x, to.op("Sigmoid", x))


def _erfc(to: Writer, x: Value) -> Value:
    return to.op("Sub", number(to, 1, x), to.op("Erf", x))


def _normal_cdf(to: Writer, x: Value) -> Value:
    total = to.op("Add", to.op("Erf", times(to, x, math.sqrt(0.5))), number(to, 1, x))
    return times(to, total, 0.5)


def _angle(to: Writer, x: Value) -> Value:
    sign = where(to, compare(to, "Less", x, 0), math.pi, times(to, x, 0))
    return where(to, to.op("IsNaN", x, dtype=BOOL), x, where(to, compare(to, "Less", x, 0), sign, 0.0))


def _sinc(to: Writer, x: Value) -> Value:
    scaled = times(to, x, math.pi)
    return where(to, compare(to, "Equal", x, 0), 1.0, to.op("Div", to.op("Sin", scaled), scaled))


def _entropy(to: Writer, x: Value) -> Value:
    inside = to.op("Neg", to.op("Mul", x, to.op("Log", x)))
    below = where(to, compare(to, "Less", x, 0), -math.inf, x)
    return where(to, compare(to, "Greater", x, 0), inside, where(to, compare(to, "Equal", x, 0), 0.0, below))


def _exp2(to: Writer, x: Value) -> Value:
    return to.op("Pow", number(to, 2, x), x)


def _sign(to: Writer, x: Value) -> Value:
    """Write the sign, 0 for NaN."""
    if x.dtype == BOOL:
        return x
    if x.dtype.kind != "f":
        return to.op("Sign", x)
    signs = [to.cast(compare(to, type, x, 0), x.dtype) for type in ("Greater", "Less")]
    return to.op("Sub", *signs)


def _remainder(to: Writer, x: Value, y: Value) -> Value:
    """Write the remainder with the sign of the divisor."""
    if x.dtype.kind != "f":
        return to.op("Mod", x, y)
    rest = to.op("Mod", x, y, fmod=1)
    opposite = to.op("Less", to.op("Mul", to.op("Sign", rest), to.op("Sign", y)), number(to, 0, x), dtype=BOOL)
    return where(to, opposite, to.op("Add", rest, y), rest)


def _fmod(to: Writer, x: Value, y: Value) -> Value:
    return to.op("Mod", x, y, fmod=1)


def floor_divide(to: Writer, x: Value, y: Value) -> Value:
    if x.dtype.kind == "f":
        rest = _remainder(to, x, y)
        quotient = to.op("Div", to.op("Sub", x, rest), y)
        whole = to.op("Floor", to.op("Add", quotient, number(to, 0.5, x)))
        return where(to, compare(to, "Equal", y, 0), to.op("Div", x, y), whole)
    return to.op("Div", to.op("Sub", x, to.op("Mod", x, y)), y)


def truncated_quotient(to: Writer, x: Value, y: Value) -> Value:
    """Write x / y rounded towards zero."""
    quotient = to.op("Div", x, y)
    return truncated(to, quotient) if x.dtype.kind == "f" else quotient


def _power(to: Writer, x: Value, y: Value) -> Value:
    if y.constant is not None and y.constant.size == 1:
        exponent = y.constant.item()
        shortcut = _POWERS.get(float(exponent))
        if shortcut is not None and (x.dtype.kind == "f" or exponent > 0):
            return shortcut(to, x)
    return to.op("Pow", x, y)


_POWERS: Final[dict[float, Function]] = {
    2.0: square,
    0.5: lambda to, x: to.op("Sqrt", x),
    -0.5: _rsqrt,
    -1.0: lambda to, x: to.op("Reciprocal", x),
}


def _atan2(to: Writer, y: Value, x: Value) -> Value:
    near = to.op("Atan", to.op("Div", y, x))
    turn = where(to, compare(to, "Less", y, 0), -math.pi, where(to, compare(to, "Less", y, 0), y, math.pi))
    behind = to.op("Add", near, turn)
    upright = times(to, to.op("Sign", y), math.pi / 2)
    front = where(to, compare(to, "Equal", x, 0), upright, near)
    return where(to, compare(to, "Less", x, 0), behind, front)


def _log_sum(base: float) -> Function:
    def write(to: Writer, x: Value, y: Value) -> Value:
        scale = math.log(base)
        distance = to.op("Neg", to.op("Abs", to.op("Sub", x, y)))
        more = times(to, to.op("Softplus", times(to, distance, scale)), 1 / scale)
        equal = to.op("Equal", x, y, dtype=BOOL)  # also two infinities
        return to.op("Add", to.op("Max", x, y), where(to, equal, math.log(2) / scale, more))

    return write


def _shift(is_left: bool) -> Function:
    def write(to: Writer, x: Value, y: Value) -> Value:
        most = 8 * x.dtype.itemsize - 2  # beyond, the power of two overflows and the result is the same
        by = y if is_left else to.op("Min", y, number(to, most, y))
        factor = to.op("Pow", number(to, 2, x), by)
        return to.op("Mul", x, factor) if is_left else floor_divide(to, x, factor)

    return write


def _hypot(to: Writer, x: Value, y: Value) -> Value:
    """Write sqrt(x² + y²) without overflow."""
    a, b = to.op("Abs", x), to.op("Abs", y)
    longer = to.op("Max", a, b)
    share = to.op("Div", to.op("Min", a, b), longer)
    length = to.op("Mul", longer, to.op("Sqrt", to.op("Add", square(to, share), number(to, 1, x))))
    length = where(to, compare(to, "Equal", longer, 0), longer, length)
    is_infinite = to.op("Or", compare(to, "Equal", a, math.inf), compare(to, "Equal", b, math.inf))
    return where(to, is_infinite, math.inf, length)


def is_negative(to: Writer, x: Value) -> Value:
    """Write whether a number has a minus sign, as -0.0 has."""
    if x.dtype.kind != "f":
        return compare(to, "Less", x, 0)
    of_zero = compare(to, "Less", to.op("Reciprocal", x), 0)
    return to.where(compare(to, "Equal", x, 0), of_zero, compare(to, "Less", x, 0))


def _copysign(to: Writer, x: Value, y: Value) -> Value:
    size = to.op("Abs", x)
    return where(to, is_negative(to, y), to.op("Neg", size), size)


def _x_log(log: Function) -> Function:
    def write(to: Writer, x: Value, y: Value) -> Value:
        product = to.op("Mul", x, log(to, y))
        is_nan = to.op("IsNaN", y, dtype=BOOL)
        is_zero = to.op("And", compare(to, "Equal", x, 0), to.op("Not", is_nan), dtype=BOOL)
        return where(to, is_zero, 0.0, product)

    return write


def _heaviside(to: Writer, x: Value, y: Value) -> Value:
    return where(to, compare(to, "Equal", x, 0), y, to.cast(compare(to, "Greater", x, 0), x.dtype))


def _ldexp(to: Writer, x: Value, y: Value) -> Value:
    return to.op("Mul", x, _exp2(to, y))


def _of_both(type: str) -> Function:
    """Return a maximum or minimum that ignores NaN in one operand."""

    def write(to: Writer, x: Value, y: Value) -> Value:
        if x.dtype.kind != "f":
            return _extreme(type)(to, x, y)
        both = to.op(type, x, y)
        return where(to, to.op("IsNaN", x, dtype=BOOL), y, where(to, to.op("IsNaN", y, dtype=BOOL), x, both))

    return write


def _extreme(type: str) -> Function:
    return _logical(type, "Or" if type == "Max" else "And")


def _multiplied(to: Writer, x: Value, y: Value) -> Value:
    return to.op("And" if x.dtype == BOOL else "Mul", x, y)


def _added(to: Writer, x: Value, y: Value) -> Value:
    return to.op("Or" if x.dtype == BOOL else "Add", x, y)


def _bits(type: str) -> Function:
    return _logical(f"Bitwise{type}", type)


FUNCTIONS: Final[dict[str, Function]] = {
    # of one operand
    "abs": _absolute, "neg": _node("Neg"), "sign": _sign, "sgn": _sign, "square": square, "ceil": _rounded("Ceil"),
    "floor": _rounded("Floor"), "round": _rounded("Round"), "trunc": truncated, "sqrt": _node("Sqrt"), "rsqrt": _rsqrt,
    "reciprocal": _node("Reciprocal"), "exp": _node("Exp"), "expm1": expm1, "log": _node("Log"),
    "log10": _scaled("Log", 1 / math.log(10)), "log2": _scaled("Log", 1 / math.log(2)), "log1p": log1p,
    "exp2": _exp2, "erf": _node("Erf"), "erfc": _erfc, "sin": _node("Sin"), "cos": _node("Cos"), "tan": _node("Tan"),
    "asin": _node("Asin"), "acos": _node("Acos"), "atan": _node("Atan"), "sinh": _node("Sinh"),
    "cosh": _node("Cosh"), "tanh": _node("Tanh"), "asinh": _node("Asinh"), "acosh": _node("Acosh"),
    "atanh": _node("Atanh"), "sigmoid": _node("Sigmoid"), "silu": _silu, "logsigmoid": _log_sigmoid,
    "softsign": _node("Softsign"), "mish": _node("Mish"),
    "selu": _node("Selu"), "hardsigmoid": _node("HardSigmoid", alpha=1 / 6, beta=0.5),
    "hardswish": _node("HardSwish"), "positive": lambda to, x: to.op("Identity", x),
    "frac": lambda to, x: to.op("Sub", x, truncated(to, x)), "angle": _angle, "sinc": _sinc,
    "deg2rad": partial(times, factor=math.pi / 180), "rad2deg": partial(times, factor=180 / math.pi),
    "special_entr": _entropy, "special_ndtr": _normal_cdf,
    # of two operands
    "add": _added, "sub": _node("Sub"), "mul": _multiplied, "div": _node("Div"), "remainder": _remainder,
    "fmod": _fmod, "floor_divide": floor_divide, "pow": _power, "atan2": _atan2, "logaddexp": _log_sum(math.e),
    "logaddexp2": _log_sum(2), "maximum": _extreme("Max"), "minimum": _extreme("Min"), "max": _extreme("Max"),
    "min": _extreme("Min"), "fmax": _of_both("Max"), "fmin": _of_both("Min"), "and": _bits("And"),
    "or": _bits("Or"), "xor": _bits("Xor"), "lshift": _shift(True), "rshift": _shift(False), "hypot": _hypot,
    "copysign": _copysign, "xlogy": _x_log(_node("Log")), "special_xlog1py": _x_log(log1p),
    "heaviside": _heaviside, "ldexp": _ldexp,
}  # fmt: skip
"""Name of a function -> how it is written."""
