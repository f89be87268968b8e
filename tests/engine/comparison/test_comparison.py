"""A run against recorded values: the first bad operator named, NaN traced to the operator that made it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import engine
from engine import InputError, RuntimeGraph, Session
from tests.engine.graph.build import F32, INPUT, built, op

X = np.array([[1.0, -2.0, 3.0]], F32)


@pytest.fixture
def net() -> RuntimeGraph:
    """relu, then + 1, then * 2, then - 3; operands 0 to 4."""
    return built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("pnnx.Expression", "plus", "1", "2", expr="add(@0,1)"),
        op("pnnx.Expression", "times", "2", "3", expr="mul(@0,2)"),
        op("pnnx.Expression", "minus", "3", "4", expr="sub(@0,3)"),
        op("pnnx.Output", "out", "4"),
        _0=(1, 3),
    )


def right(**wrong: np.ndarray) -> dict[str, np.ndarray]:
    """Return the net's values for X, with some replaced."""
    relu = np.maximum(X, 0)
    recorded = {"in_0": X, "1": relu, "2": relu + 1, "3": 2 * relu + 2, "4": 2 * relu - 1, "out_0": 2 * relu - 1}
    return {**recorded, **{key.removeprefix("_"): value for key, value in wrong.items()}}


def compare(net: RuntimeGraph, recorded: dict[str, Any], **options: Any) -> engine.Comparison:
    return engine.compare(Session(net, backend="reference"), recorded, **options)


def names(rows: Any) -> list[str]:
    return [row.operator for row in rows]


def test_equal_numbers_do_not_diverge(net: RuntimeGraph) -> None:
    result = compare(net, right())
    assert names(result.rows) == ["relu", "plus", "times", "minus", "minus"]
    assert (result.first, result.suspects, result.origins) == (None, (), ())


def test_the_first_operator_that_diverges_is_named(net: RuntimeGraph) -> None:
    result = compare(net, right(_3=X, _4=X, out_0=X))
    assert result.first is not None
    assert (result.first.operator, result.first.type, result.first.operand) == ("times", "pnnx.Expression", "3")
    assert result.suspects == ("times",)
    assert [row.difference.diverges for row in result.rows] == [False, False, True, True, True]


def test_operators_that_were_not_recorded_are_suspects(net: RuntimeGraph) -> None:
    recorded = {key: value for key, value in right(_4=X).items() if key in ("in_0", "1", "4")}
    assert compare(net, recorded).suspects == ("plus", "times", "minus")


def test_a_diverging_value_that_another_led_to_stays_a_suspect(net: RuntimeGraph) -> None:
    assert compare(net, right(_2=X, _3=X)).suspects == ("plus",)


def test_final_outputs_alone_are_enough(net: RuntimeGraph) -> None:
    result = compare(net, {"in_0": X, "out_0": X})
    assert result.worst_output is not None
    assert (result.worst_output.output, result.worst_output.operator) == ("out0", "minus")
    assert result.suspects == ("relu", "plus", "times", "minus")


def test_keys_may_say_that_they_are_operands(net: RuntimeGraph) -> None:
    result = compare(net, {"operand/0": X, "operand/1": np.maximum(X, 0)})
    assert names(result.rows) == ["pnnx_input_0", "relu"]
    assert result.first is None


def test_tolerances_are_handed_on(net: RuntimeGraph) -> None:
    wrong = right(_2=np.maximum(X, 0) + F32.type(1.01))
    assert compare(net, wrong).first is not None
    assert compare(net, wrong, rtol=0.01).first is None
    assert compare(net, wrong, atol=0.02).first is None


def test_inputs_and_outputs_go_by_every_name_that_a_request_may_use(net: RuntimeGraph) -> None:
    named = right(_3=X)
    recorded = {"in0": named.pop("in_0"), "out0": named.pop("out_0"), **named}
    assert names(compare(net, recorded).rows) == ["relu", "plus", "times", "minus", "minus"]
    with pytest.raises(InputError, match="the reference has output 0 twice: found 'out0'"):
        compare(net, {"in0": X, "out_0": X, "out0": X})


@pytest.mark.parametrize("options", [{"rtol": -1}, {"atol": -1}, {"atol": float("nan")}])
def test_a_negative_tolerance_is_refused(net: RuntimeGraph, options: dict[str, float]) -> None:
    with pytest.raises(engine.ParameterError, match="must not be negative"):
        compare(net, right(), **options)


