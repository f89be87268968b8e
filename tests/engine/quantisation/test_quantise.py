"""Quantised networks: the layers that are chosen, their answers, and what the report says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from engine import QuantisedModel, RuntimeGraph, Session, TensorSpec, quantise
from engine.errors import GraphError, InputError, ParameterError
from engine.pnnx import Attribute, Operator
from engine.quantisation import measurement, selection
from engine.quantisation.calibration import agreement, prepared
from engine.quantisation.layers import find_layers, per_channel
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Every test draws the same numbers, whichever tests ran before."""
    RANDOM.bit_generator.state = np.random.default_rng(8).bit_generator.state


F32 = np.dtype(np.float32)
SHAPE = (1, 3, 12, 12)


def weight(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def vector(size: int) -> np.ndarray:
    return RANDOM.standard_normal(size).astype(np.float32)


def with_bias(layer: Operator, bias: np.ndarray) -> Operator:
    """The layer with a stored bias beside the parameter of that name."""
    return replace(layer, attributes={**layer.attributes, "bias": Attribute(bias.shape, bias.dtype, bias)})


def network(shape: tuple[int | None, ...] = SHAPE) -> RuntimeGraph:
    """Two convolutions with batch norm and activations between them, a mean and a linear layer."""
    conv: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "padding_mode": "zeros",
                            "kernel_size": (3, 3), "groups": 1}  # fmt: skip
    return built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Conv2d", "first", "x", "a", in_channels=3, out_channels=8, bias=False,
           weight=weight(8, 3, 3, 3), **conv),
        op("nn.BatchNorm2d", "norm", "a", "b", num_features=8, eps=1e-5, affine=True,
           running_mean=vector(8), running_var=np.full(8, 0.7, np.float32), weight=vector(8), bias=vector(8)),
        op("nn.ReLU", "relu", "b", "c"),
        with_bias(op("nn.Conv2d", "second", "c", "d", in_channels=8, out_channels=8, bias=True,
                     weight=weight(8, 8, 3, 3), **conv), vector(8)),
        op("nn.SiLU", "silu", "d", "e"),
        op("torch.mean", "mean", "e", "f", dim=(2, 3), keepdim=False),
        with_bias(op("nn.Linear", "head", "f", "g", in_features=8, out_features=5, bias=True, weight=weight(5, 8)),
                  vector(5)),
        op("pnnx.Output", "out0", "g"),
        _x=TensorSpec(shape, F32),
    )  # fmt: skip


def samples(count: int = 6, shape: tuple[int, ...] = SHAPE) -> list[list[np.ndarray]]:
    return [[RANDOM.standard_normal(shape).astype(np.float32)] for _ in range(count)]


