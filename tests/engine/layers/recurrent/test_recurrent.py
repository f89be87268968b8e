"""Recurrent networks: rejected arguments, and the order of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine import Annotations, EngineError, TensorSpec, registry
from engine.layers import BoundLayer, bind
from tests.engine.layers.refusals import tensor, zeros

WIDTH, H = 3, 4
GATES = {"nn.LSTM": 4, "nn.GRU": 3, "nn.RNN": 1}
X, SEQUENCE, STATE = tensor(5, 2, WIDTH), tensor(5, 2, H), tensor(1, 2, H)


def weights(type: str) -> dict[str, TensorSpec]:
    rows = GATES[type] * H
    biases = {"bias_ih_l0": tensor(rows), "bias_hh_l0": tensor(rows)}
    return {"weight_ih_l0": tensor(rows, WIDTH), "weight_hh_l0": tensor(rows, H), **biases}


def filled(spec: TensorSpec) -> np.ndarray:
    return np.linspace(-1, 1, spec.size or 0, dtype=spec.dtype).reshape(spec.shape)


def network(
    type: str,
    outputs: Sequence[TensorSpec | None] = (None,),
    attributes: dict[str, TensorSpec] | None = None,
    n_inputs: int = 1,
    input: TensorSpec | None = X,
    **params: Any,
) -> BoundLayer:
    return bind(
        registry[type],
        n_inputs=n_inputs,
        params={"input_size": WIDTH, "hidden_size": H, **params},
        attributes={name: filled(spec) for name, spec in (attributes or weights(type)).items()},
        annotations=Annotations(inputs=(input,), outputs=tuple(outputs)),
    )


@pytest.mark.parametrize("type", GATES)
@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ([tensor(5, 2, 7)], "input does not fit: found [5, 2, 7], expected [T, B, I] or [T, I] with I = 3"),
        ([tensor(WIDTH)], "input does not fit: found [3], expected [T, B, I] or [T, I] with I = 3"),
        ([tensor(0, 2, WIDTH)], "the sequence is empty: found [0, 2, 3], expected at least one step"),
        ([X, tensor(1, 3, H)], "initial h does not fit: found [1, 3, 4], expected [1, 2, 4]"),
        ([X, tensor(2, H)], "initial h does not fit: found [2, 4], expected [1, 2, 4]"),
    ],
)
def test_operands_that_do_not_fit_are_refused(type: str, operands: list[TensorSpec], message: str) -> None:
    layer = network(type, n_inputs=len(operands))
    for call, values in ((layer.infer, operands), (layer.forward, [zeros(each) for each in operands])):
        with pytest.raises(EngineError) as caught:
            call(values)
        assert str(caught.value) == message


@pytest.mark.parametrize(
    ("params", "changed", "message"),
    [
        ({}, {"bias_hh_l0": None}, "attribute 'bias_hh_l0' is missing"),
        ({"bias": False}, {"bias_ih_l0": None}, "attribute 'bias_hh_l0' is unknown"),
        ({}, {"weight_ih_l0": tensor(16, 5)}, "attribute 'weight_ih_l0' does not fit: found [16, 5], expected [16, 3]"),
        ({"proj_size": 2}, {}, "attribute 'weight_hr_l0' is missing"),
    ],
)
def test_attributes_that_do_not_fit_are_refused(
    params: dict[str, Any], changed: dict[str, TensorSpec | None], message: str
) -> None:
    attributes = {name: spec for name, spec in {**weights("nn.LSTM"), **changed}.items() if spec is not None}
    with pytest.raises(EngineError) as caught:
        network("nn.LSTM", attributes=attributes, **params).infer([X])
    assert str(caught.value) == message


def test_an_unknown_nonlinearity_is_refused() -> None:
    with pytest.raises(EngineError) as caught:
        network("nn.RNN", nonlinearity="sin")
    assert str(caught.value) == "unknown nonlinearity: found sin, expected tanh or relu"


def test_more_outputs_than_there_are_is_refused() -> None:
    with pytest.raises(EngineError) as caught:
        network("nn.GRU", outputs=(None, None, None))
    assert str(caught.value) == "too many outputs: found 3, expected at most 2"


@pytest.mark.parametrize(
    ("outputs", "order"),
    [
        ([SEQUENCE], ["output"]),
        ([STATE], ["h"]),
        ([SEQUENCE, STATE], ["output", "h"]),
        ([STATE, SEQUENCE], ["h", "output"]),
        ([STATE, STATE], ["h", "c"]),
        ([SEQUENCE, STATE, STATE], ["output", "h", "c"]),
        ([STATE, SEQUENCE, STATE], ["h", "output", "c"]),
        ([STATE, STATE, SEQUENCE], ["c", "h", "output"]),
        ([None, None, None], ["output", "h", "c"]),
        ([tensor(9, 9, 9)], ["output"]),
    ],
)
def test_outputs_are_distinguished_by_their_annotations(outputs: list[TensorSpec | None], order: list[str]) -> None:
    named = dict(zip(("output", "h", "c"), network("nn.LSTM", [None] * 3).forward([filled(X)]), strict=True))
    found = network("nn.LSTM", outputs).forward([filled(X)])
    for each, name in zip(found if isinstance(found, tuple) else [found], order, strict=True):
        np.testing.assert_array_equal(each, named[name])


def test_an_open_batch_does_not_hide_which_output_is_which() -> None:
    f32 = np.dtype(np.float32)
    outputs = [TensorSpec((1, None, H), f32), TensorSpec((None, None, H), f32)]
    layer = network("nn.GRU", outputs, input=TensorSpec((None, None, WIDTH), f32))
    assert [spec.shape for spec in layer.infer([X])] == [(1, 2, H), (5, 2, H)]


def test_without_annotations_the_order_is_pytorchs() -> None:
    layer = network("nn.GRU", (None, None), input=None)
    assert [spec.shape for spec in layer.infer([X])] == [(5, 2, H), (1, 2, H)]


def test_operations_are_counted_as_two_a_multiply_add() -> None:
    assert network("nn.LSTM").flops(SEQUENCE, [X]) == 2 * 5 * 2 * 4 * H * (WIDTH + H)


@pytest.mark.parametrize("type", GATES)
def test_scales_of_weights_have_a_number_for_each_row(type: str) -> None:
    layer = network(type, attributes={**weights(type), "scale_hh_l0": tensor(3)})
    with pytest.raises(EngineError, match="attribute 'scale_hh_l0' does not fit: found \\[3\\]"):
        layer.infer([X])


def test_an_unknown_rounding_is_refused() -> None:
    with pytest.raises(EngineError, match="unknown rounds: found row"):
        network("nn.LSTM", rounds="row")


@pytest.mark.parametrize("rounds", ["each", "all"])
def test_a_single_row_is_rounded_to_255_steps(rounds: str) -> None:
    one = {"weight_ih_l0": np.ones((1, 2), np.float32), "weight_hh_l0": np.zeros((1, 1), np.float32)}
    layer = bind(
        registry["nn.RNN"], n_inputs=1, attributes=one,
        annotations=Annotations(inputs=(tensor(1, 1, 2),), outputs=(None,)),
        params={"input_size": 2, "hidden_size": 1, "bias": False, "rounds": rounds},
    )  # fmt: skip
    found = layer.forward([np.array([[[0.5, -0.25]]], np.float32)])
    step = 0.75 / 255
    assert found[0, 0, 0] == pytest.approx(np.tanh(170 * step - 85 * step), abs=1e-6)
