"""Weights in blocks: their error, the layers that are chosen, and networks without samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine import RuntimeGraph, Session, TensorSpec, quantise
from engine.errors import GraphError, InputError, ParameterError
from engine.layers.linear.block_linear import codes_of
from engine.quantisation import measurement, selection
from engine.quantisation.schemes import round_in_blocks
from tests.engine.graph.build import built, op

F32 = np.dtype(np.float32)


def weight(outputs: int, inputs: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((outputs, inputs)).astype(np.float32)


def network() -> RuntimeGraph:
    """Two linear layers, the first of which is large."""
    large, small = weight(640, 700), weight(8, 640, 2)
    return built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Linear", "large", "x", "a", in_features=700, out_features=640, bias=False, weight=large),
        op("nn.ReLU", "relu", "a", "b"),
        op("nn.Linear", "small", "b", "c", in_features=640, out_features=8, bias=False, weight=small),
        op("pnnx.Output", "out0", "c"),
        _x=TensorSpec((3, 700), F32),
    )


@pytest.fixture
def nothing_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measurement.measure_layers
    monkeypatch.setattr(selection, "measure_layers", lambda *given: [
        each._replace(float_us=5.0, time_us=5.0) for each in measured(*given)])  # fmt: skip
    monkeypatch.setattr(selection, "_times", lambda *given: (2.0, 2.0))


def restored(weight: np.ndarray, bits: int, size: int) -> tuple[np.ndarray, float]:
    codes, scales, noise = round_in_blocks(weight, bits, size)
    values = (codes_of(codes, bits).astype(np.float64) - (1 << (bits - 1))) * scales[..., None]
    return values.reshape(len(weight), -1)[:, : weight.shape[1]], noise


@pytest.mark.parametrize(("bits", "size", "least_db"), [(4, 32, 20), (4, 128, 18), (8, 128, 42)])
def test_the_error_is_that_of_the_codes_and_small(bits: int, size: int, least_db: float) -> None:
    given = weight(70, 300)
    near, noise = restored(given, bits, size)
    assert noise == pytest.approx(np.square(near - given).sum() / np.square(given, dtype=np.float64).sum(), rel=1e-5)
    assert -10 * np.log10(noise) > least_db


def test_the_error_is_less_than_with_the_largest_magnitude_as_scale() -> None:
    given = weight(16, 256)
    blocks = given.reshape(16, -1, 32).astype(np.float64)
    scale = np.abs(blocks).max(-1, keepdims=True) / 7
    plain = np.square(np.rint(blocks / scale) * scale - blocks).sum()
    assert np.square(restored(given, 4, 32)[0] - given).sum() < 0.8 * plain


@pytest.mark.parametrize("value", [0.0, 1e-42, 3e38, -1.5])
def test_blocks_of_one_value_are_exact_or_nearly(value: float) -> None:
    given = np.full((3, 40), value, np.float32)
    near, noise = restored(given, 4, 32)
    np.testing.assert_allclose(near, given, rtol=1e-6, atol=2e-42)
    assert np.isfinite(noise)


def test_large_layers_are_chosen_without_samples_even_if_not_faster(nothing_is_faster: None) -> None:
    found = quantise(network(), precision="int4-weights")
    assert [(layer.name, layer.precision, layer.reason) for layer in found.layers] == [
        ("large", "int4-weights", ""), ("small", "float32", "not faster")]  # fmt: skip
    assert (found.kept, found.samples) == (None, 0)
    assert found.saved_bytes == found.layers[0].saved_bytes == 4 * 640 * 700 - 640 * 22 * (16 + 4)
    assert 20 < found.layers[0].sqnr_db < 22
    assert [op.type for op in found.graph.operators].count("engine.BlockLinear") == 1


def test_the_answers_are_those_of_the_rounded_weights(nothing_is_faster: None, tmp_path: Path) -> None:
    found = quantise(network(), precision="int8-weights")
    x = np.random.default_rng(5).standard_normal((3, 700)).astype(np.float32)
    wanted = np.maximum(x @ restored(weight(640, 700), 8, 128)[0].T, 0) @ weight(8, 640, 2).T
    found.graph.save(tmp_path / "model.pnnx.param", tmp_path / "model.pnnx.bin")
    for graph in (found.graph, engine.load(tmp_path / "model.pnnx.param")):
        (result,) = Session(graph, cache=None).run([x])
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-2)


def test_samples_limit_the_error_of_the_network(nothing_is_faster: None) -> None:
    samples = [[np.random.default_rng(k).standard_normal((3, 700)).astype(np.float32)] for k in range(4)]
    within, beyond = (quantise(network(), samples, precision="int4-weights", keep=keep) for keep in (0.98, 0.9999))
    assert within.quantised_layers == 1 and within.kept is not None and 0.98 <= within.kept < 0.9999
    assert beyond.quantised_layers == 0 and beyond.layers[0].reason == "error"


def test_dynamic_sizes_and_indices_are_made_up(nothing_is_faster: None) -> None:
    table = weight(10, 700)
    graph = built(
        op("pnnx.Input", "in0", "", "i"),
        op("nn.Embedding", "table", "i", "x", num_embeddings=10, embedding_dim=700, weight=table),
        op("nn.Linear", "large", "x", "a", in_features=700, out_features=640, bias=False, weight=weight(640, 700)),
        op("pnnx.Output", "out0", "a"),
        _i=TensorSpec((1, None), np.dtype(np.int64)),
    )
    assert quantise(graph, precision="int4-weights").quantised_layers == 1


def test_pictures_are_made_up_as_large_as_windows_need_them(nothing_is_faster: None) -> None:
    conv = {"stride": (4, 4), "padding": (0, 0), "dilation": (1, 1), "padding_mode": "zeros", "groups": 1}
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Conv2d", "conv", "x", "a", in_channels=3, out_channels=700, kernel_size=(7, 7), bias=False,
           weight=weight(700, 147).reshape(700, 3, 7, 7), **conv),
        op("torch.mean", "mean", "a", "b", dim=(2, 3), keepdim=False),
        op("nn.Linear", "large", "b", "c", in_features=700, out_features=640, bias=False, weight=weight(640, 700)),
        op("pnnx.Output", "out0", "c"),
        _x=TensorSpec((None, 3, None, None), F32),
    )  # fmt: skip
    assert quantise(graph, precision="int4-weights").quantised_layers == 1


def test_what_cannot_be_quantised_is_refused(nothing_is_faster: None) -> None:
    with pytest.raises(InputError, match="there are no samples"):
        quantise(network())
    with pytest.raises(ParameterError, match="unknown precision: found int3, expected int8, bf16, auto"):
        quantise(network(), precision="int3")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="the model is quantised already"):
        quantise(quantise(network(), precision="int4-weights").graph, precision="int4-weights")
    window = TensorSpec((1, None), F32)
    beyond = built(op("pnnx.Input", "in0", "", "x"), op("Tensor.reshape", "fixed", "x", "y", shape=(3, 777)),
                   op("nn.Linear", "large", "y", "z", in_features=777, out_features=4, bias=False,
                      weight=weight(4, 777)),
                   op("pnnx.Output", "o", "z"), _x=window)  # fmt: skip
    with pytest.raises(InputError, match="the dynamic sizes of the inputs are unknown, expected samples"):
        quantise(beyond, precision="int8-weights")
    plain = built(
        op("pnnx.Input", "in0", "", "x"), op("nn.ReLU", "relu", "x", "y"), op("pnnx.Output", "o", "y"), _x=(3,)
    )
    with pytest.raises(GraphError, match="no layer can be quantised, expected a linear layer"):
        quantise(plain, precision="int4-weights")
