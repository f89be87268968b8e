"""Element-wise functions of float32 vectors, written out in arithmetic every processor has.

Each takes the function being written and its argument vectors. NaN and infinity behave as in PyTorch; the largest error
of an approximated function is in its docstring, in units of the last place (ulp).
"""

from __future__ import annotations

from collections.abc import Callable

from engine.compiler.ir import Function, Value, constant, element_of, lanes_of, vector


def relu(f: Function, x: Value) -> Value:
    """max(x, 0); NaN stays NaN."""
    zero = constant(0.0, x.type)
    return f.select(f.compare("olt", x, zero), zero, x)


def negative(f: Function, x: Value) -> Value:
    """-x"""
    return f.op(x.type, f"fneg {x.type} {x.text}")


def maximum(f: Function, a: Value, b: Value) -> Value:
    """The larger; NaN if either is."""
    larger = f.select(f.compare("ogt", a, b), a, b)
    return f.select(f.compare("uno", a, a), a, larger)


def minimum(f: Function, a: Value, b: Value) -> Value:
    """The smaller; NaN if either is."""
    smaller = f.select(f.compare("olt", a, b), a, b)
    return f.select(f.compare("uno", a, a), a, smaller)


def clip(f: Function, x: Value, low: Value, high: Value) -> Value:
    """x held between two numbers; NaN stays NaN."""
    x = f.select(f.compare("olt", x, low), low, x)
    return f.select(f.compare("ogt", x, high), high, x)


def exp(f: Function, x: Value) -> Value:
    """e**x within 1 ulp; below -104 it is 0, above 88.73 infinity."""
    return _exp(f, x)


def _exp(f: Function, x: Value) -> Value:
    kind = x.type
    held = clip(f, x, constant(-104.0, kind), constant(89.0, kind))
    n = f.intrinsic("rint", f.fmul(held, constant(1.4426950408889634, kind)))
    r = f.fma(n, constant(-0.693145751953125, kind), held)
    r = f.fma(n, constant(-1.428606765330187e-06, kind), r)
    p = constant(1.9875691500e-4, kind)
    for each in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        p = f.fma(p, r, constant(each, kind))
    p = f.fma(f.fmul(r, r), p, f.fadd(r, constant(1.0, kind)))
    return _scale(f, p, n)


def _scale(f: Function, p: Value, n: Value) -> Value:
    """p * 2**n for n in -151 .. 129, in two steps so that neither overflows."""
    ints = vector(lanes_of(p.type), "i32")
    whole = f.convert("fptosi", n, ints)
    half = f.op(ints, f"ashr {ints} {whole.text}, {constant(1, ints).text}")
    rest = f.op(ints, f"sub {ints} {whole.text}, {half.text}")
    return f.fmul(f.fmul(p, _power_of_two(f, half, p.type)), _power_of_two(f, rest, p.type))


def _power_of_two(f: Function, n: Value, kind: str) -> Value:
    biased = f.op(n.type, f"add {n.type} {n.text}, {constant(127, n.type).text}")
    return f.convert("bitcast", f.op(n.type, f"shl {n.type} {biased.text}, {constant(23, n.type).text}"), kind)


def sigmoid(f: Function, x: Value) -> Value:
    """1 / (1 + exp(-x)) within 3 ulp."""
    one = constant(1.0, x.type)
    return f.fdiv(one, f.fadd(one, exp(f, negative(f, x))))


def silu(f: Function, x: Value) -> Value:
    """x * sigmoid(x) within 4 ulp."""
    one = constant(1.0, x.type)
    return f.fdiv(x, f.fadd(one, exp(f, negative(f, x))))


def hardsigmoid(f: Function, x: Value) -> Value:
    """clip(x + 3, 0, 6) / 6"""
    shifted = f.fadd(x, constant(3.0, x.type))
    held = clip(f, shifted, constant(0.0, x.type), constant(6.0, x.type))
    return f.fmul(held, constant(1 / 6, x.type))


def hardswish(f: Function, x: Value) -> Value:
    """x * clip(x + 3, 0, 6) / 6"""
    return f.fmul(x, hardsigmoid(f, x))


def square(f: Function, x: Value) -> Value:
    """x * x"""
    return f.fmul(x, x)


def sqrt(f: Function, x: Value) -> Value:
    """Correctly rounded square root."""
    return f.intrinsic("sqrt", x)


def absolute(f: Function, x: Value) -> Value:
    """|x|"""
    return f.intrinsic("fabs", x)


def leaky_relu(f: Function, x: Value, slope: Value) -> Value:
    """x, times the slope where negative."""
    return f.select(f.compare("olt", x, constant(0.0, x.type)), f.fmul(x, slope), x)


FUNCTIONS: dict[str, Callable[..., Value]] = {
    "add": Function.fadd,
    "sub": Function.fsub,
    "mul": Function.fmul,
    "div": Function.fdiv,
    "fma": Function.fma,
    "neg": negative,
    "max": maximum,
    "min": minimum,
    "clip": clip,
    "relu": relu,
    "leaky_relu": leaky_relu,
    "exp": exp,
    "sigmoid": sigmoid,
    "silu": silu,
    "hardsigmoid": hardsigmoid,
    "hardswish": hardswish,
    "square": square,
    "sqrt": sqrt,
    "abs": absolute,
}

# Vector instructions a call costs, roughly; one where not listed.
COSTS = {"exp": 16, "sigmoid": 24, "silu": 24, "hardsigmoid": 4, "hardswish": 5, "max": 3, "min": 3, "clip": 2, "div": 6}
