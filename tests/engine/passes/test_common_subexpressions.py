"""Equal operators run once; those that only look equal run each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Layer, TensorSpec, register, registry
from engine.passes.common_subexpressions import common_subexpressions
from engine.passes.removal import identity_removal
from engine.pnnx import Attribute
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import applied, assert_untouched, names, types
from tests.engine.passes.test_work import calls_of

W = np.eye(3, dtype=F32)


def twice(type: str, first: dict[str, Any], second: dict[str, Any], /, inputs: str = "0", other: str = "") -> Any:
    """type(x) + type(x) with these parameters."""
    return built(
        INPUT,
        op(type, "first", inputs, "1", **first),
        op(type, "second", other or inputs, "2", **second),
        op("torch.add", "sum", "1 2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(2, 3),
    )


@pytest.mark.parametrize(
    ("type", "params"),
    [
        ("nn.Sigmoid", {}),
        ("F.softmax", {"dim": 1}),
        ("pnnx.Expression", {"expr": "mul(@0,2)"}),
        ("nn.Linear", {"bias": False, "in_features": 3, "out_features": 3, "weight": W}),
    ],
)
def test_an_equal_operator_is_taken_instead(type: str, params: dict[str, Any]) -> None:
    copies = {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in params.items()}
    assert names(applied(common_subexpressions, twice(type, params, copies))) == ["first", "sum"]


@pytest.mark.parametrize(
    ("type", "first", "second"),
    [
        ("F.softmax", {"dim": 1}, {"dim": 0}),
        ("F.leaky_relu", {"negative_slope": 0.0}, {"negative_slope": -0.0}),
        ("torch.mul", {"other": 1}, {"other": 1.0}),
        ("nn.Linear", {"bias": False, "weight": W}, {"bias": False, "weight": W * 2}),
        ("pnnx.Expression", {"expr": "mul(@0,2)"}, {"expr": "mul(2,@0)"}),
    ],
)
def test_other_parameters_or_data_are_another_operator(type: str, first: Any, second: Any) -> None:
    assert_untouched(common_subexpressions, twice(type, first, second))


def test_other_operands_are_another_operator() -> None:
    graph = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("torch.sub", "first", "0 1", "2"),
        op("torch.sub", "second", "1 0", "3"),
        op("torch.add", "sum", "2 3", "4"),
        op("pnnx.Output", "out", "4"),
        _0=(2, 3),
    )
    assert_untouched(common_subexpressions, graph)


def test_chains_of_equal_operators_go_as_a_whole() -> None:
    graph = built(
        INPUT,
        op("nn.Sigmoid", "a", "0", "1"),
        op("nn.Sigmoid", "b", "0", "2"),
        op("nn.Tanh", "c", "1", "3"),
        op("nn.Tanh", "d", "2", "4"),
        op("torch.add", "sum", "3 4", "5"),
        op("pnnx.Output", "out", "5"),
        _0=(2, 3),
    )
    assert names(applied(common_subexpressions, graph)) == ["a", "c", "sum"]


def test_operators_of_several_outputs_share_all_of_them() -> None:
    graph = built(
        INPUT,
        op("torch.chunk", "a", "0", "1 2", chunks=2, dim=1),
        op("torch.chunk", "b", "0", "3 4", chunks=2, dim=1),
        op("torch.add", "sum", "1 4", "5"),
        op("pnnx.Output", "out", "5"),
        _0=(2, 4),
    )
    assert names(applied(common_subexpressions, graph)) == ["a", "sum"]


def test_equal_tensors_are_stored_once() -> None:
    graph = built(
        INPUT,
        op("pnnx.Attribute", "w", "", "1", data=W),
        op("pnnx.Attribute", "v", "", "2", data=W.copy()),
        op("pnnx.Attribute", "u", "", "3", data=-W),
        op("pnnx.Expression", "sum", "0 1 2 3", "4", expr="add(add(@0,@1),mul(@2,@3))"),
        op("pnnx.Output", "out", "4"),
        _0=(3, 3),
    )
    assert names(applied(common_subexpressions, graph)) == ["w", "u", "sum"]


@pytest.mark.parametrize(("type", "params"), [("torch.randn_like", {}), ("F.dropout", {"training": True})])
def test_random_operators_are_drawn_each(type: str, params: dict[str, Any]) -> None:
    graph = twice(type, params, params)
    assert common_subexpressions(graph) is graph.source


def test_a_layer_from_outside_is_run_each_time() -> None:
    with registry.extended():

        @register("mine.Noise")
        class Noise(Layer):
            def infer(self, input: TensorSpec) -> TensorSpec:
                return input

            def forward(self, input: np.ndarray) -> np.ndarray:
                return input

        assert_untouched(common_subexpressions, twice("mine.Noise", {}, {}))


def test_what_the_file_says_of_a_result_counts_where_the_layer_asks() -> None:
    graph = built(
        INPUT,
        op("torch.sum", "first", "0", "1", dim=(1,), keepdim=False),
        op("torch.sum", "second", "0", "2", dim=(1,), keepdim=False),
        op("torch.add", "sum", "1 2", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(2, 3),
        _1=(2,),
        _2=TensorSpec((2,), np.dtype(np.float64)),
    )
    assert_untouched(common_subexpressions, graph)


def test_many_operators_that_differ_in_their_data_alone_are_not_compared_each_with_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[object] = []
    equal = Attribute.__eq__
    monkeypatch.setattr(Attribute, "__eq__", lambda a, b: compared.append(a) or equal(a, b))  # type: ignore[func-returns-value]
    count = 200
    constants = [
        op("pnnx.Attribute", f"c{n}", "", f"c{n}", data=np.full(3, n % (count // 2), F32)) for n in range(count)
    ]
    sums = [op("pnnx.Expression", f"s{n}", f"{n or 'x'} c{n}", str(n + 1), expr="add(@0,@1)") for n in range(count)]
    graph = built(op("pnnx.Input", "in", "", "x"), *constants, *sums, op("pnnx.Output", "out", str(count)), _x=(2, 3))
    made = applied(common_subexpressions, graph)
    assert types(made).count("pnnx.Attribute") == count // 2
    assert len(compared) <= count


def test_a_long_chain_of_equal_operators_is_walked_once() -> None:
    def chain(length: int) -> int:
        links = [op("nn.Identity", f"i{n}", str(n), str(n + 1)) for n in range(length)]
        graph = built(INPUT, *links, op("pnnx.Output", "out", str(length)), _0=(2, 3))
        return calls_of(lambda: identity_removal(graph))

    assert chain(800) < 2.3 * chain(400)
