"""Factors that move the ranges of an input's channels into the weights, and the comparison before a softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import engine
from engine import RuntimeGraph, TensorSpec, quantise
from engine.quantisation import measurement, selection
from engine.quantisation.equalisation import equalising_factors
from engine.quantisation.layers import QuantisableLayer, find_layers
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(3)
F32 = np.dtype(np.float32)
CONV: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "padding_mode": "zeros",
                        "kernel_size": (3, 3), "bias": False}  # fmt: skip


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def convolution(channels: int, groups: int, weight: np.ndarray) -> RuntimeGraph:
    return built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Conv2d", "conv", "x", "y", in_channels=channels, out_channels=len(weight), groups=groups, weight=weight,
           **CONV),
        op("pnnx.Output", "out0", "y"),
        _x=TensorSpec((1, channels, 9, 9), F32),
    )  # fmt: skip


def linear(weight: np.ndarray, *more: Any, output: str = "y") -> RuntimeGraph:
    return built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Linear", "fc", "x", "y", in_features=weight.shape[1], out_features=len(weight), bias=False,
           weight=weight),
        *more,
        op("pnnx.Output", "out0", output),
        _x=TensorSpec((4, weight.shape[1]), F32),
    )  # fmt: skip


def factors_of(graph: RuntimeGraph, *inputs: np.ndarray) -> tuple[list[QuantisableLayer], dict[str, np.ndarray]]:
    layers = find_layers(graph)
    return layers, equalising_factors(layers, [{"x": x} for x in inputs])


SPREAD = np.array([100, 1, 10, 0.5], np.float32)


def test_channels_of_a_depthwise_convolution_become_equally_large() -> None:
    x = np.clip(normal(1, 4, 9, 9), -1, 1) * SPREAD[:, None, None]
    _, found = factors_of(convolution(4, 4, normal(4, 1, 3, 3)), x)
    assert found["x"].shape == (4, 1, 1)
    largest = np.abs(x / found["x"]).max((0, 2, 3))
    np.testing.assert_allclose(largest, largest[0], rtol=1e-5)


def test_a_channel_that_few_runs_use_is_not_divided_by_its_range() -> None:
    """It has small values in one of four runs; others may have as large ones as the other channels."""
    spread = np.array([100, 1, 1, 1, 1, 1, 1, 0.5], np.float32)
    runs = [np.clip(normal(1, 8, 9, 9), -1, 1) * spread[:, None, None] for _ in range(4)]
    for x in runs[1:]:
        x[:, 7] = 0
    found = factors_of(convolution(8, 8, normal(8, 1, 3, 3)), *runs)[1]["x"].ravel()
    assert found[7] == 1 and found[1] < 0.1


def test_a_run_more_does_not_change_the_weight_of_the_rounded_weights() -> None:
    graph, x = linear(normal(3, 4) / SPREAD), normal(4, 4) * SPREAD
    once, often = (factors_of(graph, *[x] * runs)[1]["x"] for runs in (1, 16))
    np.testing.assert_array_equal(once, often)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_divided_input_and_multiplied_weights_make_the_same_convolution(groups: int) -> None:
    torch = pytest.importorskip("torch")
    weight, x = normal(8, 4 // groups, 3, 3), normal(1, 4, 9, 9)
    (layer,) = find_layers(convolution(4, groups, weight))
    scaled = layer.multiplied(SPREAD.reshape(4, 1, 1)).weight
    given = [torch.from_numpy(each) for each in (x / SPREAD.reshape(4, 1, 1), scaled, x, weight)]
    made, expected = (torch.nn.functional.conv2d(*each, groups=groups) for each in (given[:2], given[2:]))
    np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_a_divided_input_and_multiplied_weights_make_the_same_product() -> None:
    weight, x = normal(3, 4), normal(5, 4)
    (layer,) = find_layers(linear(weight))
    np.testing.assert_allclose((x / SPREAD) @ layer.multiplied(SPREAD).weight.T, x @ weight.T, rtol=1e-4, atol=1e-5)


def test_large_features_with_small_weights_are_worth_it() -> None:
    weight = normal(3, 4) / SPREAD
    _, found = factors_of(linear(weight), normal(4, 4) * SPREAD)
    assert found["x"].shape == (4,)
    assert found["x"][0] == 1 and found["x"].min() < 0.1


@pytest.mark.parametrize(
    "inputs",
    [[np.sign(normal(4, 4))], [np.zeros((4, 4), np.float32)], [np.full((4, 4), np.inf, np.float32)],
     [np.full((4, 4), np.nan, np.float32)], []],
    ids=["equal", "zeros", "infinite", "nan", "none"],
)  # fmt: skip
def test_other_inputs_stay_as_they_are(inputs: Sequence[np.ndarray]) -> None:
    assert factors_of(linear(normal(3, 4)), *inputs)[1] == {}


def test_weights_that_are_all_zero_need_no_factors() -> None:
    assert factors_of(linear(np.zeros((3, 4), np.float32)), normal(4, 4) * SPREAD)[1] == {}


def test_an_operand_with_channels_on_two_axes_stays_as_it_is() -> None:
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Conv2d", "conv", "x", "y", in_channels=4, out_channels=4, groups=4, weight=normal(4, 1, 3, 3), **CONV),
        op("nn.Linear", "fc", "x", "z", in_features=9, out_features=2, bias=False, weight=normal(2, 9)),
        op("pnnx.Output", "out0", "y"),
        op("pnnx.Output", "out1", "z"),
        _x=TensorSpec((1, 4, 9, 9), F32),
    )
    assert factors_of(graph, normal(1, 4, 9, 9) * SPREAD[:, None, None])[1] == {}


@pytest.fixture
def int8_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measurement.measure_layers
    monkeypatch.setattr(selection, "measure_layers", lambda *given: [
        each._replace(float_us=10.0, time_us=5.0) for each in measured(*given)])  # fmt: skip
    monkeypatch.setattr(selection, "_times", lambda *given: (2.0, 1.0))


def test_small_channels_of_a_quantised_network_keep_their_precision(int8_is_faster: None) -> None:
    """A step of 200 / 255 for all channels would be nearly all of the last channel, whose values are at most 0.5."""
    graph = convolution(4, 4, normal(4, 1, 3, 3) / SPREAD[:, None, None, None])
    samples = [[np.clip(normal(1, 4, 9, 9), -1, 1) * SPREAD[:, None, None]] for _ in range(4)]
    found = quantise(graph, samples, keep=0.9)
    (y,), (right,) = (engine.Session(each, cache=None).run(samples[0]) for each in (found.graph, graph))
    noise = np.square(y - right).sum((0, 2, 3)) / np.square(right).sum((0, 2, 3))
    assert noise.max() < 1e-3


def test_a_network_is_compared_before_its_softmax(int8_is_faster: None) -> None:
    weight = normal(3, 4)
    samples = [[normal(4, 4)] for _ in range(4)]
    plain = quantise(linear(weight), samples, keep=0.9)
    softmax = quantise(linear(weight, op("F.softmax", "end", "y", "z", dim=1), output="z"), samples, keep=0.9)
    assert softmax.kept == plain.kept
    assert [op.type for op in softmax.graph.operators if op.type == "F.softmax"]
