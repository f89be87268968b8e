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


def test_a_network_that_begins_with_a_state_is_left_as_it_is() -> None:
    assert not find_layers(graph(network("nn.GRU", 5, 8, inputs="0 2"), results="1", _0=(5, 1, 5), _2=(1, 1, 8)))


def test_a_quantised_network_is_not_quantised_again() -> None:
    net = graph(network("nn.GRU", 5, 8), results="1", _0=(5, 1, 5))
    with pytest.raises(GraphError, match="quantised already"):
        quantise(quantise(net, samples(5, 1, 5), threads=1).graph, samples(5, 1, 5))
    with pytest.raises(GraphError, match="expected a linear layer"):
        quantise(net, precision="int8-weights")
