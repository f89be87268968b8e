"""Activations: what they refuse, and what samples cannot show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Session
from tests.engine.graph.build import INPUT, built, op
from tests.engine.layers.refusals import build, refusal, tensor


@pytest.mark.parametrize(
    ("type", "params", "message"),
    [
        ("nn.GELU", {"approximate": "sigmoid"}, "unknown approximate: found sigmoid, expected none or tanh"),
        ("F.celu", {"alpha": 0}, "alpha must not be zero: found 0.0"),
        ("F.hardtanh", {"min_val": 2.0, "max_val": 1.0}, "min_val is greater than max_val: found 2.0 > 1.0"),
        ("nn.Threshold", {"threshold": 1.0}, "parameter 'value' is missing"),
        ("nn.ELU", {"alpha": "big"}, "parameter 'alpha': wrong kind of value: found 'big', expected float"),
        (
            "nn.Softshrink",
            {"lambd": -1.0},
            "lambd is out of range: found -1.0, expected a finite number from 0",
        ),
        (
            "nn.RReLU",
            {"lower": 1.0, "upper": 0.5},
            "lower and upper do not form an interval: found 1.0 and 0.5, expected finite numbers in order",
        ),
        ("nn.SiLU", {"beta": 2.0}, "unknown parameter 'beta', expected input"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(type: str, params: dict[str, Any], message: str) -> None:
    assert refusal(type, tensor(2, 3), **params) == message


@pytest.mark.parametrize(
    ("shape", "dim", "message"),
    [
        ((2, 3), 1, "dimension 1 cannot be halved: found 3, expected an even size"),
        ((), -1, "a 0-dim tensor cannot be halved"),
        ((2, 4), 2, "dim is out of range: found 2, expected -2 to 1"),
    ],
)
def test_glu_refuses_what_it_cannot_halve(shape: tuple[int, ...], dim: int, message: str) -> None:
    assert refusal("F.glu", tensor(*shape), dim=dim) == message


def test_prelu_refuses_weights_that_do_not_fit_the_channels() -> None:
    message = "weight does not fit the channels: found [3], expected [1] or [4]"
    assert refusal("F.prelu", tensor(2, 4, 5), tensor(3)) == message


def test_a_dynamic_dimension_is_halved_to_an_open_one() -> None:
    spec = build("F.glu", 1).infer([tensor(2, 4)])
    assert spec.shape == (2, 2)
    assert build("F.glu", 1, dim=0).infer([type(spec)((None, 4), spec.dtype)]).shape == (None, 4)


def test_operands_are_left_alone() -> None:
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    before = x.copy()
    for name in ("F.sigmoid", "F.silu", "F.gelu", "F.softplus", "F.logsigmoid"):
        build(name, 1).forward([x])
    np.testing.assert_array_equal(x, before)


INF, NAN = float("inf"), float("nan")
X = [0.0, 1.0, -1.0, 100.0, -INF, NAN]


# What PyTorch 2.13 gives for X.
@pytest.mark.parametrize(
    ("type", "params", "expected"),
    [
        ("F.leaky_relu", {"negative_slope": INF}, [NAN, 1, -INF, 100, -INF, NAN]),
        ("F.leaky_relu", {"negative_slope": -INF}, [NAN, 1, INF, 100, INF, NAN]),
        ("F.leaky_relu", {"negative_slope": NAN}, [NAN, 1, NAN, 100, NAN, NAN]),
        ("F.elu", {"alpha": INF}, [0, 1, -INF, 100, -INF, NAN]),
        ("F.elu", {"alpha": NAN}, [0, 1, NAN, 100, NAN, NAN]),
        ("F.celu", {"alpha": INF}, [0, 1, NAN, 100, NAN, NAN]),
        ("F.celu", {"alpha": -INF}, [0, 1, NAN, 100, NAN, NAN]),
        ("F.softplus", {"beta": 1.0, "threshold": INF}, [0.6931472, 1.3132616, 0.3132617, INF, 0, NAN]),
        ("F.softplus", {"beta": 1.0, "threshold": NAN}, [0.6931472, 1.3132616, 0.3132617, INF, 0, NAN]),
        ("F.softplus", {"beta": 0.0, "threshold": 20.0}, [INF, INF, INF, INF, NAN, NAN]),
        ("F.softplus", {"beta": INF, "threshold": 20.0}, [NAN, 1, 0, 100, 0, NAN]),
        ("F.hardshrink", {"lambd": INF}, [0, 0, 0, 0, 0, NAN]),
        ("F.hardshrink", {"lambd": -1.0}, [0, 1, -1, 100, -INF, NAN]),
        ("F.threshold", {"threshold": NAN, "value": 7.0}, [0, 1, -1, 100, -INF, NAN]),
    ],
)
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_extreme_parameters_give_what_pytorch_gives(
    backend: str, type: str, params: dict[str, float], expected: list[float]
) -> None:
    graph = built(INPUT, op(type, "it", "0", "1", **params), op("pnnx.Output", "out", "1"), _0=(len(X),))
    (found,) = Session(graph, backend=backend, cache=None).run([np.array(X, np.float32)])
    np.testing.assert_allclose(found, np.array(expected, np.float32), rtol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "auto"])
@pytest.mark.parametrize("slope", [INF, -INF, NAN])
def test_a_slope_that_is_a_weight_may_be_extreme_too(backend: str, slope: float) -> None:
    weight = op("pnnx.Attribute", "w", "", "w", data=np.array([slope], np.float32))
    prelu = op("F.prelu", "it", "0 w", "1")
    graph = built(INPUT, weight, prelu, op("pnnx.Output", "out", "1"), _0=(len(X),))
    (found,) = Session(graph, backend=backend, cache=None).run([np.array(X, np.float32)])
    np.testing.assert_array_equal(found, np.array([NAN, 1, -slope, 100, -slope, NAN], np.float32))
