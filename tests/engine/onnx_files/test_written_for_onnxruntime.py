"""Written files in onnxruntime: the cases of the corpus give PyTorch's answers, quantised layers ours."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import engine
from engine.onnx_writing import to_model
from engine.pnnx import Attribute, Operator
from engine.quantisation import equalisation, selection
from tests.corpus_score import DEFAULT, load_compare
from tests.engine.compiler.random_maps import EXACT, SMOOTH
from tests.engine.compiler.random_operators import KERNELS
from tests.engine.compiler.test_random_graphs import grow, hold
from tests.engine.graph.build import INPUT, built, op
from tests.nightly import IS_NIGHTLY

onnxruntime = pytest.importorskip("onnxruntime")
CASES = sorted((DEFAULT / "cases").iterdir()) if DEFAULT.is_dir() else []
CONV: dict[str, Any] = {"out_channels": 8, "kernel_size": (3, 3), "stride": (1, 1), "padding": (1, 1),
                        "dilation": (1, 1), "groups": 1, "bias": False, "padding_mode": "zeros"}  # fmt: skip
# Cases with complex numbers, a function that ONNX lacks, or a projected LSTM.
REFUSED = {
    *("ir_complex", "nn_LSTM", "torch_complex", "torch_fft_hfft", "torch_fft_ifft", "torch_fft_ihfft"),
    *("torch_fft_ihfft2", "torch_fft_irfft", "torch_fft_irfft2", "torch_fft_rfft2", "torch_imag", "torch_lgamma"),
    *("torch_view_as_complex", "torchaudio_InverseSpectrogram"),
}


def answers(graph: engine.RuntimeGraph, inputs: list[Any], **options: Any) -> list[Any]:
    """Return what onnxruntime computes from a written graph."""
    model = to_model(graph, **options).SerializeToString()
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")  # float32
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    used = {each.name for each in session.get_inputs()}
    pairs = zip(graph.inputs, inputs, strict=True)
    given = {port.name: x if port.spec is None else x.astype(port.spec.dtype) for port, x in pairs if port.name in used}
    return list(session.run([port.name for port in graph.outputs], given))


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_a_case_gives_pytorchs_answer(folder: Path) -> None:
    graph = engine.load(folder / "model.pnnx.param")
    if folder.name in REFUSED:
        with pytest.raises(engine.UnsupportedOperatorError):
            to_model(graph)
        return
    compare, facts = load_compare(DEFAULT), json.loads((folder / "case.json").read_text())
    for k in range(facts["n_sets"]):
        inputs, expected = compare.load_set(str(folder), k)
        tolerances = [each["tol"] for each in facts["sets"][k]["outputs"]]
        assert compare.compare_all(answers(graph, inputs), expected, tolerances)[0]


def test_the_codes_of_a_quantised_layer_are_ours() -> None:
    from tests.engine.onnx_files.test_writing import quantised_linear

    graph = quantised_linear()
    x = np.random.default_rng(0).standard_normal((4, 8), np.float32)
    ours = engine.Session(graph, backend="reference").run([x])
    np.testing.assert_allclose(answers(graph, [x])[0], ours[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(("kernel", "padding"), [(2, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("dilation", [1, 2, 3, 4])
def test_dilated_windows_that_hang_over_give_pytorchs_answer(
    kernel: int, stride: int, padding: int, dilation: int
) -> None:
    """A window may hang over by more elements than it has, which onnxruntime refuses as padding."""
    torch = pytest.importorskip("torch")
    given: dict[str, Any] = {"kernel_size": (kernel,) * 2, "stride": (stride,) * 2, "padding": (padding,) * 2,
                             "dilation": (dilation,) * 2, "ceil_mode": True, "return_indices": True}  # fmt: skip
    for size in (9, 12):
        x = np.random.default_rng(size).standard_normal((1, 2, size, size + 1), np.float32)
        outputs = op("pnnx.Output", "out0", "1"), op("pnnx.Output", "out1", "2")
        graph = built(INPUT, op("nn.MaxPool2d", "pool", "0", "1 2", **given), *outputs, _0=x.shape)
        expected = torch.nn.MaxPool2d(**given)(torch.from_numpy(x))
        for found, right in zip(answers(graph, [x]), expected, strict=True):
            np.testing.assert_array_equal(found, right.numpy())


@pytest.mark.parametrize("type", ["torch.cummax", "torch.cummin"])
@pytest.mark.parametrize(("shape", "dim"), [((2, 3, 4), 1), ((5,), 0), ((87, 4), -1), ((1, 5, 1, 7), 2)])
def test_running_extremes_keep_their_positions(type: str, shape: tuple[int, ...], dim: int) -> None:
    x = np.random.default_rng(1).integers(-3, 3, shape).astype(np.float32)
    graph = built(
        INPUT,
        op(type, "c", "0", "1 2", dim=dim),
        op("pnnx.Output", "out0", "1"),
        op("pnnx.Output", "out1", "2"),
        _0=shape,
    )
    for mine, theirs in zip(answers(graph, [x]), engine.Session(graph, backend="reference").run([x]), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("first", range(0, 480 if IS_NIGHTLY else 24, 6))
def test_random_graphs_give_our_answers(first: int) -> None:
    for seed in range(first, first + 6):
        growing, outputs = grow(seed, [KERNELS, EXACT, SMOOTH])
        graph, inputs = growing.finished(outputs, False), growing.feed(())
        with np.errstate(all="ignore"):
            expected = engine.Session(graph, backend="reference").run(inputs)
        for mine, theirs, tensor in zip(answers(graph, inputs), expected, outputs, strict=True):
            hold(mine, theirs, tensor.is_exact, 1e-4)


@pytest.mark.parametrize("repeats", [True, False])
def test_a_mask_that_repeats_for_every_window_is_stored_once(repeats: bool) -> None:
    random = np.random.default_rng(3)
    mask = random.standard_normal((1 if repeats else 4, 3, 5, 5)).astype(np.float32).repeat(4 if repeats else 1, 0)
    stored = Operator("pnnx.Attribute", "mask", (), ("m",), {}, {"data": Attribute(mask.shape, mask.dtype, mask)})
    attend = op("F.scaled_dot_product_attention", "attend", "q k v m", "y", dropout_p=0.0, is_causal=False)
    inputs = [op("pnnx.Input", name, "", name) for name in "qkv"]
    specs = {f"_{name}": engine.TensorSpec((4, 3, 5, 8), np.dtype(np.float32)) for name in "qkv"}
    graph = built(*inputs, stored, replace(attend, labels=("query", "key", "value", "attn_mask")),
                  op("pnnx.Output", "out0", "y"), **specs)  # fmt: skip
    q, k, v = (random.standard_normal((4, 3, 5, 8)).astype(np.float32) for _ in "qkv")
    weights = np.exp(q @ k.swapaxes(2, 3) / np.sqrt(8) + mask)
    np.testing.assert_allclose(
        answers(graph, [q, k, v])[0], weights / weights.sum(-1, keepdims=True) @ v, rtol=1e-4, atol=1e-5
    )
    assert [1 if repeats else 4, 3, 5, 5] in [list(each.dims) for each in to_model(graph).graph.initializer]


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zeros", [None, np.uint8, np.float32])
def test_weights_in_blocks_stay_codes(bits: int, zeros: Any) -> None:
    random, per_byte = np.random.default_rng(5), 8 // bits
    codes = random.integers(0, 1 << bits, (6, 3, 16)).astype(np.uint8)
    packed = (
        (codes.reshape(6, 3, -1, per_byte) << (np.arange(per_byte, dtype=np.uint8) * bits)).sum(-1).astype(np.uint8)
    )
    scales, bias = random.random((6, 3)).astype(np.float32), random.random(6).astype(np.float32)
    shift = random.integers(0, 1 << bits, (6, 3))
    arrays = {
        "weight": packed,
        "scales": scales,
        "bias": bias,
        **({} if zeros is None else {"zero_points": shift.astype(zeros)}),
    }
    layer = op("engine.BlockLinear", "fc", "x", "y", bits=bits, block_size=16, bias=True, zero_points=zeros is not None)
    stored = {name: Attribute(each.shape, each.dtype, each) for name, each in arrays.items()}
    spec = engine.TensorSpec((2, 40), np.dtype(np.float32))
    graph = built(
        op("pnnx.Input", "x", "", "x"), replace(layer, attributes=stored), op("pnnx.Output", "y", "y"), _x=spec
    )
    wide = (codes.astype(np.int64) - (1 << (bits - 1) if zeros is None else shift[..., None])) * scales[
        ..., None
    ].astype(np.float64)
    x = random.standard_normal((2, 40)).astype(np.float32)
    expected = x @ wide.reshape(6, 48)[:, :40].T + bias
    np.testing.assert_allclose(answers(graph, [x])[0], expected, rtol=1e-4, atol=1e-4)
    assert sum(each.data_type == onnx.TensorProto.FLOAT for each in to_model(graph).graph.initializer) == 2


def residual_block() -> engine.RuntimeGraph:
    """Return a convolution, a pool, a block of two convolutions that its input is added to, a mean, a linear layer."""
    random = np.random.default_rng(2)

    def conv(name: str, read: str, made: str, channels: int) -> Any:
        weight = (random.standard_normal((8, channels, 3, 3)) / np.sqrt(9 * channels)).astype(np.float32)
        stored = {"weight": Attribute(weight.shape, weight.dtype, weight)}
        return Operator("nn.Conv2d", name, (read,), (made,), {**CONV, "in_channels": channels}, stored)

    weight = random.standard_normal((5, 8)).astype(np.float32)
    bias = random.standard_normal(5).astype(np.float32)
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        conv("stem", "x", "a", 3),
        op("nn.ReLU", "relu0", "a", "b"),
        op("nn.MaxPool2d", "pool", "b", "c", kernel_size=(2, 2), stride=(2, 2)),
        conv("first", "c", "d", 8),
        op("nn.ReLU", "relu1", "d", "e"),
        conv("second", "e", "f", 8),
        op("pnnx.Expression", "sum", "c f", "g", expr="add(@0,@1)"),
        op("nn.ReLU", "relu2", "g", "h"),
        conv("third", "h", "i", 8),
        op("torch.mean", "mean", "i", "j", dim=(2, 3), keepdim=False),
        replace(op("nn.Linear", "head", "j", "k", in_features=8, out_features=5, bias=True, weight=weight),
                attributes={"weight": Attribute(weight.shape, weight.dtype, weight),
                            "bias": Attribute(bias.shape, bias.dtype, bias)}),
        op("pnnx.Output", "out0", "k"),
        _x=engine.TensorSpec((1, 3, 16, 16), np.dtype(np.float32)),
    )  # fmt: skip
    return graph


SAMPLES = [[np.random.default_rng(seed).standard_normal((1, 3, 16, 16), np.float32)] for seed in range(8)]


def quantised(graph: engine.RuntimeGraph, monkeypatch: pytest.MonkeyPatch) -> engine.RuntimeGraph:
    """Return the graph with all layers in int8, however long they take, and without equalised channels."""
    monkeypatch.setattr(selection.Int8, "is_worth", lambda self, layer, is_faster: True)
    monkeypatch.setattr(equalisation, "_WORTH", 0.0)
    return engine.quantise(graph, SAMPLES, keep=0).graph


def test_a_quantised_network_gives_our_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = quantised(residual_block(), monkeypatch)
    for inputs in SAMPLES:
        (ours,), (theirs,) = engine.Session(graph, cache=None).run(inputs), answers(graph, inputs)
        assert np.square(theirs - ours).sum() < 1e-6 * np.square(ours).sum()


def test_all_layers_with_rounded_results_are_fused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    samples, float32 = SAMPLES, residual_block()
    graph = quantised(float32, monkeypatch)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "fused.onnx"), 3
    onnxruntime.InferenceSession(
        to_model(graph, round_results=True).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    types = Counter(node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node)
    assert types["QLinearConv"] == 4 and types["QLinearAdd"] == 1 and types["QGemm"] == 1
    assert not {"Conv", "FusedConv", "Add", "MatMul", "Gemm", "MaxPool"} & types.keys()
    (right,) = engine.Session(float32, cache=None).run(samples[0])
    for y in (answers(graph, samples[0], round_results=True)[0], engine.Session(graph, cache=None).run(samples[0])[0]):
        assert np.square(y - right).sum() < 1e-3 * np.square(right).sum()
