"""Parameters that ask for loops and memory of no use: refused when the graph is built, before anything needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import EngineError, TensorSpec
from engine.limits import check_results
from tests.engine.layers.refusals import build, tensor

MOST = 2**31 - 1
SIGNAL, IMAGE, VECTOR = tensor(1, 2, 50), tensor(1, 2, 9, 9), tensor(8)
WEIGHTS = {
    "weight_ih_l0": tensor(16, 3),
    "weight_hh_l0": tensor(16, 4),
    "bias_ih_l0": tensor(16),
    "bias_hh_l0": tensor(16),
}

ABSURD: list[tuple[str, tuple[object, ...], dict[str, Any], dict[str, TensorSpec]]] = [
    ("nn.LSTM", (tensor(5, 2, 3),), {"input_size": 3, "hidden_size": 4, "num_layers": 2**32}, WEIGHTS),
    ("nn.LSTM", (tensor(5, 2, 3),), {"input_size": 3, "hidden_size": 4, "num_layers": 4000}, WEIGHTS),
    ("nn.Conv2d", (IMAGE,), {"padding": (MOST, MOST), "stride": (MOST, MOST)}, {"weight": tensor(2, 2, 3, 3)}),
    ("nn.Conv2d", (IMAGE,), {"padding": (10**6, 10**6), "stride": (10**6, 10**6)}, {"weight": tensor(2, 2, 3, 3)}),
    ("nn.Conv2d", (IMAGE,), {"padding": "same", "dilation": (10**6, 10**6)}, {"weight": tensor(2, 2, 3, 3)}),
    ("nn.ConvTranspose1d", (SIGNAL,), {"stride": 10**9, "padding": 49 * 10**9 // 2}, {"weight": tensor(2, 2, 3)}),
    ("nn.ConvTranspose1d", (SIGNAL,), {"stride": 10**8, "padding": 49 * 10**8 // 2}, {"weight": tensor(2, 2, 3)}),
    ("F.max_pool2d", (IMAGE,), {"kernel_size": MOST, "padding": MOST // 2}, {}),
    ("F.max_pool2d", (IMAGE,), {"kernel_size": 2000, "padding": 1000, "return_indices": True}, {}),
    ("F.avg_pool1d", (SIGNAL,), {"kernel_size": 10**8, "padding": 5 * 10**7, "ceil_mode": True}, {}),
    ("F.unfold", (IMAGE,), {"kernel_size": (3, 3), "padding": (10**6, 10**6), "stride": (10**6, 10**6)}, {}),
    ("torchvision.ops.RoIAlign", (tensor(1, 2, 8, 8), tensor(1, 5)), {"output_size": 2, "sampling_ratio": 10**6}, {}),
    ("torch.tensor_split", (VECTOR,), {"sections": 2**62}, {}),
    ("torch.chunk", (tensor(0),), {"chunks": 2**62}, {}),
    ("torch.repeat_interleave", (VECTOR,), {"repeats": 0.5}, {}),
    ("torch.repeat_interleave", (VECTOR,), {"repeats": 2**62}, {}),
    ("Tensor.repeat", (VECTOR,), {"sizes": (2**62,)}, {}),
    ("Tensor.expand", (VECTOR,), {"sizes": (2**31,) * 8 + (8,)}, {}),
    ("torch.zeros", (), {"size": (2**40,)}, {}),
    ("torch.zeros", (), {"size": (1,) * 65}, {}),
    ("torch.zeros", (), {"size": (1,) * 10**6}, {}),
    ("torch.zeros", (), {"size": (2**64,)}, {}),
    ("torch.arange", (1e308, 0, 1e-308), {}, {}),
    ("torch.arange", (1e18, 0.0, 0.5), {}, {}),
    ("torch.arange", (float("inf"),), {}, {}),
    ("torch.fft.fft", (VECTOR,), {"n": 2**62}, {}),
    ("torch.stft", (tensor(2, 50),), {"n_fft": 2**40, "center": True, "pad_mode": "constant"}, {}),
    ("F.interpolate", (IMAGE,), {"scale_factor": (1e308, 1e308)}, {}),
    ("F.interpolate", (IMAGE,), {"size": (MOST, MOST)}, {}),
    ("F.pad", (VECTOR,), {"pad": (2**62, 2**62)}, {}),
    ("aten::one_hot", (tensor(2, dtype="int64"),), {"num_classes": 2**62}, {}),
]


@pytest.mark.parametrize(("type", "operands", "params", "attributes"), ABSURD, ids=lambda value: str(value)[:40])
def test_what_no_model_means_is_refused_before_it_is_computed(
    type: str, operands: tuple[object, ...], params: dict[str, Any], attributes: dict[str, TensorSpec]
) -> None:
    with pytest.raises(EngineError):
        _known(type, operands, params, attributes)


def _known(type: str, operands: tuple[object, ...], params: dict[str, Any], attributes: dict[str, TensorSpec]) -> None:
    """Build an operator like build() does: its layer, and the description of its result."""
    check_results(build(type, len(operands), attributes, **params).infer(operands))


@pytest.mark.parametrize(
    ("type", "operands", "params"),
    [
        ("torch.zeros", [], {"size": (2**62,)}),
        ("Tensor.repeat", [np.ones(8)], {"sizes": (2**62,)}),
        ("aten::diag_embed", [np.ones(8)], {"offset": -(2**63)}),
        ("torch.repeat_interleave", [np.ones(8), "twice"], {}),
    ],
)
def test_a_layer_run_on_its_own_fails_with_an_engine_error(
    type: str, operands: list[object], params: dict[str, Any]
) -> None:
    with pytest.raises(EngineError):
        build(type, len(operands), **params).forward(operands)


@pytest.mark.parametrize(
    ("type", "operands", "params"),
    [
        ("aten::one_hot", [np.array([2**60])], {}),
        ("torch.repeat_interleave", [np.ones(3), np.array([2**60, 1, 1])], {"dim": 0}),
        ("torch.repeat_interleave", [np.ones(3), np.array([0.5, 1, 1])], {"dim": 0}),
        ("torch.arange", [np.array(2**60)], {}),
        ("aten::bincount", [np.array([2**60])], {}),
        ("aten::bincount", [np.array([1])], {"minlength": 2**60}),
        ("aten::Int", [float("inf")], {}),
        ("aten::Int", [float("nan")], {}),
        ("torch.zeros", [[2**20, 2**20, np.array(2**20)]], {}),
        ("Tensor.reshape", [np.ones(6), [np.array(2**40), -1]], {}),
        ("torchvision.ops.RoIAlign", [np.ones((1, 1, 4, 4)), np.array([[0, 0, 0, 1e300, 1e300]])], {"output_size": 1}),
        ("torchvision.ops.RoIAlign", [np.ones((1, 1, 4, 4)), np.array([[0, 0, 0, np.nan, 1]])], {"output_size": 1}),
    ],
)
def test_sizes_that_only_values_tell_are_looked_at_in_the_run(
    type: str, operands: list[object], params: dict[str, Any]
) -> None:
    with pytest.raises(EngineError):
        build(type, len(operands), **params).forward(operands)