@pytest.fixture
def int8_is_faster(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Int8 is twice as fast as float32, for layers and networks, whatever this machine and its load are."""
    measured = measurement.measure_layers
    monkeypatch.setattr(selection, "measure_layers", lambda *given: [
        each._replace(float_us=10.0, time_us=5.0) for each in measured(*given)])  # fmt: skip
    monkeypatch.setattr(selection, "_times", lambda *given: (2.0, 1.0))
    yield


def share_kept(found: QuantisedModel, graph: RuntimeGraph, inputs: list[list[np.ndarray]]) -> float:
    quantised, right = (Session(each, backend="reference", cache=None) for each in (found.graph, graph))
    answers = [(quantised.run(each)[0], right.run(each)[0]) for each in inputs]
    return 1 - sum(np.square(y - z).sum() for y, z in answers) / sum(np.square(z).sum() for _, z in answers)


def test_all_layers_are_quantised_where_the_budget_allows_and_the_answers_stay_close(int8_is_faster: None) -> None:
    graph, given = network(), samples()
    found = quantise(graph, given, keep=0.99)
    assert [layer.precision for layer in found.layers] == ["int8"] * 3
    assert [op.type for op in found.graph.operators].count("QuantizeLinear") == 3
    assert 0.99 <= found.kept < 1
    assert 1 - found.kept == pytest.approx(1 - share_kept(found, graph, given), rel=0.05)
    assert all(layer.sqnr_db > 30 for layer in found.layers)
    assert sum(layer.share for layer in found.layers) == pytest.approx(1)


def test_a_budget_of_nothing_keeps_every_layer_in_float32(int8_is_faster: None) -> None:
    found = quantise(network(), samples(), keep=1)
    assert {(layer.precision, layer.reason) for layer in found.layers} == {("float32", "error")}
    assert found.kept == 1
    assert not [op for op in found.graph.operators if op.type == "QuantizeLinear"]


def test_a_budget_between_keeps_the_worst_layers_in_float32(int8_is_faster: None) -> None:
    graph, given = network(), samples()
    whole = quantise(graph, given, keep=0)
    keep = whole.kept + (1 - whole.kept) / 50
    part = quantise(graph, given, keep=keep)
    assert 0 < part.quantised_layers < whole.quantised_layers
    assert part.kept >= keep
    worst = max(part.layers, key=lambda layer: layer.share)
    assert next(layer for layer in part.layers if layer.name == worst.name).precision == "float32"


def test_layers_that_are_not_faster_stay_in_float32(int8_is_faster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = selection.measure_layers
    monkeypatch.setattr(selection, "measure_layers", lambda graph, layers, *given: [
        each._replace(time_us=9.9) if layer.name == "second" else each
        for layer, each in zip(layers, measured(graph, layers, *given), strict=True)])  # fmt: skip
    found = quantise(network(), samples(), keep=0.9)
    assert {layer.name: layer.reason for layer in found.layers} == {"first": "", "second": "not faster", "head": ""}


def test_layers_of_a_network_that_is_slower_as_a_whole_stay_in_float32_for_their_time(
    int8_is_faster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_times", lambda *_: (1.0, 1.5))
    found = quantise(network(), samples(), keep=0.9)
    assert {(layer.precision, layer.reason) for layer in found.layers} == {("float32", "not faster")}
    assert found.int8_ms == found.float_ms == 1.0


@pytest.mark.parametrize("size", [1e-45, 1e-38, 0])
def test_weights_and_samples_of_no_size_make_zeros(int8_is_faster: None, size: float) -> None:
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        with_bias(op("nn.Linear", "head", "x", "y", in_features=8, out_features=5, bias=True,
                     weight=weight(5, 8) * np.float32(size)), vector(5) * np.float32(size)),
        op("pnnx.Output", "out0", "y"), _x=TensorSpec((2, 8), F32),
    )  # fmt: skip
    given = [[np.float32(size) * np.ones((2, 8), np.float32)]]
    with np.errstate(all="raise", under="ignore"):
        found = quantise(graph, given, keep=0)
    (y,) = Session(found.graph, cache=None).run(given[0])
    assert found.quantised_layers == 1 and np.abs(y).max() < 1e-36


def test_layers_without_elements_in_the_samples_stay_in_float32(int8_is_faster: None) -> None:
    def linear(name: str, x: str, y: str) -> Operator:
        return op("nn.Linear", name, x, y, in_features=8, out_features=5, bias=False, weight=weight(5, 8))

    graph = built(
        op("pnnx.Input", "in0", "", "x"), op("pnnx.Input", "in1", "", "y"), linear("seen", "x", "a"),
        linear("unseen", "y", "b"), op("pnnx.Output", "out0", "a"), op("pnnx.Output", "out1", "b"),
        _x=TensorSpec((None, 8), F32), _y=TensorSpec((None, 8), F32),
    )  # fmt: skip
    some, none = RANDOM.standard_normal((4, 8)).astype(np.float32), np.zeros((0, 8), np.float32)
    assert [layer.name for layer in quantise(graph, [[some, none]], keep=0.9).layers] == ["seen"]
    later = quantise(graph, [[some, none], [some, some]], keep=0.9)
    answers = (Session(each, backend="reference", cache=None).run([some, some])[1] for each in (later.graph, graph))
    np.testing.assert_allclose(*answers, rtol=0, atol=0.1)
    with pytest.raises(InputError, match="the samples have no elements, expected some for a layer"):
        quantise(graph, [[none, none]])


def test_a_network_that_is_not_faster_as_a_whole_is_left_alone(
    int8_is_faster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "_times", lambda *given: (1.0, 1.01))
    found = quantise(network(), samples(), keep=0.9)
    assert (found.quantised_layers, found.kept, found.int8_ms) == (0, 1.0, found.float_ms)


def test_a_network_without_quantised_layers_has_one_time(int8_is_faster: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection, "_times", lambda *given: (3.0, 2.0))
    found = quantise(network(), samples(), keep=1)
    assert (found.quantised_layers, found.float_ms, found.int8_ms) == (0, 3.0, 3.0)


class Fixed:
    """A session that always answers the same."""

    def __init__(self, answer: np.ndarray) -> None:
        self._answer = answer

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        return [self._answer]


@pytest.mark.parametrize(("answer", "right", "share"), [
    ([3.0, 4.0], [3.0, 4.0], 1.0),
    ([3.0, 3.0], [3.0, 4.0], 1 - 1 / 25),
    ([3 + 3j], [3 + 4j], 1 - 1 / 25),
    ([1, 2, 3, 5], [1, 2, 3, 4], 0.75),
    ([3.0, 4.0, 0.0], [3.0, 4.0], 0.0),
    ([0.0], [0.0], 1.0),
])  # fmt: skip
def test_the_share_that_is_kept_is_by_energy_or_by_equal_integers(
    answer: list[Any], right: list[Any], share: float
) -> None:
    fixed: Any = Fixed(np.array(answer))
    assert agreement(fixed, [[]], {0: (np.array(right),)}) == pytest.approx(share)


def test_the_saved_pair_gives_the_same_answers_on_both_back_ends(int8_is_faster: None, tmp_path: Path) -> None:
    found = quantise(network(), samples(), keep=0.9)
    found.graph.save(tmp_path / "m.pnnx.param", tmp_path / "m.pnnx.bin")
    again = engine.load(tmp_path / "m.pnnx.param", tmp_path / "m.pnnx.bin")
    x = samples(1)[0]
    (wanted,) = Session(found.graph, backend="reference", cache=None).run(x)
    (reread,) = Session(again, backend="reference", cache=None).run(x)
    (compiled,) = Session(again, backend="compiled", cache=None).run(x)
    assert np.array_equal(reread, wanted)
    assert np.allclose(compiled, wanted, atol=1e-5 * np.abs(wanted).max())


def test_weights_take_a_quarter_of_the_bytes(int8_is_faster: None) -> None:
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Linear", "fc", "x", "y", in_features=256, out_features=256, bias=False, weight=weight(256, 256)),
        op("pnnx.Output", "out0", "y"),
        _x=TensorSpec((4, 256), F32),
    )
    found = quantise(graph, samples(3, (4, 256)), keep=0.9)
    sizes = [each.data.nbytes for op in found.graph.source.operators for each in op.attributes.values()]
    assert sum(sizes) < 0.3 * 256 * 256 * 4


def test_the_mean_error_of_each_channel_is_corrected(int8_is_faster: None) -> None:
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Linear", "head", "x", "y", in_features=8, out_features=5, bias=False, weight=weight(5, 8)),
        op("pnnx.Output", "out0", "y"),
        _x=TensorSpec((4, 8), F32),
    )
    given = samples(2, (4, 8))
    found = quantise(graph, given, keep=0)
    (y, z) = (Session(each, backend="reference", cache=None) for each in (found.graph, graph))
    errors = np.stack([z.run(each)[0] - y.run(each)[0] for each in given])
    assert np.abs(errors.mean((0, 1))).max() < 0.05 * np.sqrt(np.square(errors).mean())


def test_a_graph_of_dynamic_sizes_is_quantised_for_all_of_them(int8_is_faster: None) -> None:
    graph = network((1, 3, None, None))
    given = samples(3) + samples(3, (1, 3, 9, 16))
    found = quantise(graph, given, keep=0.9)
    assert found.quantised_layers == 3
    assert share_kept(found, graph, samples(2, (1, 3, 17, 5))) > 0.98


def test_symmetric_weights_are_at_most_half_a_step_off() -> None:
    given = weight(6, 4, 3)
    given[2] = 0
    quantised, scales = per_channel(given)
    assert quantised.dtype == np.int8 and quantised.min() >= -127
    assert (np.abs(given - quantised * scales[:, None, None]) <= scales[:, None, None] / 2 + 1e-7).all()


def upsampling(kernel: int, stride: int, padding: int = 0) -> RuntimeGraph:
    """A transposed convolution of 8 channels to 6, with a bias."""
    sizes: dict[str, Any] = {"kernel_size": (kernel, kernel), "stride": (stride, stride), "padding": (padding, padding),
                             "output_padding": (0, 0), "dilation": (1, 1), "groups": 1}  # fmt: skip
    layer = op("nn.ConvTranspose2d", "up", "x", "y", in_channels=8, out_channels=6, bias=True,
               weight=weight(8, 6, kernel, kernel), **sizes)  # fmt: skip
    x = TensorSpec((2, 8, 5, 7), F32)
    return built(op("pnnx.Input", "in0", "", "x"), with_bias(layer, vector(6)), op("pnnx.Output", "out0", "y"), _x=x)


@pytest.mark.parametrize("size", [2, 3])
def test_transposed_convolutions_without_overlap_become_integer_products(int8_is_faster: None, size: int) -> None:
    graph, given = upsampling(size, size), samples(4, (2, 8, 5, 7))
    found = quantise(graph, given, keep=0.999)
    assert [(each.name, each.precision) for each in found.layers] == [("up", "int8")]
    assert share_kept(found, graph, given) > 0.999
    (wanted,) = Session(found.graph, backend="reference", cache=None).run(given[0])
    (compiled,) = Session(found.graph, backend="compiled", cache=None).run(given[0])
    assert np.allclose(compiled, wanted, atol=1e-5 * np.abs(wanted).max())


def test_transposed_convolutions_that_overlap_are_not_offered() -> None:
    for graph in (upsampling(3, 2), upsampling(2, 2, padding=1), upsampling(1, 1)):
        assert find_layers(graph) == []


def test_convolutions_without_a_kernel_of_bytes_are_not_offered() -> None:
    conv: dict[str, Any] = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "kernel_size": (3, 3)}
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        op("nn.Conv2d", "reflected", "x", "b", in_channels=6, out_channels=6, groups=1, bias=False,
           padding_mode="reflect", weight=weight(6, 6, 3, 3), **conv),
        op("pnnx.Output", "out0", "b"),
        _x=TensorSpec((1, 6, 6, 6), F32),
    )  # fmt: skip
    assert find_layers(graph) == []
    with pytest.raises(GraphError, match="no layer can be quantised"):
        quantise(graph, samples(1, (1, 6, 6, 6)))


def test_what_cannot_be_quantised_is_refused_with_the_reason(int8_is_faster: None) -> None:
    graph = network()
    with pytest.raises(InputError, match="there are no samples, expected at least one"):
        quantise(graph, [])
    with pytest.raises(ParameterError, match="keep is out of range: found 1.5"):
        quantise(graph, samples(1), keep=1.5)
    with pytest.raises(InputError, match="operand '.+': every sample makes values that are not finite"):
        quantise(graph, [[np.full(SHAPE, np.nan, np.float32)]])
    with pytest.raises(InputError):
        quantise(graph, samples(1, (1, 4, 12, 12)))
    with pytest.raises(GraphError, match="the model is quantised already"):
        quantise(quantise(graph, samples(2), keep=0).graph, samples(1))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 3e38], ids=["NaN", "infinity", "overflow inside"])
def test_samples_whose_values_are_not_finite_are_left_out(wrong: float, int8_is_faster: None) -> None:
    graph, good = network(), samples(3)
    bad = [np.full(SHAPE, wrong, np.float32)]
    expected = quantise(graph, good, keep=0.9)
    found = quantise(graph, [bad, good[0], bad, *good[1:]], keep=0.9)
    assert (found.samples, found.skipped, expected.skipped) == (3, 2, 0)
    assert found.quantised_layers == expected.quantised_layers > 0
    assert found.kept == expected.kept
    (one,), (other,) = (Session(each.graph, cache=None).run(good[0]) for each in (found, expected))
    np.testing.assert_array_equal(one, other)


def test_parallel_convolutions_are_one_int8_layer_and_channels_of_zeros_none(int8_is_faster: None) -> None:
    def conv(name: str, source: str, target: str, channels: tuple[int, int], taps: np.ndarray) -> Operator:
        size = taps.shape[2]
        return op("nn.Conv2d", name, source, target, in_channels=channels[0], out_channels=channels[1], bias=False,
                  stride=(1, 1), padding=(size // 2, size // 2), dilation=(1, 1), padding_mode="zeros",
                  kernel_size=(size, size), groups=1, weight=taps)  # fmt: skip

    branches = [weight(40, 3, 3, 3), weight(40, 3, 1, 1)]
    for each in branches:
        each[10:] = 0
    graph = built(
        op("pnnx.Input", "in0", "", "x"),
        conv("large", "x", "a", (3, 40), branches[0]),
        conv("small", "x", "b", (3, 40), branches[1]),
        op("pnnx.Expression", "sum", "a b", "c", expr="add(@0,@1)"),
        op("nn.ReLU", "relu", "c", "d"),
        conv("last", "d", "e", (40, 4), weight(4, 40, 3, 3)),
        op("pnnx.Output", "out0", "e"),
        _x=TensorSpec(SHAPE, F32),
    )
    found = quantise(graph, samples(), keep=0)
    assert [(each.name, each.precision) for each in found.layers] == [("large", "int8"), ("last", "int8")]
    assert share_kept(found, graph, samples()) > 0.99
    stored = [each.attributes["data"].shape for each in found.graph.source.operators if each.type == "pnnx.Attribute"]
    assert (16, 3, 3, 3) in stored and (4, 16, 3, 3) in stored


def test_sessions_of_dynamic_sizes_are_compiled_for_the_samples() -> None:
    graph, (sample,) = network((1, 3, None, None)), samples(1)
    with prepared(graph, 1, sample) as session:
        assert session.is_compiled(sample)


def test_a_bias_is_stored_in_integers_of_the_sums_if_it_fits() -> None:
    layer = find_layers(network())[-1]
    for scale, types in ((0.5, ["int32", "float32", "int32"]), (1e-12, ["float32"])):
        made = {each.name: each for each in layer.in_int8("head", "x", "y", np.float32(scale))}
        stored = [made[name].attributes["data"] for name in made if name.startswith("head/bias") and
                  made[name].type == "pnnx.Attribute"]  # fmt: skip
        assert [each.dtype.name for each in stored] == types
    scales = np.abs(layer.weight).max(1) / 127 * np.float32(0.5)
    made = {each.name: each for each in layer.in_int8("head", "x", "y", np.float32(0.5))}
    integers = made["head/bias/integers"].attributes["data"].data
    np.testing.assert_array_equal(integers, np.rint(layer.bias / scales))
