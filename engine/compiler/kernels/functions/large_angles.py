"""Payne-Hanek reduction of angles beyond 2**28 to a quarter turn.

For a float32 x = m 2**k, only x 2 / pi modulo 4 matters. Bits of 2 / pi whose product with x is a multiple of 4 are
skipped, and the next hundred bits suffice: no float32 is nearer to a multiple of pi / 2 than 2**-30. They are split
into parts of 28 bits, so that each product with the 24 bits of m is exact. The exponent selects one of four offsets.
"""

from __future__ import annotations

import math
from typing import Final

from engine.compiler.codegen.ir import Function, Value
from engine.compiler.kernels.functions.arithmetic import ROUNDER, absolute, like, low_bits, narrowed, wide, widened

LEAST: Final = 2.0**28
_TWO_OVER_PI: Final = 0xA2F9836E4E441529FC2757D1F534DDC0DB6295993C439041FE5163ABDEBBC561
"""2 / pi, its first 256 bits after the point."""
_BITS: Final = 256
_PART_BITS: Final = 28
_PARTS: Final = 4
# Scales: x 2**-scale is a whole number below 2**49, for x below the next scale's first.
_SCALES: Final = (5, 30, 55, 80)
_FIRST: Final = 2.0**54, 2.0**79, 2.0**104


def reduced(f: Function, x: Value) -> tuple[Value, Value]:
    """Emit x - n pi / 2 as float32, and n in the low bits of an i32, for |x| >= 2**28."""
    magnitude = absolute(f, x)
    beyond = [f.compare("oge", magnitude, like(x, first)) for first in _FIRST]

    def by_size(numbers: tuple[float, ...]) -> Value:
        found = wide(x, numbers[0])
        for mask, number in zip(beyond, numbers[1:], strict=True):
            found = f.select(mask, wide(x, number), found)
        return found

    whole = f.fmul(widened(f, x), by_size(tuple(2.0**-scale for scale in _SCALES)))
    products = [f.fmul(whole, by_size(part)) for part in zip(*map(_parts, _SCALES), strict=True)]
    turns = f.fadd(_modulo_4(f, x, products[0]), _modulo_4(f, x, products[1]))
    rounded = f.fadd(f.fadd(turns, products[2]), wide(x, ROUNDER))
    rest = f.fadd(f.fsub(turns, f.fsub(rounded, wide(x, ROUNDER))), f.fadd(products[2], products[3]))
    return narrowed(f, f.fmul(rest, wide(x, math.pi / 2))), low_bits(f, rounded)


def _modulo_4(f: Function, x: Value, product: Value) -> Value:
    """Emit a product below 2**52 modulo 4, exactly."""
    rounder = wide(x, ROUNDER)
    fours = f.fsub(f.fadd(f.fmul(product, wide(x, 0.25)), rounder), rounder)
    return f.fsub(product, f.fmul(fours, wide(x, 4.0)))


def _parts(scale: int) -> tuple[float, ...]:
    """Return 2 / pi times 2**scale modulo 4, its bits from 2**1 down, in parts."""
    bits = (_TWO_OVER_PI << scale) % (4 << _BITS)
    parts = []
    for k in range(1, _PARTS + 1):
        low = _BITS + 2 - k * _PART_BITS
        parts.append(math.ldexp(bits >> low, low - _BITS))
        bits %= 1 << low
    return tuple(parts)
