"""Quantised tensors keep their scale and zero point between layers, beside kernels."""

from __future__ import annotations

import numpy as np

from engine import Session
from engine.graph import execute
from tests.engine.graph.build import F32, INPUT, built, op


def test_a_quantised_tensor_passes_from_layer_to_layer_between_kernels() -> None:
    graph = built(
        INPUT,
        op("F.relu", "relu", "0", "1"),
        op("nn.quantized.Quantize", "quant", "1", "2", dtype="torch.quint8", scale=0.03, zero_point=12),
        op("Tensor.reshape", "turned", "2", "3", shape=(4, 3)),
        op("nn.quantized.DeQuantize", "dequant", "3", "4"),
        op("torch.sin", "sin", "4", "9"),
        op("pnnx.Output", "out", "9"),
        op("pnnx.Output", "integers", "3"),
        _0=(3, 4),
    )
    x = np.linspace(-1, 1, 12, dtype=F32).reshape(3, 4)
    found = Session(graph, backend="compiled", threads=1, cache=None).run([x])
    for mine, theirs in zip(found, execute(graph.plan, [x]), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
