"""Looking into a run of the reference: taps, cancelling, memory."""

from __future__ import annotations

import numpy as np
import pytest

from engine import EngineError, InputError, RunCancelledError, RuntimeGraph, Session, TensorSpec
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op

X = np.array([[1.0, -2.0, 3.0]], F32)


@pytest.fixture
def net() -> RuntimeGraph:
    return built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("pnnx.Expression", "plus", "1", "2", expr="add(@0,1)"),
        op("pnnx.Expression", "width", "2", "3", expr="size(@0,1)"),
        op("prim::TupleConstruct", "pair", "2 3", "4"),
        op("pnnx.Output", "out", "4"),
        _0=(1, 3),
    )


def test_taps_return_any_operand_by_name(net: RuntimeGraph) -> None:
    taps = Session(net).run([X], taps=["0", "1", "3"]).taps
    np.testing.assert_array_equal(taps["0"], X)
    np.testing.assert_array_equal(taps["1"], np.maximum(X, 0))
    assert taps["3"] == 3


def test_a_tap_on_no_operand_is_refused(net: RuntimeGraph) -> None:
    with pytest.raises(InputError, match="unknown operand in taps: found 'x', expected one of 0, 1, 2"):
        Session(net).run([X], taps=["x"])


def test_a_run_stops_between_operators(net: RuntimeGraph) -> None:
    asked: list[bool] = []

    def cancelled() -> bool:
        asked.append(len(asked) == 1)
        return asked[-1]

    with pytest.raises(RunCancelledError, match=r"plus \(pnnx.Expression\): the run was cancelled"):
        Session(net, backend="reference").run([X], cancelled=cancelled)
    assert asked == [False, True]


def chain(type: str) -> RuntimeGraph:
    operators = [op(type, f"r{k}", str(k), str(k + 1)) for k in range(9)]
    return built(INPUT, *operators, op("pnnx.Output", "out", "9"), _0=(1, 3))


@pytest.mark.parametrize("type", ["nn.Sigmoid", "nn.ReLU"])
def test_values_are_released_after_their_last_consumer(type: str) -> None:
    net = chain(type)
    assert Session(net, backend="reference").run([X], profile=True).peak_bytes == 2 * X.nbytes == net.plan.peak_bytes


@pytest.mark.parametrize(
    "between",
    [
        [op("nn.Sigmoid", "s", "0", "1"), op("torch.flatten", "view", "1", "v"), op("nn.ReLU", "relu", "1", "2")],
        [op("nn.Sigmoid", "s", "0", "1"), op("nn.Dropout", "same", "1", "v"), op("nn.ReLU", "relu", "1", "2")],
        [op("nn.Sigmoid", "s", "0", "v"), op("nn.Dropout", "same", "v", "1"), op("nn.ReLU", "relu", "1", "2")],
        [op("nn.Identity", "s", "0", "v"), op("nn.Identity", "same", "0", "1"), op("nn.ReLU", "relu", "1", "2")],
    ],
)
def test_a_value_seen_through_another_is_not_written_over(between: list[Operator]) -> None:
    net = built(INPUT, *between, op("prim::TupleConstruct", "t", "2 v", "3"), op("pnnx.Output", "out", "3"), _0=(1, 3))
    relu, viewed = Session(net).run([-X])
    np.testing.assert_array_equal(relu.ravel(), np.maximum(viewed.ravel(), 0))


def test_weights_and_inputs_are_not_counted_as_run_memory() -> None:
    net = built(
        INPUT,
        op("pnnx.Attribute", "w", "", "1", data=np.ones((1, 3), F32)),
        op("pnnx.Expression", "sum", "0 1", "2", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "2"),
        _0=(1, 3),
    )
    assert Session(net, backend="reference").run([X], profile=True).peak_bytes == X.nbytes == net.plan.peak_bytes


@pytest.mark.parametrize("profile", [False, True])
@pytest.mark.parametrize("backend", ["reference", "compiled"])
def test_an_operator_that_no_output_needs_cannot_fail_a_run(backend: str, profile: bool) -> None:
    table = np.zeros((3, 2), F32)
    net = built(
        INPUT,
        op("pnnx.Input", "in1", "", "1"),
        op("nn.ReLU", "relu", "0", "2"),
        op("nn.Embedding", "rows", "1", "3", num_embeddings=3, embedding_dim=2, weight=table),
        op("nn.ReLU", "of_rows", "3", "4"),
        op("pnnx.Output", "out", "2"),
        _0=(1, 3),
        _1=TensorSpec((1,), np.dtype(np.int64)),
    )
    session, outside = Session(net, backend=backend), np.array([7])  # type: ignore[arg-type]
    np.testing.assert_array_equal(session.run([X, outside], profile=profile)[0], np.maximum(X, 0))
    assert {"rows", "of_rows"} <= {row["name"] for row in session.describe()["operators"]}
    with pytest.raises(EngineError, match=r"rows \(nn.Embedding\): .*found 7, expected 0 to 2"):
        session.run([X, outside], taps=["4"])
    assert session.run([X, np.array([1])], taps=["4"]).taps["4"].shape == (1, 2)
