"""The entry for ONNX's scoreboard answers as ``onnx.backend.base`` asks."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")

import onnx

from benchmarks.onnx_scoreboard import backend


def test_a_prepared_model_runs_and_lists_the_items_of_a_sequence() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y, seq(float[2]) parts, float[4] z)
        <int64 two = {2}> { y = Neg (x) parts = SplitToSequence (x, two) z = Abs (y) }"""
    x = np.arange(4, dtype=np.float32)
    y, parts, z = backend.prepare(onnx.parser.parse_model(text)).run([x])
    np.testing.assert_array_equal(y, -x)
    np.testing.assert_array_equal(parts, x.reshape(2, 2))
    np.testing.assert_array_equal(z, x)


def test_a_single_operator_runs_on_the_processor_only() -> None:
    (y,) = backend.run_node(onnx.helper.make_node("Relu", ["x"], ["y"]), [np.array([-1, 2], np.float32)])
    np.testing.assert_array_equal(y, [0, 2])
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA")
