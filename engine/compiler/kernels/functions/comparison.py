"""Comparisons and logic with float results 1.0 and 0.0; every non-zero value is true, NaN included.

A ``Truth`` keeps the mask it was made from, so that a select does not compare again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.compiler.codegen.ir import Function, Value, constant
from engine.compiler.kernels.functions.arithmetic import absolute, has_sign, like

COMPARISONS = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
"""Comparison -> LLVM's predicate for floats."""


@dataclass(frozen=True, slots=True)
class Truth(Value):
    """Vector of 1.0 where a mask is on, else 0.0."""

    mask: Value


def comparison(how: str) -> Callable[[Function, Value, Value], Value]:
    """Return the function that compares two numbers; ``how`` is LLVM's ``olt``, ``une`` ..."""

    def compared(f: Function, a: Value, b: Value) -> Value:
        return _truth(f, f.compare(how, a, b), a)

    return compared


def comparison_with(how: str, number: float, *, of_magnitude: bool = False) -> Callable[[Function, Value], Value]:
    """Return the function that compares a number, or its magnitude, with a constant."""

    def compared(f: Function, x: Value) -> Value:
        return _truth(f, f.compare(how, absolute(f, x) if of_magnitude else x, like(x, number)), x)

    return compared


def logic(name: str) -> Callable[[Function, Value, Value], Value]:
    """Return ``and``, ``or`` or ``xor`` of two truth values."""

    def combined(f: Function, a: Value, b: Value) -> Value:
        return _truth(f, f.binary(name, _mask(f, a), _mask(f, b)), a)

    return combined


def where(f: Function, condition: Value, a: Value, b: Value) -> Value:
    """Emit a where the condition is not zero, else b."""
    return f.select(_mask(f, condition), a, b)


def isnan(f: Function, x: Value) -> Value:
    """Emit whether x is NaN."""
    return _truth(f, f.compare("uno", x, x), x)


def signbit(f: Function, x: Value) -> Value:
    """Emit whether the sign bit of x is set, as it is for -0.0."""
    return _truth(f, has_sign(f, x), x)


def heaviside(f: Function, x: Value, at_zero: Value) -> Value:
    """Emit 0 below zero and for NaN, 1 above, a given value at zero."""
    zero = like(x, 0.0)
    step = f.select(f.compare("ogt", x, zero), like(x, 1.0), zero)
    return f.select(f.compare("oeq", x, zero), at_zero, step)


def _truth(f: Function, mask: Value, x: Value) -> Truth:
    value = f.select(mask, constant(1.0, x.type), constant(0.0, x.type))
    return Truth(value.text, value.type, mask)


def _mask(f: Function, x: Value) -> Value:
    return x.mask if isinstance(x, Truth) else f.compare("une", x, like(x, 0.0))
