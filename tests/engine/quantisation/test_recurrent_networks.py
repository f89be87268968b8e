"""Quantised LSTM, GRU and plain recurrent networks: their answers, their weights, and which are left as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import engine
from engine import RuntimeGraph, Session, quantise
from engine.errors import GraphError
from engine.quantisation import measurement, selection
from engine.quantisation.layers import find_layers
from engine.tensor import TensorSpec
from tests.engine.compiler.lowering.rules.recurrent.test_recurrent import GATES, graph, network, numbers
from tests.engine.graph.build import INPUT, built, op


@pytest.fixture(autouse=True)
def int8_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = measurement.measure_layers
    monkeypatch.setattr(selection, "measure_layers", lambda *given: [
        each._replace(float_us=10.0, time_us=5.0) for each in measured(*given)])  # fmt: skip
    monkeypatch.setattr(selection, "_times", lambda *given: (2.0, 1.0))


def samples(*shape: int) -> list[list[np.ndarray]]:
    return [[numbers(seed, *shape)] for seed in range(4)]


def kept(found: RuntimeGraph, right: RuntimeGraph, inputs: list[list[np.ndarray]]) -> float:
    """Return the share of the outputs' energy that is kept, by the numpy layers, of the worst output."""
    sessions = [Session(each, backend="reference", cache=None) for each in (found, right)]
    answers = [[session.run(each) for each in inputs] for session in sessions]
    lost, whole = np.zeros(len(answers[0][0])), np.zeros(len(answers[0][0]))
    for mine, theirs in zip(*answers, strict=True):
        for k, (y, z) in enumerate(zip(mine, theirs, strict=True)):
            lost[k] += np.square(y - z).sum()
            whole[k] += np.square(z).sum()
    return float(1 - (lost / whole).max())


@pytest.mark.parametrize("type", GATES)
def test_weights_become_bytes_and_the_answers_stay_close(type: str, tmp_path: Path) -> None:
    layer = network(type, 12, 32, layers=2, ways=2, batch_first=True)
    net, inputs = graph(layer, results="1", _0=(2, 9, 12)), samples(2, 9, 12)
    found = quantise(net, inputs, threads=1)
    assert [each.precision for each in found.layers] == ["int8"]
    assert kept(found.graph, net, inputs) > 0.999
    rows = GATES[type] * 32
    assert found.saved_bytes == 2 * rows * (3 * (12 + 32) - 8) + 2 * rows * (3 * (64 + 32) - 8)
    found.graph.save(tmp_path / "q.pnnx.param", tmp_path / "q.pnnx.bin")
    again = engine.load(tmp_path / "q.pnnx.param")
    (stored,) = [each for each in again.operators if each.type == type]
    assert stored.attributes["weight_hh_l1_reverse"].dtype == np.int8
    for mine, theirs in zip(*(Session(each, cache=None).run(inputs[0]) for each in (again, found.graph)), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("outputs", ["y h c", "h c", "c h y"])
def test_last_states_keep_their_places(outputs: str) -> None:
    shapes = {"y": (9, 2, 7), "h": (1, 2, 7), "c": (1, 2, 20)}
    layer = network("nn.LSTM", 6, 20, proj_size=7, outputs=outputs)
    ends = [op("pnnx.Output", f"end_{name}", name) for name in outputs.split()]
    net = built(INPUT, layer, *ends, _0=(9, 2, 6), **{f"_{name}": shapes[name] for name in outputs.split()})
    inputs = samples(9, 2, 6)
    found = quantise(net, inputs, threads=1, keep=0.99)
    assert found.quantised_layers == 1
    assert kept(found.graph, net, inputs) > 0.99


def test_layers_of_all_kinds_share_an_input() -> None:
    net = graph(
        network("nn.LSTM", 12, 16, outputs="1"),
        op("nn.Linear", "head", "0", "2", in_features=12, out_features=16, bias=False, weight=numbers(3, 16, 12)),
        op("pnnx.Expression", "sum", "1 2", "3", expr="add(@0,@1)"),
        results="3", _0=(5, 1, 12),
    )  # fmt: skip
    inputs = samples(5, 1, 12)
    found = quantise(net, inputs, threads=1, keep=0.99)
    assert found.quantised_layers == 2
    assert kept(found.graph, net, inputs) > 0.99


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("type", GATES)
def test_states_from_outside_begin_a_quantised_network(type: str, ways: int) -> None:
    """One state is an input, as of a network that runs piece by piece; an LSTM's other one is computed."""
    shape, is_lstm = (2 * ways, 3, 16), type == "nn.LSTM"
    net = built(
        INPUT,
        op("pnnx.Input", "h0", "", "h"),
        op("nn.Linear", "begin", "h", "c", in_features=16, out_features=16, bias=False, weight=numbers(9, 16, 16)),
        network(type, 8, 16, layers=2, ways=ways, inputs="0 h c" if is_lstm else "0 c", outputs="1 last"),
        op("pnnx.Output", "out0", "1"),
        op("pnnx.Output", "out1", "last"),
        _0=(6, 3, 8), _h=shape,
    )  # fmt: skip
    inputs = [[numbers(seed, 6, 3, 8), 2 * numbers(seed + 20, *shape)] for seed in range(4)]
    found = quantise(net, inputs, threads=1, keep=0.99)
    assert [each.precision for each in found.layers] == ["int8", "int8"]
    assert kept(found.graph, net, inputs) > 0.99
    (layer,) = [each for each in found.graph.operators if each.type == type]
    assert layer.attributes["weight_hh_l0"].dtype == np.int8
    compiled, reference = (Session(found.graph, backend=each, cache=None) for each in ("compiled", "reference"))
    for each in inputs:
        for mine, theirs in zip(compiled.run(each), reference.run(each), strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_a_network_that_begins_with_a_constant_or_a_state_of_another_dtype_is_left_as_it_is() -> None:
    constant = {"initial_h": numbers(1, 1, 1, 8)}
    assert not find_layers(graph(network("nn.GRU", 5, 8, **constant), results="1", _0=(5, 1, 5)))
    wide = TensorSpec((1, 1, 8), np.dtype(np.float64))
    assert not find_layers(graph(network("nn.GRU", 5, 8, inputs="0 2"), results="1", _0=(5, 1, 5), _2=wide))


def test_a_quantised_network_is_not_quantised_again() -> None:
    net = graph(network("nn.GRU", 5, 8), results="1", _0=(5, 1, 5))
    with pytest.raises(GraphError, match="quantised already"):
        quantise(quantise(net, samples(5, 1, 5), threads=1).graph, samples(5, 1, 5))
    with pytest.raises(GraphError, match="expected a linear layer"):
        quantise(net, precision="int8-weights")