@pytest.mark.parametrize(("recorded", "message"), [
    ({"out_0": X}, r"no value for input 'in0', expected in_0 or operand/0 \(\[1, 3\] float32\)"),
    ({"in_0": X}, "nothing to compare: found in_0, expected out_0"),
    ({"in_0": X, "out_1": X}, "the reference has 'out_1', expected at most 1 outputs"),
    ({"in_0": X, "in_1": X, "out_0": X}, "the reference has 'in_1', expected at most 1 inputs"),
    ({"in_0": X, "operand/conv1": X}, "has an unknown key: found 'operand/conv1', expected in_0, out_0 or"),
    ({"in_0": X, "out_0": np.array(["a"])}, "'out_0' of the reference: not an array of numbers: found <U1"),
    ({"in_0": X[0], "out_0": X}, "input 'in0': wrong rank"),
    ({"in_0": X.astype(int), "out_0": X}, "input 'in0': wrong dtype"),
])  # fmt: skip
def test_a_reference_that_does_not_fit_the_graph_is_refused(
    net: RuntimeGraph, recorded: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        compare(net, recorded)


def test_another_batch_is_compared_as_well(net: RuntimeGraph) -> None:
    two = {key: np.concatenate([value, value]) for key, value in right().items()}
    assert compare(net, two).first is None


def test_operands_of_a_batch_that_runs_in_parts_are_refused() -> None:
    net = built(
        INPUT,
        op("pnnx.Expression", "sum", "0", "1", expr="add(@0,@0)"),
        op("torch.sum", "total", "1", "2", dim=(0,), keepdim=True),
        op("pnnx.Output", "out", "2"),
        _0=(1, 3),
    )
    two = np.concatenate([X, X])
    assert compare(net, {"in_0": two, "out_0": 2 * two}).first is None
    with pytest.raises(InputError, match="at a batch that runs in parts: found 2, expected a batch of 1"):
        compare(net, {"in_0": two, "1": 2 * two})


def test_outputs_of_a_tuple_are_laid_at_the_door_of_who_made_them() -> None:
    net = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("pnnx.Expression", "plus", "0", "2", expr="add(@0,1)"),
        op("prim::TupleConstruct", "inner", "1", "3"),
        op("prim::TupleConstruct", "pair", "3 2", "4"),
        op("pnnx.Output", "out", "4"),
        _0=(1, 3),
    )
    result = compare(net, {"in_0": X, "out_0": X, "out_1": X + 1})
    assert [(row.output, row.operator) for row in result.rows] == [("out0", "relu"), ("out1", "plus")]
    assert result.suspects == ("relu",)


def test_bfloat16_may_be_recorded_as_float32_or_as_bytes() -> None:
    bf16 = np.dtype(ml_dtypes.bfloat16)
    net = built(
        INPUT, op("nn.ReLU", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=engine.TensorSpec((1, 3), bf16)
    )
    wide = np.maximum(X, 0)
    assert compare(net, {"in_0": X, "out_0": wide}).first is None
    assert compare(net, {"in_0": X.astype(bf16).view("V2"), "out_0": wide.astype(bf16).view("V2")}).first is None


@pytest.fixture
def logarithm() -> RuntimeGraph:
    """log(x), of which the maximum with 0; NaN where x is negative, -inf where it is zero."""
    return built(
        INPUT,
        op("nn.Identity", "same", "0", "1"),
        op("pnnx.Expression", "log", "1", "2", expr="log(@0)"),
        op("pnnx.Expression", "minus", "2", "3", expr="sub(@0,@0)"),
        op("pnnx.Output", "out", "3"),
        _0=(1, 3),
    )


def origins(net: RuntimeGraph, x: np.ndarray, **recorded: np.ndarray) -> list[tuple[Any, ...]]:
    result = compare(net, {"in_0": x, "out_0": x, **{key.removeprefix("_"): value for key, value in recorded.items()}})
    return [(origin.kind, origin.operator, origin.count, origin.from_infinity) for origin in result.origins]


def test_a_nan_is_traced_to_the_operator_that_made_it(logarithm: RuntimeGraph) -> None:
    assert origins(logarithm, X) == [("NaN", "log", 1, False)]


def test_a_nan_made_of_infinities_says_so(logarithm: RuntimeGraph) -> None:
    zeros = np.zeros((1, 3), F32)
    assert origins(logarithm, zeros) == [("infinity", "log", 3, False), ("NaN", "minus", 3, True)]


def test_a_nan_of_the_input_is_traced_to_the_input(logarithm: RuntimeGraph) -> None:
    assert origins(logarithm, np.full((1, 3), np.nan, F32)) == [("NaN", "pnnx_input_0", 3, False)]


def test_an_origin_that_was_recorded_too_says_so(logarithm: RuntimeGraph) -> None:
    with np.errstate(invalid="ignore"):
        recorded = {"in_0": X, "2": np.log(X), "out_0": np.log(X) * 0}
    result = compare(logarithm, recorded)
    assert result.first is None
    assert [origin.in_reference for origin in result.origins] == [True]


def test_an_infinite_mask_among_the_weights_is_no_origin() -> None:
    net = built(
        INPUT,
        op("pnnx.Attribute", "mask", "", "1", data=np.array([[0, 0, -np.inf]], F32)),
        op("pnnx.Expression", "masked", "0 1", "2", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "2"),
        _0=(1, 3),
    )
    assert origins(net, X) == []
