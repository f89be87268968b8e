"""Operators of onnxruntime's own domain, those with operands that may be left out above all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from tests.engine.onnx_files.operators.example import Draws, Example, ex, of, opt, stored

DOMAIN: Final = "com.microsoft"
_F = np.float32


@of("FastGelu", domain=DOMAIN)
def fast_gelu(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(2, 4), opt(stored(Draws(1).f(4))))


@of("Gelu", "QuickGelu", domain=DOMAIN)
def gelus(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(2, 4))


@of("BiasGelu", domain=DOMAIN)
def bias_gelu(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(2, 4), Draws(1).f(4))


@of("FusedMatMul", "TransposeMatMul", domain=DOMAIN)
def fused_matmul(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for given in ({}, {"transA": 1, "transB": 1, "alpha": 0.5}):
        a, b = (r.f(4, 3), r.f(5, 4)) if given else (r.f(3, 4), r.f(4, 5))
        yield ex(a, stored(b), **given)
        yield ex(a, b, **given)


@of("FusedGemm", domain=DOMAIN)
def fused_gemm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.f(3, 4), stored(r.f(4, 5)), opt(stored(r.f(5))), activation="Relu")
    yield ex(r.f(3, 4), stored(r.f(5, 4)), opt(stored(r.f(5))), activation="Tanh", transB=1, alpha=0.5)


@of("FusedConv", domain=DOMAIN)
def fused_conv(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for name in ("Relu", "Sigmoid"):
        yield ex(r.f(1, 2, 5, 5), stored(r.f(3, 2, 3, 3)), opt(stored(r.f(3))), opt(r.f(1, 3, 3, 3)), activation=name)


@of("SkipLayerNormalization", domain=DOMAIN)
def skip_layer_norm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    operands = [r.f(2, 3, 4), r.f(2, 3, 4), stored(r.f(4)), opt(stored(r.f(4))), opt(stored(r.f(4)))]
    yield ex(*operands)
    yield ex(*operands, epsilon=0.1)


@of("SkipSimplifiedLayerNormalization", domain=DOMAIN)
def skip_rms_norm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.f(2, 3, 4), r.f(2, 3, 4), stored(r.f(4)), opt(stored(r.f(4))))
    yield ex(r.f(2, 3, 4), r.f(2, 3, 4), stored(r.f(4)), opt(stored(r.f(4))), epsilon=0.1)


@of("EmbedLayerNormalization", domain=DOMAIN)
def embed_layer_norm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    words, segments = r.i(2, 3, low=0, high=5, dtype="int32"), r.i(2, 3, low=0, high=2, dtype="int32")
    tables = [stored(r.f(5, 4)), stored(r.f(6, 4)), opt(stored(r.f(2, 4))), stored(r.f(4)), stored(r.f(4))]
    mask, places = np.array([[1, 1, 1], [1, 1, 0]], np.int32), np.array([[0, 1, 2], [2, 1, 0]], np.int32)
    yield ex(words, opt(segments), *tables, opt(mask), opt(places), outputs=2, valid=_segments)
    yield ex(words, opt(segments), *tables, opt(mask), outputs=3, maybe=1, valid=_segments)


def _segments(given: frozenset[int]) -> bool:
    """Return whether segments and their table are given together."""
    return (1 in given) == (4 in given)


@of("Attention", domain=DOMAIN)
def attention(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    mask = np.array([[1, 1, 1], [1, 1, 0]], np.int32)
    for given in ({}, {"unidirectional": 1}, {"scale": 0.3}):
        yield ex(r.f(2, 3, 4), stored(r.f(4, 12)), opt(stored(r.f(12))), opt(mask), num_heads=2, **given)
        yield ex(r.f(2, 3, 4), stored(r.f(4, 12)), opt(stored(r.f(12))), None, None, opt(r.f(2, 2, 3, 3)), num_heads=2,
                 **given)  # fmt: skip
    yield ex(r.f(2, 3, 4), stored(r.f(4, 12)), opt(stored(r.f(12))), None, opt(r.f(2, 2, 2, 2, 2)), outputs=2,
             num_heads=2, unidirectional=1)  # fmt: skip
    yield ex(r.f(2, 3, 4), stored(r.f(4, 12)), opt(stored(r.f(12))), outputs=2, maybe=1, num_heads=2)


@of("QAttention", domain=DOMAIN)
def quantised_attention(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    mask = np.array([[1, 1, 1], [1, 1, 0]], np.int32)
    operands = [r.u8(2, 3, 4), stored(r.u8(4, 12)), stored(r.f(12)), stored(_F(0.01)), stored(_F(0.01)), opt(mask)]
    yield ex(*operands, opt(stored(np.uint8(120))), opt(stored(np.uint8(130))), num_heads=2)


@of("MultiHeadAttention", domain=DOMAIN)
def multi_head(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    mask = np.array([[1, 1, 1], [1, 1, 0]], np.int32)
    qkv = [r.f(2, 3, 8), r.f(2, 3, 8), r.f(2, 3, 8)]
    for given in ({}, {"unidirectional": 1}, {"scale": 0.3}):
        yield ex(*qkv, opt(stored(r.f(24))), opt(mask), opt(r.f(2, 2, 3, 3)), num_heads=2, **given)
    past = [opt(r.f(2, 2, 2, 4)), opt(r.f(2, 2, 2, 4))]
    yield ex(*qkv, opt(stored(r.f(24))), None, opt(r.f(2, 2, 3, 5)), *past, outputs=3, num_heads=2,
             valid=lambda given: 6 in given and 7 in given)  # fmt: skip
    yield ex(r.f(2, 3, 2, 3, 4), num_heads=2)
    yield ex(r.f(2, 3, 8), r.f(2, 3, 2, 2, 4), num_heads=2)


@of("GroupQueryAttention", domain=DOMAIN)
def grouped(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    ends = [np.array([2, 2], np.int32), np.array(3, np.int32)]
    heads: dict[str, Any] = {"num_heads": 2, "kv_num_heads": 1, "outputs": 3}
    yield ex(r.f(2, 3, 16), r.f(2, 3, 8), r.f(2, 3, 8), None, None, *ends, **heads)
    yield ex(r.f(2, 3, 32), None, None, None, None, *ends, **heads)
    angles = [r.f(8, 4), r.f(8, 4)]
    yield ex(r.f(2, 3, 16), r.f(2, 3, 8), r.f(2, 3, 8), None, None, *ends, *angles, do_rotary=1, **heads)
    room = [r.f(2, 1, 4, 8), r.f(2, 1, 4, 8)]
    later = [np.array([4, 3], np.int32), np.array(5, np.int32)]
    yield ex(r.f(2, 1, 16), r.f(2, 1, 8), r.f(2, 1, 8), *room, *later, **heads)
    yield ex(r.f(2, 1, 16), r.f(2, 1, 8), r.f(2, 1, 8), *room, *later, local_window_size=2, softcap=3.0, **heads)


@of("RotaryEmbedding", domain=DOMAIN)
def rotary(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for interleaved in (None, 1):
        yield ex(r.f(2, 3, 8), np.array([[0, 1, 2], [1, 2, 3]]), r.f(5, 2), r.f(5, 2), interleaved=interleaved,
                 num_heads=2)  # fmt: skip
        yield ex(r.f(2, 3, 8), np.array([1]), r.f(5, 4), r.f(5, 4), interleaved=interleaved)


@of("MatMulIntegerToFloat", domain=DOMAIN)
def integer_to_float(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        for scale, zero in ((_F(0.01), np.uint8(120)), (r.p(5), r.u8(5))):
            operands = [make(_F(0.02)), make(scale), opt(make(np.uint8(99))), opt(make(zero)), opt(make(r.f(5)))]
            yield ex(r.u8(3, 4), make(r.u8(4, 5)), *operands)


@of("DynamicQuantizeMatMul", domain=DOMAIN)
def dynamic_matmul(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for scale, zero in ((_F(0.01), np.uint8(120)), (r.p(5), r.u8(5))):
        yield ex(r.f(3, 4), stored(r.u8(4, 5)), stored(scale), opt(stored(zero)), opt(stored(r.f(5))))


@of("DynamicQuantizeLSTM", domain=DOMAIN)
def dynamic_lstm(type: str, version: int) -> Iterator[Example]:
    r, size = Draws(), 4
    weights = [stored(r.u8(1, 4, 4 * size)), stored(r.u8(1, size, 4 * size))]
    steps = [stored(np.full(1, 0.01, _F)), stored(np.full(1, 120, np.uint8))] * 2
    state = (1, 2, size)
    yield ex(r.f(5, 2, 4), *weights, opt(stored(r.f(1, 8 * size))), opt(np.array([5, 3], np.int32)), opt(r.f(*state)),
             opt(r.f(*state)), opt(stored(r.f(1, 3 * size))), *steps, hidden_size=size, outputs=3, maybe=3)  # fmt: skip


@of("MatMulNBits", domain=DOMAIN)
def matmul_n_bits(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    packed, scales, zeros = r.u8(5, 2, 8), r.p(10), r.u8(5)
    sizes = {"K": 32, "N": 5, "bits": 4, "block_size": 16}
    yield ex(r.f(3, 32), stored(packed), stored(scales), opt(stored(zeros)), None, opt(stored(r.f(5))), **sizes)
    for k, n, bits, block in ((40, 3, 4, 16), (70, 2, 8, 32), (129, 4, 4, 128)):
        blocks = -(-k // block)
        rows = -(-blocks * bits // 8)
        yield ex(r.f(2, 1, k), stored(r.u8(n, blocks, block * bits // 8)), stored(r.p(n * blocks)),
                 opt(stored(r.u8(n * rows))), K=k, N=n, bits=bits, block_size=block)  # fmt: skip


@of("QGemm", domain=DOMAIN)
def quantised_gemm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    a, b = (
        [r.u8(3, 4), stored(_F(0.02)), stored(np.uint8(99))],
        [stored(r.u8(4, 5)), stored(_F(0.01)), stored(np.uint8(9))],
    )
    y = [opt(stored(_F(0.05))), opt(stored(np.uint8(100)))]
    yield ex(*a, *b, opt(stored(r.i(5, dtype="int32"))), *y, steps=1, valid=lambda given: (7 in given) == (8 in given))


@of("QLinearAdd", "QLinearMul", domain=DOMAIN)
def quantised_pairs(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    zero = [opt(stored(np.uint8(each))) for each in (99, 30, 120)]
    yield ex(r.u8(3, 4), stored(_F(0.02)), zero[0], r.u8(3, 4), stored(_F(0.03)), zero[1], stored(_F(0.04)), zero[2],
             steps=1)  # fmt: skip


@of("QLinearSigmoid", "QLinearLeakyRelu", domain=DOMAIN)
def quantised_curves(type: str, version: int) -> Iterator[Example]:
    zero = [opt(stored(np.uint8(each))) for each in (99, 30)]
    # onnxruntime ends the process where there are four operands.
    yield ex(Draws().u8(3, 4), stored(_F(0.02)), zero[0], stored(_F(0.01)), zero[1], steps=1,
             valid=lambda given: 4 in given)  # fmt: skip


@of("QLinearGlobalAveragePool", "QLinearAveragePool", "QLinearSoftmax", domain=DOMAIN)
def quantised_pools(type: str, version: int) -> Iterator[Example]:
    zero = [opt(stored(np.uint8(each))) for each in (99, 30)]
    given: dict[str, Any] = {"QLinearAveragePool": {"kernel_shape": [2, 2]}, "QLinearSoftmax": {"opset": 13}}.get(
        type, {}
    )
    yield ex(Draws().u8(1, 2, 4, 4), stored(_F(0.02)), zero[0], stored(_F(0.02)), zero[1], steps=1, **given)


@of("QLinearConcat", domain=DOMAIN)
def quantised_concat(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    a, b = ([r.u8(2, 3), stored(_F(each)), stored(np.uint8(9))] for each in (0.02, 0.03))
    yield ex(stored(_F(0.03)), stored(np.uint8(7)), *a, *b, axis=1, steps=1)


@of("QuantizeLinear", "DequantizeLinear", domain=DOMAIN)
def quantising(type: str, version: int) -> Iterator[Example]:
    x = Draws().f(3, 4) if type == "QuantizeLinear" else Draws().u8(3, 4)
    yield ex(x, stored(_F(0.02)), opt(stored(np.uint8(99))))
    yield ex(x, _F(0.02), opt(np.uint8(99)))


@of("Trilu", domain=DOMAIN)
def trilu(type: str, version: int) -> Iterator[Example]:
    for upper in (None, 0):
        yield ex(Draws().f(3, 4), opt(stored(np.array(1))), upper=upper)
