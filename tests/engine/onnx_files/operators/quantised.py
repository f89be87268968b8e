"""Integers that stand for floats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.engine.onnx_files.operators.example import Draws, Example, ex, of, opt, stored

_F = np.float32


@of("QuantizeLinear")
def quantize(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    x = r.f(3, 4) * 50
    for make in (stored, np.asarray):
        for dtype in (np.uint8, np.int8):
            yield ex(x, make(_F(0.5)), opt(make(np.array(7, dtype))))
        if version >= 13:
            yield ex(x, make(np.array([0.5, 1, 2], _F)), opt(make(np.array([1, 2, 3], np.uint8))), axis=0)
            yield ex(r.f(3, 4) * 9, make(np.array([0.5, 1, 2, 3], _F)), opt(make(np.array([1, 2, 3, 4], np.int8))))
    if version >= 19:
        big = np.array([0, 1, -3, 1e3, -1e6], _F)
        for saturate in (None, 0, 1):
            yield ex(big, stored(_F(1)), stored(np.array(0, ml_dtypes.float8_e4m3fn)), saturate=saturate)
    if version >= 21:
        for dtype in (np.uint16, np.int16):
            yield ex(x, stored(_F(0.5)), opt(stored(np.array(7, dtype))))
        yield ex(x, stored(_F(0.5)), output_dtype=3)
        yield ex(x, stored(r.p(3, 2)), opt(stored(r.u8(3, 2))), block_size=2, axis=1)
        yield ex(x, stored(r.p(3, 2)), opt(stored(r.u8(3, 2))), block_size=2)


@of("DequantizeLinear")
def dequantize(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        yield ex(r.u8(3, 4), make(_F(0.5)), opt(make(np.uint8(7))))
        yield ex(r.i8(3, 4), make(_F(0.5)), opt(make(np.int8(-7))))
        yield ex(r.i(3, 4, dtype="int32"), make(_F(0.5)))
        if version >= 13:
            yield ex(r.u8(3, 4), make(r.p(3)), opt(make(r.u8(3))), axis=0)
            yield ex(r.u8(3, 4), make(r.p(4)), opt(make(r.u8(4))))
    if version >= 21:
        yield ex(r.u8(3, 4), stored(r.p(3, 2)), opt(stored(r.u8(3, 2))), block_size=2, axis=1)
        yield ex(r.i(3, 4, dtype="int16"), stored(_F(0.5)), opt(stored(np.int16(7))))


@of("DynamicQuantizeLinear")
def dynamic_quantize(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(3, 4), outputs=3)


@of("MatMulInteger")
def matmul_integer(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        for a, b in ((r.u8, r.u8), (r.u8, r.i8), (r.i8, r.i8)):
            zeros = [opt(make(a(1).reshape(()))), opt(make(b(1).reshape(())))]
            yield ex(a(3, 4), make(b(4, 5)), *zeros)
        yield ex(r.u8(3, 4), make(r.u8(4, 5)), opt(make(np.uint8(9))), opt(make(r.u8(5))))


@of("ConvInteger")
def conv_integer(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        for given in ({}, {"pads": [1, 1, 1, 1]}, {"strides": [2, 2]}, {"auto_pad": "SAME_UPPER"}):
            yield ex(r.u8(1, 2, 5, 5), make(r.u8(3, 2, 3, 3)), opt(make(np.uint8(9))), opt(make(np.uint8(5))), **given)
        yield ex(r.u8(1, 2, 5, 5), make(r.u8(3, 2, 3, 3)), opt(make(np.uint8(9))), opt(make(r.u8(3))))


def _scaled(make: Any, zero: Any, scale: float = 0.02) -> list[Any]:
    return [make(_F(scale)), make(zero)]


@of("QLinearMatMul")
def qlinear_matmul(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        for kind, zero in ((r.u8, np.uint8(7)), (r.i8, np.int8(-3))):
            a, b, y = (_scaled(make, zero, scale) for scale in (0.02, 0.02, 0.5))
            yield ex(kind(3, 4), *a, make(kind(4, 5)), *b, *y, steps=1)


@of("QLinearConv")
def qlinear_conv(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        for given in ({}, {"pads": [1, 1, 1, 1]}, {"strides": [2, 2]}, {"auto_pad": "SAME_UPPER"}):
            x = [r.u8(1, 2, 5, 5), *_scaled(make, np.uint8(7))]
            w = [make(r.u8(3, 2, 3, 3)), *_scaled(make, np.uint8(100))]
            bias = opt(make(r.i(3, low=-900, high=900, dtype="int32")))
            yield ex(*x, *w, *_scaled(make, np.uint8(99), 0.5), bias, steps=1, **given)
        w = [make(r.i8(3, 2, 3, 3)), make(r.p(3)), make(np.zeros(3, np.int8))]
        yield ex(r.u8(1, 2, 5, 5), *_scaled(make, np.uint8(7)), *w, *_scaled(make, np.uint8(99), 2.0),
                 opt(make(r.i(3, dtype="int32"))), steps=1)  # fmt: skip
