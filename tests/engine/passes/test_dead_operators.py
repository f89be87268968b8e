"""Operators that no output depends on are removed, and no others."""

from __future__ import annotations

from engine.passes.removal import dead_operators
from tests.engine.graph.build import INPUT, built, op
from tests.engine.passes.applying import applied, assert_untouched, names


def test_an_unused_chain_goes_as_a_whole() -> None:
    graph = built(
        INPUT,
        op("nn.ReLU", "kept", "0", "1"),
        op("nn.Sigmoid", "dead", "1", "2"),
        op("nn.Tanh", "dead_too", "2", "3"),
        op("pnnx.Output", "out", "1"),
        _0=(2, 3),
        _3=(2, 3),
    )
    made = applied(dead_operators, graph)
    assert names(made) == ["kept"]
    assert set(made.source.annotations) == {"0"}


def test_an_operator_with_one_used_output_stays() -> None:
    graph = built(
        INPUT, op("torch.chunk", "halves", "0", "1 2", chunks=2, dim=1), op("pnnx.Output", "out", "2"), _0=(2, 4)
    )
    assert_untouched(dead_operators, graph)


def test_inputs_stay_used_or_not() -> None:
    graph = built(
        INPUT,
        op("pnnx.Input", "pnnx_input_1", "", "1"),
        op("nn.ReLU", "relu", "0", "2"),
        op("nn.ReLU", "dead", "1", "3"),
        op("pnnx.Output", "out", "2"),
        _0=(2, 3),
        _1=(4,),
    )
    made = applied(dead_operators, graph)
    assert [port.operand for port in made.inputs] == ["0", "1"]
    assert names(made) == ["relu"]
