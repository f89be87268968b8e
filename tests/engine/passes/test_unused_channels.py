"""Channels that are constant, or multiplied by zeros, are removed from the layers before and after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph
from engine.passes.unused_channels import unused_channels
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import FOLDED, applied, assert_untouched

RANDOM = np.random.default_rng(11)
OUT = op("pnnx.Output", "out", "9")
IMAGE = (2, 3, 7, 6)


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


def pruned(count: int, pruned: int) -> list[int]:
    """Numbers of so many channels, in order."""
    return sorted(RANDOM.permutation(count)[:pruned])


def conv(name: str, source: str, target: str, channels: tuple[int, int], size: int = 3, **params: Any) -> Operator:
    inner, outer = channels
    groups = params.get("groups", 1)
    weight = params.pop("weight", array(outer, inner // groups, size, size))
    bias = params.pop("bias", array(outer))
    sizes = {"in_channels": inner, "out_channels": outer, "kernel_size": (size, size), "groups": groups}
    given = {"padding": (size // 2, size // 2), "bias": bias, **sizes, **params}
    return op("nn.Conv2d", name, source, target, weight=weight, **given)


def network(*operators: Operator, shape: tuple[int | None, ...] = IMAGE) -> RuntimeGraph:
    return built(INPUT, *operators, OUT, _0=shape)


def shapes(graph: RuntimeGraph) -> list[tuple[int, ...]]:
    """Shapes of all weights."""
    return [each.attributes["weight"].shape for each in graph.source.operators if "weight" in each.attributes]


def first(channels: Sequence[int], bias: float | None = 0.0, count: int = 40, **params: Any) -> Operator:
    """A convolution from 3 channels whose given output channels have no weights, and this bias."""
    weight, shifts = array(count, 3, 3, 3), array(count)
    weight[channels] = 0
    if bias is not None:
        shifts[channels] = bias
    return conv("first", "0", "1", (3, count), weight=weight, bias=shifts, **params)


def test_channels_of_zeros_are_removed_in_multiples_of_sixteen() -> None:
    for count, kept in ((8, 32), (7, 40), (24, 16), (23, 32), (39, 16), (40, 16)):
        graph = network(first(pruned(40, count)), conv("second", "1", "9", (40, 5)))
        if kept == 40:
            assert_untouched(unused_channels, graph)
        else:
            made = applied(unused_channels, graph, close=FOLDED)
            assert shapes(made) == [(kept, 3, 3, 3), (5, kept, 3, 3)]


@pytest.mark.parametrize("type", ["nn.ReLU", "nn.SiLU", "nn.GELU", "nn.Hardswish", "F.tanh"])
def test_functions_of_zero_that_give_zero_may_lie_between(type: str) -> None:
    layers = [first(pruned(40, 30)), op(type, "f", "1", "2"), conv("second", "2", "9", (40, 5))]
    assert shapes(applied(unused_channels, network(*layers), close=FOLDED)) == [(16, 3, 3, 3), (5, 16, 3, 3)]


def test_a_constant_goes_into_the_bias_of_a_layer_without_zero_padding_only() -> None:
    shifted = op("pnnx.Expression", "f", "1", "2", expr="add(cos(@0),2)")
    for params in ({"size": 1}, {"padding": (0, 0)}, {"padding_mode": "reflect"}):
        graph = network(first(pruned(40, 30), None), shifted, conv("second", "2", "9", (40, 5), **params))
        assert shapes(applied(unused_channels, graph, close=FOLDED))[0] == (16, 3, 3, 3)
    graph = network(first(pruned(40, 30), None), shifted, conv("second", "2", "9", (40, 5)))
    assert_untouched(unused_channels, graph)


def test_a_negative_bias_is_zero_after_an_activation_and_may_be_padded() -> None:
    layers = [first(pruned(40, 30), -1.5), op("nn.ReLU", "f", "1", "2"), conv("second", "2", "9", (40, 5))]
    assert shapes(applied(unused_channels, network(*layers), close=FOLDED))[0] == (16, 3, 3, 3)


def test_channels_that_the_second_layer_multiplies_by_zeros_are_removed() -> None:
    weight = array(5, 40, 3, 3)
    weight[:, pruned(40, 20)] = 0
    graph = network(first([]), conv("second", "1", "9", (40, 5), weight=weight))
    assert shapes(applied(unused_channels, graph, close=FOLDED)) == [(32, 3, 3, 3), (5, 32, 3, 3)]


@pytest.mark.parametrize("bias", [0.0, -2.0, 1.0])
def test_a_depthwise_convolution_between_loses_the_same_channels(bias: float) -> None:
    taps = array(40, 1, 3, 3)
    taps[pruned(40, 30)] = 0
    shift = np.full(40, bias, F32)
    depthwise = conv("depthwise", "2", "3", (40, 40), groups=40, weight=taps, bias=shift, stride=(2, 2))
    relu, relu6 = op("nn.ReLU", "r", "1", "2"), op("nn.ReLU6", "r6", "3", "4")
    layers = [first([]), relu, depthwise, relu6, conv("second", "4", "9", (40, 5), size=1)]
    made = applied(unused_channels, network(*layers), close=FOLDED)
    assert shapes(made) == [(16, 3, 3, 3), (16, 1, 3, 3), (5, 16, 1, 1)]


def test_a_constant_that_a_depthwise_convolution_pads_with_zeros_is_kept() -> None:
    for padding, kept in (((1, 1), 40), ((0, 0), 16)):
        depthwise = conv("depthwise", "1", "2", (40, 40), groups=40, padding=padding)
        graph = network(first(pruned(40, 30), 1.0), depthwise, conv("second", "2", "9", (40, 5), size=1))
        if kept == 40:
            assert_untouched(unused_channels, graph)
        else:
            assert shapes(applied(unused_channels, graph, close=FOLDED))[1] == (kept, 1, 3, 3)


def test_hidden_units_of_linear_layers_are_removed() -> None:
    weight, bias = array(64, 8), array(64)
    units = pruned(64, 40)
    weight[units], bias[units] = 0, 0.5
    layers = [
        op("nn.Linear", "a", "0", "1", in_features=8, out_features=64, weight=weight, bias=bias),
        op("nn.GELU", "f", "1", "2"),
        op("nn.Linear", "b", "2", "9", in_features=64, out_features=4, bias=None, weight=array(4, 64)),
    ]
    for shape in ((5, 8), (2, None, 8), (8,)):
        made = applied(unused_channels, network(*layers, shape=shape), close=FOLDED)
        assert shapes(made) == [(32, 8), (4, 32)]


def test_channels_that_another_operator_reads_are_kept() -> None:
    second = conv("second", "1", "2", (40, 5))
    mean = op("torch.mean", "mean", "1", "3", dim=(1,), keepdim=True)
    graph = network(first(pruned(40, 30)), second, mean, op("pnnx.Expression", "sum", "2 3", "9", expr="add(@0,@1)"))
    assert_untouched(unused_channels, graph)


@pytest.mark.parametrize(
    "between",
    [
        op("F.softmax", "f", "1", "2", dim=1),
        op("nn.ChannelShuffle", "f", "1", "2", groups=4),
        op("F.softmin", "f", "1", "2", dim=3),
        op("F.layer_norm", "f", "1", "2", normalized_shape=(6,), eps=1e-5),
    ],
)
def test_operators_that_mix_elements_keep_all_channels(between: Operator) -> None:
    graph = network(first(pruned(40, 30)), between, conv("second", "2", "9", (40, 5)))
    assert_untouched(unused_channels, graph)


def test_biases_that_are_not_finite_keep_their_channels() -> None:
    for bias in (np.nan, np.inf):
        graph = network(first(pruned(40, 30), bias), conv("second", "1", "9", (40, 5)))
        assert_untouched(unused_channels, graph)
