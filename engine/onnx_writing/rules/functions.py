"""Functions of elements, by their names in expressions and in the core operators of one or two operands.

Operands have been cast to the dtype that the function computes in.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from engine.expression.elementwise import ElementwiseFunction, is_tensor, with_lists
from engine.onnx_writing.value import Operand, Value, common_shape, promoted
from engine.onnx_writing.writer import BOOL, FLOAT32, FLOAT64, INT32, Writer
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
    made = to.cast(write_in(to, write, values, dtype), definition.result_dtype(dtype))
    return replace(made, sizes=common_shape(*values), is_number=are_numbers)


def write_in(to: Writer, write: Function, values: list[Value], dtype: DType) -> Value:
    """Write a function of values of one dtype; small integers, for which runtimes have no kernels, as int32."""
    wide = INT32 if dtype.kind in "iu" and dtype.itemsize < 4 else dtype
    made = write(*(to.cast(each, wide) for each in values))
    return made if made.dtype in (BOOL, dtype) else to.cast(made, dtype)


# Helpers


def node(type: str, of_bools: str = "", **attributes: Any) -> Function:
    """Return a function that is one node, of another type for bools."""

    def write(x: Value, *others: Value) -> Value:
        return x.to.op(of_bools if of_bools and x.dtype == BOOL else type, x, *others, **attributes)

    return write


_abs, _log, _sqrt, _exp, _sign = node("Abs"), node("Log"), node("Sqrt"), node("Exp"), node("Sign")
_neg, _reciprocal, _floor, _is_nan = node("Neg"), node("Reciprocal"), node("Floor"), node("IsNaN")
_min, _max, _equal, _softplus = node("Min", "And"), node("Max", "Or"), node("Equal"), node("Softplus")


def where(condition: Value, a: Value | float, b: Value | float) -> Value:
    """Write a choice between two values of one dtype; one may be a number."""
    return condition.to.where(condition, a, b)


def rounded(type: str) -> Function:
    """Return a function that rounds numbers of floating point."""
    return lambda x: x.to.op(type, x) if x.dtype.kind == "f" else x


def truncated(x: Value) -> Value:
    return where(x < 0, rounded("Ceil")(x), _floor(x)) if x.dtype.kind == "f" else x


def rsqrt(x: Value) -> Value:
    return _reciprocal(_sqrt(x))


def expm1(x: Value) -> Value:
    """Write exp(x) - 1 as 2 sinh(x/2) exp(x/2), which is exact near 0; large numbers directly, without inf - inf."""
    half = x * 0.5
    return where(_abs(x) < 1, node("Sinh")(half) * _exp(half) * 2, _exp(x) - 1)


def log1p(x: Value) -> Value:
    """Write log(1 + x) with the rounding error of the sum divided out."""
    total = x + 1
    rest = total - 1
    exact = _log(total) * (x / rest)
    is_small = _equal(rest, 0)
    return where(is_small | _equal(total, math.inf), where(is_small, x, _log(total)), exact)


def _angle(x: Value) -> Value:
    return where(_is_nan(x), x, where(x < 0, math.pi, _like(0, x)))


def _sinc(x: Value) -> Value:
    scaled = x * math.pi
    return where(_equal(x, 0), 1, node("Sin")(scaled) / scaled)


def _entropy(x: Value) -> Value:
    return where(x > 0, _neg(x * _log(x)), where(_equal(x, 0), 0, where(x < 0, -math.inf, x)))


def sign(x: Value) -> Value:
    """Write the sign, 0 for NaN."""
    if x.dtype.kind != "f":
        return x if x.dtype == BOOL else _sign(x)
    return x.to.cast(x > 0, x.dtype) - x.to.cast(x < 0, x.dtype)


def _remainder(x: Value, y: Value) -> Value:
    """Write the remainder with the sign of the divisor."""
    if x.dtype.kind != "f":
        return node("Mod")(x, y)
    rest = _fmod(x, y)
    return where(_sign(rest) * _sign(y) < 0, rest + y, rest)


_fmod = node("Mod", fmod=1)


def floor_divide(x: Value, y: Value) -> Value:
    quotient = (x - _remainder(x, y)) / y
    return where(_equal(y, 0), x / y, _floor(quotient + 0.5)) if x.dtype.kind == "f" else quotient


def truncated_quotient(x: Value, y: Value) -> Value:
    """Write x / y rounded towards zero."""
    return truncated(x / y)


def _power(x: Value, y: Value) -> Value:
    if y.constant is not None and y.constant.size == 1:
        shortcut = _POWERS.get(float(y.constant.item()))
        if shortcut is not None and (x.dtype.kind == "f" or y.constant > 0):
            return shortcut(x)
    return node("Pow")(x, y)


_POWERS: Final[dict[float, Function]] = {2.0: lambda x: x * x, 0.5: _sqrt, -0.5: rsqrt, -1.0: _reciprocal}


def _atan2(y: Value, x: Value) -> Value:
    near = node("Atan")(y / x)
    behind = near + where(y < 0, -math.pi, _like(math.pi, y))
    return where(x < 0, behind, where(_equal(x, 0), _sign(y) * (math.pi / 2), near))


def _log_sum(base: float) -> Function:
    def write(x: Value, y: Value) -> Value:
        scale = math.log(base)
        more = _softplus(_neg(_abs(x - y)) * scale) * (1 / scale)
        return _max(x, y) + where(_equal(x, y), math.log(2) / scale, more)  # also of two infinities

    return write


def _shift(is_left: bool) -> Function:
    def write(x: Value, y: Value) -> Value:
        if x.dtype.kind == "u":
            shifted = node("BitShift", direction="LEFT" if is_left else "RIGHT")(x, y)
            return where(y < 8 * x.dtype.itemsize, shifted, 0)
        most = 8 * x.dtype.itemsize - 2  # beyond, the power of two overflows and the result is the same
        factor = node("Pow")(_like(2, x), y if is_left else _min(y, most))
        return x * factor if is_left else floor_divide(x, factor)

    return write


def _like(number: float, x: Value) -> Value:
    return x.to.constant(number, x.dtype)


def _hypot(x: Value, y: Value) -> Value:
    """Write sqrt(x² + y²) without overflow."""
    a, b = _abs(x), _abs(y)
    longer = _max(a, b)
    share = _min(a, b) / longer
    length = where(_equal(longer, 0), longer, longer * _sqrt(share * share + 1))
    return where(_equal(a, math.inf) | _equal(b, math.inf), math.inf, length)


def is_negative(x: Value) -> Value:
    """Write whether a number has a minus sign, as -0.0 has."""
    return where(_equal(x, 0), _reciprocal(x) < 0, x < 0) if x.dtype.kind == "f" else x < 0


def _copysign(x: Value, y: Value) -> Value:
    return where(is_negative(y), _neg(_abs(x)), _abs(x))


def _x_log(log: Function) -> Function:
    return lambda x, y: where(_equal(x, 0) & ~_is_nan(y), 0, x * log(y))


def _exp2(x: Value) -> Value:
    return node("Pow")(_like(2, x), x)


def _of_both(type: str) -> Function:
    """Return a maximum or minimum that ignores NaN in one operand."""
    extreme = _EXTREMES[type]

    def write(x: Value, y: Value) -> Value:
        both = extreme(x, y)
        return where(_is_nan(x), y, where(_is_nan(y), x, both)) if x.dtype.kind == "f" else both

    return write


_EXTREMES: Final = {"Max": _max, "Min": _min}

FUNCTIONS: Final[dict[str, Function]] = {
    # of one operand
    "abs": _abs, "neg": _neg, "sign": sign, "sgn": sign, "square": lambda x: x * x, "ceil": rounded("Ceil"),
    "floor": rounded("Floor"), "round": rounded("Round"), "trunc": truncated, "sqrt": _sqrt, "rsqrt": rsqrt,
    "reciprocal": _reciprocal, "exp": _exp, "expm1": expm1, "log": _log,
    "log10": lambda x: _log(x) * (1 / math.log(10)), "log2": lambda x: _log(x) * (1 / math.log(2)), "log1p": log1p,
    "exp2": _exp2, "erf": node("Erf"), "erfc": lambda x: 1 - node("Erf")(x), "sin": node("Sin"), "cos": node("Cos"),
    "tan": node("Tan"), "asin": node("Asin"), "acos": node("Acos"), "atan": node("Atan"), "sinh": node("Sinh"),
    "cosh": node("Cosh"), "tanh": node("Tanh"), "asinh": node("Asinh"), "acosh": node("Acosh"),
    "atanh": node("Atanh"), "sigmoid": node("Sigmoid"), "silu": lambda x: x * node("Sigmoid")(x),
    "logsigmoid": lambda x: _neg(_softplus(_neg(x))), "softsign": node("Softsign"), "mish": node("Mish"),
    "selu": node("Selu"), "hardsigmoid": node("HardSigmoid", alpha=1 / 6, beta=0.5),
    "hardswish": node("HardSwish"), "positive": node("Identity"), "frac": lambda x: x - truncated(x),
    "angle": _angle, "sinc": _sinc, "deg2rad": lambda x: x * (math.pi / 180),
    "rad2deg": lambda x: x * (180 / math.pi), "special_entr": _entropy,
    "special_ndtr": lambda x: (node("Erf")(x * math.sqrt(0.5)) + 1) * 0.5,
    # of two operands
    "add": node("Add", "Or"), "sub": node("Sub"), "mul": node("Mul", "And"), "div": node("Div"),
    "remainder": _remainder, "fmod": _fmod, "floor_divide": floor_divide, "pow": _power, "atan2": _atan2,
    "logaddexp": _log_sum(math.e), "logaddexp2": _log_sum(2), "maximum": _max, "minimum": _min, "max": _max,
    "min": _min, "fmax": _of_both("Max"), "fmin": _of_both("Min"), "and": node("BitwiseAnd", "And"),
    "or": node("BitwiseOr", "Or"), "xor": node("BitwiseXor", "Xor"), "lshift": _shift(True), "rshift": _shift(False),
    "hypot": _hypot, "copysign": _copysign, "xlogy": _x_log(_log), "special_xlog1py": _x_log(log1p),
    "heaviside": lambda x, y: where(_equal(x, 0), y, x.to.cast(x > 0, x.dtype)), "ldexp": lambda x, y: x * _exp2(y),
}  # fmt: skip
"""Name of a function -> how it is written."""
