"""Expression rules of functions of one and two elements, by name, and of pnnx.Expression, call by call."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from engine.compiler.kernels.expr import Apply, Expr, Number, apply, is_moderate
from engine.compiler.lowering.terms.term import expression_for
from engine.errors import EngineError
from engine.expression import Call, Input, Literal, Node, evaluate, postorder
from engine.layers.creation.container import Expression
from engine.layers.elementwise import arithmetic, functions, mathematics
from engine.layers.indexing import masking

_SAME = (
    "abs", "neg", "sign", "square", "ceil", "floor", "round", "trunc", "frac", "sqrt", "rsqrt", "reciprocal", "exp",
    "expm1", "exp2", "log", "log2", "log10", "log1p", "erf", "sin", "cos", "tan", "asin", "acos", "atan",
    "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "add", "sub", "mul", "div", "floor_divide", "remainder", "fmod",
    "atan2", "logaddexp", "max", "min", "hypot", "copysign", "xlogy", "heaviside", "fmax", "fmin",
    "erfc", "erfinv", "lgamma", "sigmoid", "silu", "logsigmoid", "softsign", "mish", "selu",
    "hardsigmoid", "hardswish",
)  # fmt: skip
KERNELS: dict[str, str] = {name: name for name in _SAME} | {"maximum": "max", "minimum": "min"}
"""Functions of engine.expression and engine.layers -> their names in kernels."""

LARGEST_POWER = 8
# Largest float32; a larger number is infinite, and 0 times that is NaN.
LARGEST_FLOAT = 3.4028234663852886e38
# Exponents with a faster path in PyTorch, which differs in signs of zeros and in the last bit.
_POWERS = {0.5: "sqrt", -0.5: "rsqrt", 2: "square", 3: "cube", -1: "reciprocal"}
_EXACT_DIVISORS = frozenset(2.0**k for k in range(-126, 127))
_CASTS = ("torch.float", "torch.float32")


def function(name: str, *arguments: Expr) -> Expr | None:
    """Return a function of engine.expression or engine.layers applied; None if kernels have none."""
    if name in COMPOSED:
        return COMPOSED[name](*arguments)
    return Apply(KERNELS[name], arguments) if name in KERNELS else None


def power(base: Expr, exponent: Expr) -> Expr:
    """Return base ** exponent."""
    if isinstance(exponent, Number):
        if exponent.value == 1:
            return base
        if exponent.value == -2:
            return apply("reciprocal", apply("square", base))
        if exponent.value in _POWERS:
            return apply(_POWERS[exponent.value], base)
        if exponent.value in range(4, LARGEST_POWER + 1):
            return _multiplied(base, int(exponent.value))
    return apply("pow", base, exponent)


def _multiplied(base: Expr, exponent: int) -> Expr:
    """Return a product of so many factors, within 4 ulp at the largest power."""
    if exponent % 2:
        return base if exponent == 1 else apply("mul", base, _multiplied(base, exponent - 1))
    return apply("square", _multiplied(base, exponent // 2))


def quotient(dividend: Expr, divisor: Expr) -> Expr:
    """Return dividend / divisor, as a product where that is as exact."""
    if isinstance(divisor, Number) and abs(divisor.value) in _EXACT_DIVISORS:
        return apply("mul", dividend, 1 / divisor.value)
    return apply("div", dividend, divisor)


def sinc(x: Expr) -> Expr:
    """Return sin(pi x) / (pi x), 1 at 0."""
    scaled = apply("mul", x, math.pi)
    return apply("where", apply("eq", x, 0.0), 1.0, apply("div", apply("sin", scaled), scaled))


def entropy(x: Expr) -> Expr:
    """Return -x log(x), 0 at 0, -inf below."""
    inside = apply("neg", apply("xlogy", x, x))
    return apply("where", apply("lt", x, 0.0), float("-inf"), inside)


def logaddexp2(x: Expr, y: Expr) -> Expr:
    """Return log2(2**x + 2**y), without overflow."""
    less = apply("exp2", apply("neg", apply("abs", apply("sub", x, y))))
    total = apply("add", apply("max", x, y), apply("mul", apply("log1p", less), 1 / math.log(2)))
    return apply("where", apply("eq", x, y), apply("add", x, 1.0), total)


def xlog1py(x: Expr, y: Expr) -> Expr:
    """Return x log(1 + y), 0 where x is 0 and y a number."""
    nothing = apply("where", apply("isnan", y), y, 0.0)
    return apply("where", apply("eq", x, 0.0), nothing, apply("mul", x, apply("log1p", y)))


def angle(x: Expr) -> Expr:
    """Return the angle of a real number: 0, or pi where it is negative."""
    return apply("where", apply("isnan", x), x, apply("where", apply("lt", x, 0.0), math.pi, 0.0))


COMPOSED: dict[str, Callable[..., Expr]] = {
    "positive": lambda x: x,
    "angle": angle,
    "sgn": lambda x: apply("sign", x),
    "pow": power,
    "div": quotient,
    "sinc": sinc,
    "special_entr": entropy,
    "logaddexp2": logaddexp2,
    "special_xlog1py": xlog1py,
    "deg2rad": lambda x: apply("mul", x, math.pi / 180),
    "rad2deg": lambda x: apply("mul", x, 180 / math.pi),
    "ldexp": lambda x, exponent: apply("mul", x, apply("exp2", exponent)),
}
"""Functions that are expressions of others."""


@expression_for(functions.Unary, functions.Binary)
def _by_name(layer: functions.Unary | functions.Binary, *operands: Expr) -> Expr | None:
    return function(layer.function, *operands)


@expression_for(arithmetic.Add, arithmetic.Sub)
def scaled_sum(layer: arithmetic.Add | arithmetic.Sub, x: Expr, other: Expr) -> Expr | None:
    """Return x + alpha * y, or x - alpha * y."""
    if isinstance(layer.alpha, complex):
        return None
    scaled = other if layer.alpha == 1 else apply("mul", other, layer.alpha)
    return apply("add" if isinstance(layer, arithmetic.Add) else "sub", x, scaled)


@expression_for(arithmetic.Div)
def div(layer: arithmetic.Div, x: Expr, other: Expr) -> Expr | None:
    """Return x / y, rounded down or towards zero as the mode says."""
    if layer.rounding_mode == "floor":
        return function("floor_divide", x, other)
    ratio = quotient(x, other)
    return ratio if layer.rounding_mode is None else function("trunc", ratio)


@expression_for(masking.Where)
def where(layer: masking.Where, condition: Expr, x: Expr | None = None, other: Expr | None = None) -> Expr | None:
    """Return x where a known condition is not zero, else the other operand."""
    return None if x is None or other is None else apply("where", condition, x, other)


@expression_for(masking.MaskedFill)
def masked_fill(layer: masking.MaskedFill, x: Expr, mask: Expr, value: Expr) -> Expr:
    """Return the value where the mask is on, else x."""
    return apply("where", mask, value, x)


@expression_for(mathematics.NanToNum, doubles=False)
def nan_to_num(layer: mathematics.NanToNum, x: Expr) -> Expr:
    """Return x with NaN and the infinities replaced."""
    infinite = (
        (float("inf"), LARGEST_FLOAT if layer.posinf is None else layer.posinf),
        (float("-inf"), -LARGEST_FLOAT if layer.neginf is None else layer.neginf),
    )
    result = x
    for value, replacement in infinite:
        result = apply("where", apply("eq", x, value), replacement, result)
    return apply("where", apply("isnan", x), layer.nan or 0.0, result)


@expression_for(Expression)
def expression(layer: Expression, *operands: Expr | None) -> Expr | None:
    """Return the expression's tree, if all parts are numbers or float32 tensors and all calls functions of such."""
    done: dict[Node, Expr] = {}
    measured: dict[int, tuple[int, int]] = {}
    for node in postorder(layer.tree):
        if node in done:
            continue
        found = _convert(node, [done[each] for each in node.children], operands)
        # Walks over expressions are recursive, and visit repeated parts again.
        if found is None or not is_moderate(found, measured):
            return None
        done[node] = found
    return done[layer.tree]


def _convert(node: Node, arguments: Sequence[Expr], operands: Sequence[Expr | None]) -> Expr | None:
    if isinstance(node, Input):
        return operands[node.index]
    if isinstance(node, Literal):
        return Number(node.value) if isinstance(node.value, bool | int | float) else None
    if not isinstance(node, Call):
        return None
    numbers = [each.value for each in arguments if isinstance(each, Number)]
    if len(numbers) == len(arguments):
        return _number(node.function, numbers)
    return arguments[0] if node.function in _CASTS else function(node.function, *arguments)


def _number(name: str, arguments: list[float]) -> Number | None:
    """Evaluate a function of numbers only."""
    try:
        value = evaluate(Call(name, tuple(map(Literal, arguments))), ())
    except EngineError:
        return None
    return Number(value) if isinstance(value, bool | int | float) else None
