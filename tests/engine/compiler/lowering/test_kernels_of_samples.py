"""Operators that few networks have are no steps of the reference; test_samples.py holds their answers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine import TensorSpec
from tests.engine.graph.build import F32, built, op
from tests.engine.layers.samples import all_samples

SAMPLES = {sample.id: sample for sample in all_samples("layers")}


@pytest.mark.parametrize(
    ("sample", "type"),
    [
        ("linear-nn_Bilinear", "aten::bilinear"),
        ("matmul-addmv_addr_addbmm", "aten::addbmm"),
        ("norm-F_layer_norm", "F.layer_norm"),
        ("norm-F_rms_norm", "F.rms_norm"),
        ("onnx_nodes-gemm_default_matrix_bias_constants", "F.linear"),
        ("mathematics-angle_int", "aten::angle"),
        ("resample-aten_upsample_bicubic2d_aa", "aten::_upsample_bicubic2d_aa"),
        ("conv-F_conv2d", "F.conv2d"),
        ("conv-F_conv_transpose2d", "F.conv_transpose2d"),
    ],
)
def test_it_has_a_kernel(sample: str, type: str, tmp_path: Path) -> None:
    graph = engine.load(*SAMPLES[sample].extract(tmp_path))
    session = engine.Session(graph, backend="compiled", cache=None)
    session.run(SAMPLES[sample].sets[0].inputs)
    rows = [row for row in session.describe()["operators"] if row["type"] == type]
    assert rows and not [row["why"] for row in rows if row.get("why")]


def test_what_is_not_finite_comes_through_norms_with_weights_of_the_run() -> None:
    inputs = [op("pnnx.Input", f"in_{name}", "", name) for name in "xwb"]
    norm = op("F.layer_norm", "norm", "x w b", "y", normalized_shape=(7,), eps=1e-5, labels=("input", "weight", "bias"))
    specs = {f"_{name}": TensorSpec(shape, F32) for name, shape in (("x", (5, 7)), ("w", (7,)), ("b", (7,)))}
    graph = built(*inputs, norm, op("torch.angle", "angle", "y", "z"), op("pnnx.Output", "out", "z"), **specs)
    x = np.random.default_rng(1).standard_normal((5, 7)).astype(F32)
    x[1, 2], x[2, 3] = np.nan, np.inf
    given = [x, np.float32([1, -1, 0, np.inf, -np.inf, np.nan, 2]), np.linspace(-1, 1, 7).astype(F32)]
    with np.errstate(all="ignore"):
        (wanted,) = engine.Session(graph, backend="reference").run(given)
    session = engine.Session(graph, backend="compiled", cache=None)
    np.testing.assert_array_equal(session.run(given)[0], wanted)
    assert not [row for row in session.describe()["operators"] if row.get("why")]
