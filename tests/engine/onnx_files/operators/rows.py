"""Reductions, normalisations, losses, products, attention, recurrent networks, spectra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tests.engine.onnx_files.operators.example import Draws, Example, ex, of, opt, stored


@of("Softmax", "LogSoftmax", "Hardmax")
def along_axis(type: str, version: int) -> Iterator[Example]:
    for axis in (None, 0, 1, 2, *([-1, -2] if version >= 11 else [])):
        yield ex(Draws().f(2, 3, 4), axis=axis)


@of("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare")  # fmt: skip
def reductions(type: str, version: int) -> Iterator[Example]:
    x = Draws().p(2, 3, 4)
    as_operand = version >= (13 if type == "ReduceSum" else 18)
    given = [[1], [0, 2]] + ([[-1]] if version >= 11 else [])
    for keepdims in (None, 0):
        for axes in given:
            if not as_operand:
                yield ex(x, axes=axes, keepdims=keepdims)
                continue
            for make in (stored, np.asarray):
                for noop in (None, 1):
                    yield ex(x, opt(make(axes)), keepdims=keepdims, noop_with_empty_axes=noop)
    if not as_operand:
        yield ex(x)
    else:
        yield ex(x, stored(np.zeros(0, np.int64)))
        yield ex(x, stored(np.zeros(0, np.int64)), noop_with_empty_axes=1)
    yield ex(Draws().i(2, 3, low=1, dtype="int32"), *([stored([1])] if as_operand else []),
             **({} if as_operand else {"axes": [1]}))  # fmt: skip
    if type in ("ReduceMax", "ReduceMin") and version >= 20:
        yield ex(Draws().b(2, 3), stored([1]))


@of("BatchNormalization")
def batch_norm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    x, given = r.f(2, 3, 4, 5), [r.f(3), r.f(3), r.f(3), r.p(3)]
    more: dict[str, Any] = {"is_test": 1} if version < 7 else {}
    for make in (stored, np.asarray):
        yield ex(x, *map(make, given), **more)
        yield ex(x, *map(make, given), epsilon=0.1, momentum=0.5, **more)
    yield ex(r.f(2, 3), *map(stored, given), **more)
    if version < 9:
        yield ex(x, *map(stored, given), spatial=1, **more)


@of("InstanceNormalization")
def instance_norm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        for epsilon in (None, 0.1):
            yield ex(r.f(2, 3, 4, 5), make(r.f(3)), make(r.f(3)), epsilon=epsilon)


@of("GroupNormalization")
def group_norm(type: str, version: int) -> Iterator[Example]:
    r, count = Draws(), 2 if version < 21 else 4
    for make in (stored, np.asarray):
        for epsilon in (None, 0.1):
            yield ex(r.f(2, 4, 5), make(r.f(count)), make(r.f(count)), num_groups=2, epsilon=epsilon)


@of("LayerNormalization")
def layer_norm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        for axis, shape in ((None, (4,)), (1, (3, 4)), (-2, (3, 4)), (0, (2, 3, 4))):
            yield ex(r.f(2, 3, 4), make(r.f(*shape)), opt(make(r.f(*shape))), outputs=3, maybe=2, axis=axis)
    yield ex(r.f(2, 3, 4), r.f(4), opt(r.f(4)), outputs=3, maybe=2, epsilon=0.1)
    yield ex(r.f(1, 1, 1), r.f(1), opt(r.f(1)), outputs=3, maybe=2)


@of("RMSNormalization")
def rms_norm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for axis, shape in ((None, (4,)), (1, (3, 4))):
        yield ex(r.f(2, 3, 4), stored(r.f(*shape)), axis=axis)
        yield ex(r.f(2, 3, 4), r.f(*shape), axis=axis, epsilon=0.1)


@of("LRN")
def lrn(type: str, version: int) -> Iterator[Example]:
    for given in ({}, {"alpha": 0.1, "beta": 0.5, "bias": 2.0}):
        for size in (2, 3):
            yield ex(Draws().f(1, 5, 2, 2), size=size, **given)


@of("LpNormalization")
def lp_norm(type: str, version: int) -> Iterator[Example]:
    for given in ({}, {"p": 1}, {"axis": 0}, {"axis": 1, "p": 2}):
        yield ex(Draws().f(3, 4), **given)


@of("MeanVarianceNormalization")
def mean_variance(type: str, version: int) -> Iterator[Example]:
    for axes in (None, [0, 1], [2]):
        yield ex(Draws().f(2, 3, 4, 5), axes=axes)


@of("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    log = {"outputs": 2, "maybe": 1} if type == "SoftmaxCrossEntropyLoss" else {}
    for reduction in (None, "none", "sum", "mean"):
        for ignored in (None, 1):
            yield ex(r.f(3, 4), np.array([0, 1, 3]), opt(r.p(4)), reduction=reduction, ignore_index=ignored, **log)
    yield ex(r.f(2, 4, 2), np.array([[0, 1], [3, 2]]), opt(r.p(4)), **log)


@of("Gemm")
def gemm(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    maybe = opt if version >= 11 else (lambda each: each)
    more = {"broadcast": 1} if version < 7 else {}
    for make in (stored, np.asarray):
        for shape in ((5,), (3, 5), (1, 5), (1,)):
            yield ex(r.f(3, 4), make(r.f(4, 5)), maybe(make(r.f(*shape))), **more)
        yield ex(r.f(4, 3), make(r.f(5, 4)), maybe(make(r.f(5))), transA=1, transB=1, alpha=0.5, beta=2.0, **more)


@of("MatMul")
def matmul(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for make in (stored, np.asarray):
        yield ex(r.f(3, 4), make(r.f(4, 5)))
        yield ex(r.f(2, 3, 4), make(r.f(4)))
        yield ex(r.f(4), make(r.f(2, 4, 3)))
    if version >= 9:
        yield ex(r.i(3, 4, dtype="int32"), r.i(4, 2, dtype="int32"))


@of("Einsum")
def einsum(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    yield ex(r.f(3, 4), r.f(4, 5), equation="ij,jk->ik")
    yield ex(r.f(2, 3, 3), equation="bii->bi")


@of("Det")
def det(type: str, version: int) -> Iterator[Example]:
    yield ex(Draws().f(2, 3, 3))


def _pairs(given: frozenset[int]) -> bool:
    """Return whether keys of earlier steps come with values, and without lengths of padded ones."""
    return (4 in given) == (5 in given) and not (4 in given and 6 in given)


@of("Attention")
def attention(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    q, k, v = r.f(2, 2, 3, 4), r.f(2, 2, 3, 4), r.f(2, 2, 3, 4)
    past = [opt(r.f(2, 2, 2, 4)), opt(r.f(2, 2, 2, 4))]
    lengths = [opt(np.array([3, 2]))] if version >= 24 else []
    some: dict[str, Any] = {"outputs": 4, "maybe": 3, "valid": _pairs}
    for causal in (None, 1):
        # With keys of earlier steps in front the mask is wider.
        yield ex(q, k, v, opt(r.f(3, 3)), None, None, *lengths, is_causal=causal, **some)
        yield ex(
            q,
            k,
            v,
            opt(r.f(3, 5)),
            *past,
            is_causal=causal,
            **{**some, "valid": lambda given: 4 in given and 5 in given},
        )
    yield ex(q, k, v, opt(r.b(3, 3) | np.eye(3, dtype=bool)), scale=0.3, softcap=2.0, **some)
    flat = r.f(2, 3, 8)
    yield ex(flat, r.f(2, 3, 8), r.f(2, 3, 8), opt(r.f(3, 3)), q_num_heads=2, kv_num_heads=2, **some)
    for mode in (1, 2, 3):
        yield ex(q, k, v, opt(r.f(3, 3)), qk_matmul_output_mode=mode, **some)
    yield ex(r.f(2, 4, 3, 4), k, v, opt(r.f(3, 3)), **some)
    if version >= 25:
        yield ex(q, k, v, opt(r.f(3, 3)), left_window_size=1, **some)


@of("RotaryEmbedding")
def rotary(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for interleaved in (None, 1):
        yield ex(r.f(2, 2, 3, 4), r.f(5, 2), r.f(5, 2), np.array([[0, 1, 2], [2, 3, 4]]), interleaved=interleaved)
        yield ex(r.f(2, 2, 3, 4), r.f(2, 3, 2), r.f(2, 3, 2), interleaved=interleaved)
        yield ex(r.f(2, 3, 8), r.f(2, 3, 2), r.f(2, 3, 2), interleaved=interleaved, num_heads=2)
    yield ex(r.f(2, 2, 3, 6), r.f(5, 2), r.f(5, 2), np.array([[0, 1, 2], [2, 3, 4]]), rotary_embedding_dim=4)


@of("CausalConvWithState")
def causal_conv(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for activation in (None, "silu"):
        yield ex(r.f(2, 3, 5), r.f(3, 1, 3), opt(r.f(3)), opt(r.f(2, 3, 2)), outputs=2, activation=activation)


@of("LinearAttention")
def linear_attention(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    operands = [r.f(2, 3, 8), r.f(2, 3, 8), r.f(2, 3, 8)]
    for rule in (None, "linear"):
        yield ex(*operands, opt(r.f(2, 2, 4, 4)), q_num_heads=2, kv_num_heads=2, update_rule=rule, outputs=2)


_GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@of("LSTM", "GRU", "RNN")
def recurrent(type: str, version: int) -> Iterator[Example]:
    r, gates, size = Draws(), _GATES[type], 3
    results = 3 if type == "LSTM" else 2

    def operands(make: Any, directions: int = 1, *, layout: int = 0) -> list[Any]:
        x = r.f(2, 5, 4) if layout else r.f(5, 2, 4)
        state = (2, directions, size) if layout else (directions, 2, size)
        found: list[Any] = [x, make(r.f(directions, gates * size, 4)), make(r.f(directions, gates * size, size))]
        found += [opt(make(r.f(directions, 2 * gates * size))), opt(np.array([5, 3], np.int32)), opt(r.f(*state))]
        return found + ([opt(r.f(*state)), opt(make(r.f(directions, 3 * size)))] if type == "LSTM" else [])

    some: dict[str, Any] = {"hidden_size": size, "outputs": results, "maybe": results, "valid": _some_subsets}
    old: dict[str, Any] = {"output_sequence": 1} if version < 7 else {}
    for make in (stored, np.asarray):
        yield ex(*operands(make), **{**some, "valid": None}, **old)
    # Of versions before 3 the schema has a default that is no direction.
    for direction in ("forward", "reverse"):
        yield ex(*operands(stored), direction=direction, **some, **old)
    yield ex(*operands(stored, 2), direction="bidirectional", **some, **old)
    if type == "GRU" and version >= 3:
        yield ex(*operands(stored), linear_before_reset=1, **some, **old)
    if version >= 14:
        yield ex(*operands(stored, layout=1), layout=1, **some)
    yield ex(*operands(stored), clip=0.5, **some, **old)


def _some_subsets(given: frozenset[int]) -> bool:
    """Return whether all operands are given, or none or the first of the optional ones."""
    return len(given) in (3, 8) or given in (
        frozenset({0, 1, 2, 3}),
        frozenset({0, 1, 2, 5}),
        frozenset({0, 1, 2, 3, 5}),
    )


@of("DFT")
def dft(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for x in (r.f(2, 8, 1), r.f(2, 8, 2), r.f(2, 3, 8, 1)):
        for given in ({}, {"inverse": 1}, {"onesided": 1}):
            if given.get("onesided") and x.shape[-1] == 2:
                continue
            for make in (stored, np.asarray):
                for length in (6, 8, 10, 1):
                    if version < 20:
                        yield ex(x, opt(make(np.array(length))), axis=1, **given)
                    else:
                        yield ex(x, opt(make(np.array(length))), opt(make(np.array(1))), **given)
    if version < 20:
        yield ex(r.f(2, 3, 8, 1))


@of("STFT")
def stft(type: str, version: int) -> Iterator[Example]:
    r = Draws()
    for onesided in (None, 0, 1):
        for make in (stored, np.asarray):
            yield ex(r.f(2, 16, 1), make(np.array(4)), opt(make(r.p(8))), opt(make(np.array(8))), onesided=onesided,
                     valid=lambda given: 2 in given or 3 in given)  # fmt: skip


@of("HannWindow", "HammingWindow", "BlackmanWindow")
def windows(type: str, version: int) -> Iterator[Example]:
    for given in ({}, {"periodic": 0}, {"output_datatype": 11}):
        yield ex(stored(np.array(8)), **given)
        yield ex(np.array(8), **given)


@of("MelWeightMatrix")
def mel(type: str, version: int) -> Iterator[Example]:
    operands = [np.array(8), np.array(16), np.array(8000), np.float32(0), np.float32(4000)]
    for given in ({}, {"output_datatype": 11}):
        yield ex(*map(stored, operands), **given)
        yield ex(*operands, **given)
