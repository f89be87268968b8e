"""Quantised tensors: what may be done with them, and that nothing else is done with their integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine import EngineError, Session, ShapeError, registry
from engine.layers import bind
from engine.layers.definition.layer import NO_ANNOTATIONS
from engine.layers.quantised.quantised import quantised
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.layers.refusals import build, refusal, tensor

U8, I8 = "uint8", "int8"
SCALED = {"weight.q_per_channel_scales": tensor(2, dtype="float64"), "weight.q_per_channel_zero_points": tensor(2)}
LINEAR = {"weight": tensor(2, 3, dtype=I8), "bias": tensor(2), **SCALED}
CONV = {"weight": tensor(2, 3, 1, 1, dtype=I8), "bias": tensor(2), **SCALED}
OUT = {"scale": 0.5, "zero_point": 3}


def numbers(*values: int, scale: float = 0.5, zero_point: int = 10) -> np.ndarray:
    return quantised(np.array(values, np.uint8), scale, zero_point)


def values(array: Any) -> list[float]:
    return [(int(each) - array.zero_point) * array.scale for each in array.view(np.ndarray)]


def test_views_keep_scale_and_zero_point() -> None:
    view = np.reshape(numbers(1, 2, 3, 4), (2, 2)).T[1:]
    assert (view.scale, view.zero_point) == (0.5, 10)


def test_relu_compares_with_the_integer_that_stands_for_zero() -> None:
    relu = build("nn.ReLU", 1)
    assert values(relu.forward([numbers(0, 9, 10, 14)])) == [0, 0, 0, 2]


@pytest.mark.parametrize(
    "compute",
    [
        lambda q: q + 1,
        lambda q: q.astype(np.float32) * 2,
        lambda q: q.sum(),
        lambda q: np.maximum.reduce(q),
        lambda q: np.concatenate([q, q]),
        lambda q: q @ q,
    ],
)
def test_arithmetic_on_the_integers_is_refused(compute: Callable[[np.ndarray], object]) -> None:
    with pytest.raises(
        ShapeError,
        match=r"the operator is not defined for quantised tensors: found \w+, expected torch.dequantize before it",
    ):
        compute(numbers(1, 2))


def test_comparing_tensors_quantised_in_different_ways_is_refused() -> None:
    with pytest.raises(ShapeError) as caught:
        np.maximum(numbers(1), numbers(1, scale=0.25))
    assert str(caught.value) == (
        "tensors have different scales, zero points or dtypes: found uint8 with scale 0.25 and zero point 10, "
        "expected uint8 with "
        "scale 0.5 and zero point 10"
    )


def test_an_operator_that_knows_no_quantised_tensors_is_named() -> None:
    net = built(
        INPUT,
        op("nn.quantized.Quantize", "quantise", "0", "1", scale=0.5, zero_point=0, dtype="torch.quint8"),
        op("nn.Sigmoid", "sigmoid", "1", "2"),
        op("pnnx.Output", "out", "2"),
        _0=(3,),
    )
    with pytest.raises(
        EngineError, match=r"^sigmoid \(nn.Sigmoid\): the operator is not defined for quantised tensors: found \w+"
    ):
        Session(net, backend="reference").run([np.ones(3, F32)])


def test_a_quantised_output_comes_as_its_integers() -> None:
    net = built(
        INPUT,
        op("nn.quantized.Quantize", "quantise", "0", "1", scale=0.5, zero_point=7, dtype="torch.quint8"),
        op("pnnx.Output", "out", "1"),
        _0=(3,),
    )
    (found,) = Session(net, backend="reference").run([np.ones(3, F32)])
    assert type(found) is np.ndarray
    assert found.tolist() == [9, 9, 9]


@pytest.mark.parametrize(
    ("type", "operand", "attributes", "params", "message"),
    [
        ("nn.quantized.Linear", tensor(5, 4, dtype=U8), LINEAR, OUT,
         "input does not fit the weight: found [5, 4] by [2, 3], expected [..., I] by [O, I]"),
        ("nn.quantized.Linear", tensor(5, 3, dtype=U8), {**LINEAR, "weight": tensor(2, 3)}, OUT,
         "attribute 'weight' is not quantised: found float32, expected int8"),
        ("nn.quantized.Linear", tensor(5, 3, dtype=U8), {"weight": LINEAR["weight"], "bias": LINEAR["bias"]}, OUT,
         "the scale of attribute 'weight' is not in the file, expected a weight quantised per channel, with its scales "
         "and zero points"),
        ("nn.quantized.Linear", tensor(5, 3, dtype=U8), {**LINEAR, "bias": tensor(3)}, OUT,
         "bias do not fit the weight: found [3], expected [2]"),
        ("nn.quantized.Linear", tensor(5, 3, dtype=U8), LINEAR, {**OUT, "scale": 0.0},
         "scale must be positive: found 0.0"),
        ("nn.quantized.Conv2d", tensor(1, 4, 2, 2, dtype=U8), CONV, OUT,
         "input has the wrong number of channels: found 4, expected 3"),
        ("nn.quantized.Conv2d", tensor(1, 3, 2, 2, dtype=U8), {**CONV, "weight": tensor(2, 3, 1, 1)}, OUT,
         "attribute 'weight' is not quantised: found float32, expected int8"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    type: str, operand: Any, attributes: dict[str, Any], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(EngineError) as caught:
        build(type, 1, attributes, **params).infer([operand])
    assert str(caught.value) == message


@pytest.mark.parametrize("type", ["nn.quantized.Linear", "nn.quantized.cat"])
def test_integers_that_are_not_quantised_are_refused(type: str) -> None:
    layer = build(type, 1, LINEAR if type.endswith("Linear") else {}, **OUT)
    with pytest.raises(ShapeError, match="input is not quantised: found uint8"):
        layer.forward([np.zeros((5, 3), np.uint8)])


def test_a_zero_point_of_the_weight_stands_for_zero() -> None:
    attributes = {key: np.zeros(spec.shape, spec.dtype) for key, spec in LINEAR.items()}
    attributes["weight"] += np.int8(5)
    attributes["weight.q_per_channel_scales"] += 1.0
    attributes["weight.q_per_channel_zero_points"] = np.array([5, 4])
    layer = bind(
        registry["nn.quantized.Linear"], n_inputs=1, params=OUT, attributes=attributes, annotations=NO_ANNOTATIONS
    )
    assert values(layer.forward([numbers(11, 12, 13)])) == [0, 3]


def test_a_scale_that_is_not_positive_is_refused() -> None:
    message = refusal("nn.quantized.cat", tensor(3, dtype=U8), scale=-1.0, zero_point=0)
    assert message == "scale must be positive: found -1.0"
