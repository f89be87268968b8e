"""Piecewise linear activations: ReLU, its leaky and bounded forms, shrinking. NaN stays NaN."""

from __future__ import annotations

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import absolute, between, like, maximum


def relu(f: Function, x: Value) -> Value:
    """Emit max(x, 0); NaN stays NaN."""
    return maximum(f, x, like(x, 0.0))


def relu6(f: Function, x: Value) -> Value:
    """Emit min(max(x, 0), 6)."""
    return between(f, x, 0.0, 6.0)


def leaky_relu(f: Function, x: Value, slope: Value) -> Value:
    """Emit x where x > 0, else slope * x."""
    return f.select(f.compare("ogt", x, like(x, 0.0)), x, f.fmul(x, slope))


def hardsigmoid(f: Function, x: Value) -> Value:
    """Emit min(max(x + 3, 0), 6) / 6 within 1.5 ulp."""
    return f.fmul(_gate(f, x), like(x, 1 / 6))


def hardswish(f: Function, x: Value) -> Value:
    """Emit x * min(max(x + 3, 0), 6) / 6 within 2.5 ulp, from left to right: the product overflows in PyTorch, too."""
    return f.fmul(f.fmul(x, _gate(f, x)), like(x, 1 / 6))


def _gate(f: Function, x: Value) -> Value:
    """Emit min(max(x + 3, 0), 6)."""
    return between(f, f.fadd(x, like(x, 3.0)), 0.0, 6.0)


def threshold(f: Function, x: Value, limit: Value, value: Value) -> Value:
    """Emit x where x > limit (or is NaN), else value."""
    return f.select(f.compare("ole", x, limit), value, x)


def hardshrink(f: Function, x: Value, width: Value) -> Value:
    """Emit 0 where |x| <= width, else x."""
    return f.select(f.compare("ole", absolute(f, x), width), like(x, 0.0), x)


def softshrink(f: Function, x: Value, width: Value) -> Value:
    """Emit x moved towards 0 by width; 0 where it would cross 0."""
    zero = like(x, 0.0)
    moved = f.select(f.compare("ogt", x, zero), f.fsub(x, width), f.fadd(x, width))
    # Times 0, not 0: NaN must stay NaN.
    return f.select(f.compare("ogt", absolute(f, x), width), moved, f.fmul(x, zero))
