"""Functions of complex vectors by name: real and imaginary parts alternate, as in memory.

A real constant of an expression fills every lane; ``real`` turns it into a complex number. Real results, a magnitude or
an angle, are in the even lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.compiler.codegen.ir import Function, Value, constant, lanes_of
from engine.compiler.kernels.functions.arithmetic import absolute, negative
from engine.compiler.kernels.functions.logarithm import hypot
from engine.compiler.kernels.functions.trigonometric import atan2


def _count(x: Value) -> int:
    return lanes_of(x.type)


def _reals(f: Function, x: Value) -> Value:
    """Emit the real part in both lanes of every number."""
    return f.shuffle(x, x, [lane - lane % 2 for lane in range(_count(x))])


def _imaginaries(f: Function, x: Value) -> Value:
    """Emit the imaginary part in both lanes of every number."""
    return f.shuffle(x, x, [lane | 1 for lane in range(_count(x))])


def _swapped(f: Function, x: Value) -> Value:
    """Exchange real and imaginary parts."""
    return f.shuffle(x, x, [lane ^ 1 for lane in range(_count(x))])


def _merged(f: Function, even: Value, odd: Value) -> Value:
    """Emit the even lanes of one vector and the odd lanes of another."""
    count = _count(even)
    return f.shuffle(even, odd, [lane + count * (lane % 2) for lane in range(count)])


def real(f: Function, x: Value) -> Value:
    """Emit the real part; the imaginary part is 0."""
    return _merged(f, x, constant(0.0, x.type))


def conj(f: Function, x: Value) -> Value:
    """Emit a - bi."""
    return _merged(f, x, negative(f, x))


def mul(f: Function, x: Value, y: Value) -> Value:
    """Emit (ac - bd) + (ad + bc)i, also where a part is not finite."""
    crossed = f.fmul(_imaginaries(f, x), _swapped(f, y))
    crossed = _merged(f, negative(f, crossed), crossed)
    return f.fma(_reals(f, x), y, crossed)


def div(f: Function, x: Value, y: Value) -> Value:
    """Emit x / y by Smith's method: nothing overflows unless the quotient does."""
    c, d = _reals(f, y), _imaginaries(f, y)
    length = absolute(f, c)
    is_real = f.compare("oge", length, absolute(f, d))
    large, small = f.select(is_real, c, d), f.select(is_real, d, c)
    ratio = f.fdiv(small, large)
    # Not a product with the reciprocal, which is infinite for a subnormal divisor.
    divisor = f.fma(small, ratio, large)
    rotated = conj(f, _swapped(f, x))
    near, far = f.select(is_real, x, rotated), f.select(is_real, rotated, x)
    quotient = f.fdiv(f.fma(far, ratio, near), divisor)
    zero = constant(0.0, x.type)
    is_zero = f.binary("and", f.compare("oeq", c, zero), f.compare("oeq", d, zero))
    return f.select(is_zero, f.fdiv(x, length), quotient)


def magnitude(f: Function, x: Value) -> Value:
    """Emit sqrt(a**2 + b**2)."""
    return hypot(f, _reals(f, x), _imaginaries(f, x))


def angle(f: Function, x: Value) -> Value:
    """Emit the angle of the point (a, b)."""
    return atan2(f, _imaginaries(f, x), _reals(f, x))


def direction(f: Function, x: Value) -> Value:
    """Emit x / |x|; 0 at 0."""
    length, zero = magnitude(f, x), constant(0.0, x.type)
    return f.select(f.compare("oeq", length, zero), zero, f.fdiv(x, length))


PAIRS: Final[Mapping[str, Callable[..., Value]]] = {
    "real": real,
    "conj": conj,
    "add": Function.fadd,
    "sub": Function.fsub,
    "neg": negative,
    "mul": mul,
    "div": div,
    "square": lambda f, x: mul(f, x, x),
    "reciprocal": lambda f, x: div(f, real(f, constant(1.0, x.type)), x),
    "sign": direction,
    "abs": magnitude,
    "angle": angle,
}
REAL_VALUED: Final = frozenset({"abs", "angle"})
"""Functions with real results."""


def from_real(f: Function, x: Value) -> Value:
    """Convert real numbers to complex ones."""
    lanes = _count(x)
    if lanes == 1:
        type_ = f"<2 x {x.type}>"
        return f.op(type_, f"insertelement {type_} zeroinitializer, {x.type} {x.text}, i64 0")
    return f.shuffle(x, constant(0.0, x.type), [lane // 2 + lane % 2 * lanes for lane in range(2 * lanes)])


def to_real(f: Function, x: Value) -> Value:
    """Emit the real parts as consecutive lanes."""
    count = _count(x)
    if count == 2:
        return f.op("float", f"extractelement {x.type} {x.text}, i64 0")
    return f.shuffle(x, x, range(0, count, 2))
