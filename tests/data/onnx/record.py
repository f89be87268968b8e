"""Record what onnxruntime makes of operators of its own domain (needs the extra bench)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

RANDOM = np.random.default_rng(1)
DOMAIN = "com.microsoft"


def f(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype(np.float32)


def q(*shape: int) -> Any:
    return RANDOM.integers(0, 200, shape).astype(np.uint8)


def s(value: float) -> Any:
    return np.array(value, np.float32)


def u(value: int) -> Any:
    return np.array(value, np.uint8)


def x(value: Any) -> tuple[str, Any]:
    return "x", value


def c(value: Any) -> tuple[str, Any]:
    return "c", value


PAIR = [x(q(3, 4)), c(s(0.05)), c(u(100)), x(q(3, 4)), c(s(0.03)), c(u(90)), c(s(0.1)), c(u(110))]
PACKED = RANDOM.integers(0, 255, (6, 2, 8)).astype(np.uint8)
BITS = {"N": 6, "K": 32, "bits": 4, "block_size": 16}
QKV = [x(f(2, 4, 8)), c(f(8, 24)), c(f(24))]
WORDS = [x(RANDOM.integers(0, 9, (2, 4)).astype(np.int32)), x(RANDOM.integers(0, 2, (2, 4)).astype(np.int32))]
# Name -> operator, its operands (inputs x and constants c), number of results, attributes.
CASES: dict[str, tuple[str, list[tuple[str, Any]], int, dict[str, Any]]] = {
    "FusedMatMul": ("FusedMatMul", [x(f(2, 5, 3)), c(f(2, 5, 4))], 1, {"transA": 1, "alpha": 0.5}),
    "FusedMatMulB": ("FusedMatMul", [x(f(2, 3, 5)), c(f(4, 5))], 1, {"transB": 1}),
    "FusedConv": ("FusedConv", [x(f(1, 2, 6, 6)), c(f(3, 2, 3, 3)), c(f(3))], 1, {"activation": "Relu", "pads": [1] * 4}),
    "FusedGemm": ("FusedGemm", [x(f(2, 3)), c(f(3, 4)), c(f(4))], 1, {"activation": "Relu"}),
    "Gelu": ("Gelu", [x(f(3, 4))], 1, {}),
    "BiasGelu": ("BiasGelu", [x(f(3, 4)), c(f(4))], 1, {}),
    "FastGelu": ("FastGelu", [x(f(3, 4)), c(f(4))], 1, {}),
    "QuickGelu": ("QuickGelu", [x(f(3, 4))], 1, {"alpha": 1.702}),
    "SkipLayerNormalization": (
        "SkipLayerNormalization", [x(f(2, 3, 8)), x(f(2, 3, 8)), c(f(8)), c(f(8)), c(f(8))], 1, {"epsilon": 1e-5}
    ),
    "SkipSimplified": (
        "SkipSimplifiedLayerNormalization", [x(f(2, 3, 8)), x(f(2, 3, 8)), c(f(8))], 1, {"epsilon": 1e-5}
    ),
    "Embed": (
        "EmbedLayerNormalization", [*WORDS, c(f(9, 8)), c(f(6, 8)), c(f(2, 8)), c(f(8)), c(f(8))], 2, {"epsilon": 1e-5}
    ),
    "Attention": ("Attention", QKV, 1, {"num_heads": 2}),
    "AttentionMask": (
        "Attention", [*QKV, x(np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32))], 1, {"num_heads": 2}
    ),
    "AttentionCausal": ("Attention", QKV, 1, {"num_heads": 2, "unidirectional": 1}),
    "MultiHeadAttention": (
        "MultiHeadAttention", [x(f(2, 4, 8)), x(f(2, 5, 8)), x(f(2, 5, 8)), c(f(24))], 1, {"num_heads": 2}
    ),
    "MatMulNBits": ("MatMulNBits", [x(f(3, 32)), c(PACKED), c(f(12))], 1, BITS),
    "MatMulNBitsZero": ("MatMulNBits", [x(f(3, 32)), c(PACKED), c(f(12)), c(q(6))], 1, BITS),
    "QLinearAdd": ("QLinearAdd", PAIR, 1, {}),
    "QLinearMul": ("QLinearMul", PAIR, 1, {}),
    "QLinearSigmoid": ("QLinearSigmoid", [*PAIR[:3], c(s(1 / 256)), c(u(0))], 1, {}),
    "QLinearLeakyRelu": ("QLinearLeakyRelu", [*PAIR[:3], c(s(0.05)), c(u(50))], 1, {"alpha": 0.1}),
    "QLinearGlobalAveragePool": (
        "QLinearGlobalAveragePool", [x(q(1, 3, 4, 4)), c(s(0.05)), c(u(100)), c(s(0.05)), c(u(90))], 1, {}
    ),
    "QLinearConcat": (
        "QLinearConcat",
        [c(s(0.1)), c(u(90)), x(q(2, 3)), c(s(0.05)), c(u(100)), x(q(2, 3)), c(s(0.07)), c(u(90))], 1, {"axis": 1},
    ),
    "MatMulIntegerToFloat": (
        "MatMulIntegerToFloat", [x(q(3, 4)), c(q(4, 5)), c(s(0.05)), c(f(5)), c(u(100)), c(q(5)), c(f(5))], 1, {}
    ),
    "DynamicQuantizeMatMul": (
        "DynamicQuantizeMatMul", [x(f(3, 4)), c(q(4, 5)), c(s(0.05)), c(u(100)), c(f(5))], 1, {}
    ),
}  # fmt: skip


def i(*values: Any) -> Any:
    return np.array(values, np.int32)


def n(value: int) -> tuple[str, Any]:
    return "x", np.array(value, np.int32)


NO = ("", None)
TWO, PAST = {"num_heads": 2}, [x(f(2, 2, 5, 4)), x(f(2, 2, 5, 4))]
NEW = [x(f(2, 3, 8)), x(f(2, 3, 8)), x(f(2, 3, 8))]
GROUPS = {"num_heads": 4, "kv_num_heads": 2}
GROUPED = [x(f(2, 3, 64)), x(f(2, 3, 32)), x(f(2, 3, 32))]
FIRST = [NO, NO, x(i(2, 2)), n(3)]
LATER = [x(f(1, 3, 64)), x(f(1, 3, 32)), x(f(1, 3, 32)), x(f(1, 2, 5, 16)), x(f(1, 2, 5, 16)), x(i(7)), n(8)]
STEP = [x(f(2, 1, 64)), x(f(2, 1, 32)), x(f(2, 1, 32)), x(f(2, 2, 5, 16)), x(f(2, 2, 5, 16)), x(i(5, 3)), n(6)]
ANGLES, WIDE = [c(f(9, 2)), c(f(9, 2))], [c(f(9, 8)), c(f(9, 8))]
CODED = [x(q(2, 4, 8)), c(q(8, 24)), c(f(24)), c(s(0.02)), c(s(0.03)), NO, c(u(99)), c(u(101))]
GEMM = [
    x(q(3, 4)),
    c(s(0.05)),
    c(u(100)),
    c(q(4, 5)),
    c(s(0.03)),
    c(u(90)),
    c(RANDOM.integers(-99, 99, 5).astype(np.int32)),
]
LSTM = [x(f(6, 1, 8)), c(q(1, 8, 64)), c(q(1, 16, 64)), c(f(1, 128)), NO, x(f(1, 1, 16)), x(f(1, 1, 16)),
        NO, c(s(0.004).reshape(1)), c(u(98).reshape(1)), c(s(0.005).reshape(1)), c(u(102).reshape(1))]  # fmt: skip
CASES |= {
    "MultiHeadPast": ("MultiHeadAttention", [*NEW, NO, NO, NO, *PAST], 3, TWO),
    "MultiHeadPastCausal": ("MultiHeadAttention", [*NEW, c(f(24)), NO, NO, *PAST], 3, {**TWO, "unidirectional": 1}),
    "MultiHeadPastMask": ("MultiHeadAttention", [*NEW, NO, x(np.tri(2, 8, 5, dtype=np.int32)), NO, *PAST], 3, TWO),
    "MultiHeadCross": ("MultiHeadAttention", [x(f(2, 4, 8)), *PAST], 1, TWO),
    "MultiHeadLengths": ("MultiHeadAttention", [*NEW, NO, x(i(2, 3)), x(f(2, 2, 3, 3))], 1, TWO),
    "AttentionPast": ("Attention", [*QKV, NO, x(f(2, 2, 2, 5, 4))], 2, {**TWO, "unidirectional": 1}),
    "AttentionMasks": ("Attention", [*QKV, x(np.tri(2, 4, 2, dtype=np.int32)), NO, x(f(2, 2, 4, 4))], 1, TWO),
    "AttentionCausalMask": (
        "Attention", [*QKV, x(np.tri(2, 4, 2, dtype=np.int32))], 1, {**TWO, "unidirectional": 1}
    ),
    "AttentionSizes": ("Attention", [x(f(2, 4, 8)), c(f(8, 20)), c(f(20))], 1, {**TWO, "qkv_hidden_sizes": [8, 8, 4]}),
    "QAttention": ("QAttention", CODED, 1, TWO),
    "QAttentionCausal": ("QAttention", CODED, 1, {**TWO, "unidirectional": 1}),
    "Rotary": ("RotaryEmbedding", [x(f(2, 3, 8)), x(np.array([4])), *ANGLES], 1, {}),
    "RotaryPlaces": ("RotaryEmbedding", [x(f(2, 3, 8)), x(RANDOM.integers(0, 9, (2, 3))), *ANGLES], 1, {"interleaved": 1}),
    "RotaryHeads": ("RotaryEmbedding", [x(f(2, 2, 3, 4)), x(RANDOM.integers(0, 9, (2, 3))), *ANGLES], 1, {}),
    "RotaryPart": (
        "RotaryEmbedding", [x(f(2, 3, 12)), x(np.array([1])), *ANGLES], 1, {"rotary_embedding_dim": 4, "num_heads": 2}
    ),
    "Grouped": ("GroupQueryAttention", [*GROUPED, *FIRST], 3, GROUPS),
    "GroupedLater": ("GroupQueryAttention", LATER, 3, {**GROUPS, "scale": 0.7, "softcap": 2.0}),
    "GroupedPacked": ("GroupQueryAttention", [x(f(2, 3, 128)), NO, NO, *FIRST], 3, GROUPS),
    "GroupedRotary": ("GroupQueryAttention", [*LATER, *WIDE], 3, {**GROUPS, "do_rotary": 1}),
    "GroupedPairs": (
        "GroupQueryAttention", [*GROUPED, *FIRST, *WIDE], 3, {**GROUPS, "do_rotary": 1, "rotary_interleaved": 1}
    ),
    "GroupedWindow": ("GroupQueryAttention", LATER, 3, {**GROUPS, "local_window_size": 3}),
    "GroupedSmooth": ("GroupQueryAttention", LATER, 3, {**GROUPS, "smooth_softmax": 1}),
    "GroupedLengths": ("GroupQueryAttention", [*STEP, *WIDE], 3, {**GROUPS, "do_rotary": 1}),
    "QGemm": ("QGemm", GEMM, 1, {"alpha": 0.5}),
    "QGemmCodes": ("QGemm", [*GEMM, c(s(0.09)), c(u(120))], 1, {}),
    "QLinearSoftmax": ("QLinearSoftmax", [*PAIR[:3], c(s(1 / 256)), c(u(0))], 1, {"axis": -1, "opset": 13}),
    "DynamicQuantizeLSTM": ("DynamicQuantizeLSTM", LSTM, 3, {"hidden_size": 16}),
    "QLinearAveragePool": (
        "QLinearAveragePool", [x(q(1, 3, 5, 4)), c(s(0.05)), c(u(100)), c(s(0.03)), c(u(90))], 1,
        {"kernel_shape": [3, 3], "pads": [0, 1, 1, 0], "strides": [2, 1]},
    ),
}  # fmt: skip

MANY = [name for name, (_, _, count, _) in CASES.items() if count > 1 and name != "Embed"]


def main() -> None:
    import onnxruntime
    from onnx import helper, numpy_helper

    saved: dict[str, Any] = {}
    for name, (type, operands, count, attributes) in CASES.items():
        names = [f"i{k}" if kind else "" for k, (kind, _) in enumerate(operands)]
        feeds = {each: array for each, (kind, array) in zip(names, operands, strict=True) if kind == "x"}
        inputs = [
            helper.make_tensor_value_info(each, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for each, array in feeds.items()
        ]
        weights = [
            numpy_helper.from_array(array, each)
            for each, (kind, array) in zip(names, operands, strict=True)
            if kind == "c"
        ]
        node = helper.make_node(type, names, [f"o{k}" for k in range(count)], domain=DOMAIN, **attributes)
        results = [helper.make_empty_tensor_value_info(f"o{k}") for k in range(count if name in MANY else 1)]
        graph = helper.make_graph([node], "graph", inputs, results, weights)
        sets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
        content = helper.make_model(graph, opset_imports=sets, ir_version=9).SerializeToString()
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        saved[f"{name}.model"] = np.frombuffer(content, np.uint8)
        found = session.run(None, feeds)
        saved |= {f"{name}.y{k or ''}": each for k, each in enumerate(found)}
        saved.update({f"{name}.{each}": array for each, array in feeds.items()})
    np.savez_compressed(Path(__file__).with_name("contrib.npz"), **saved)


if __name__ == "__main__":
    main()
