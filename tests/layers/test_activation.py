"""Activations: what they refuse, and what samples cannot show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.layers.refusals import build, refusal, tensor


@pytest.mark.parametrize(
    ("type", "params", "message"),
    [
        ("nn.GELU", {"approximate": "sigmoid"}, "unknown approximation: found sigmoid, expected none or tanh"),
        ("F.celu", {"alpha": 0}, "alpha must not be zero: found 0.0"),
        ("F.hardtanh", {"min_val": 2.0, "max_val": 1.0}, "min_val is greater than max_val: found 2.0 > 1.0"),
        ("nn.Threshold", {"threshold": 1.0}, "parameter 'value' is missing"),
        ("nn.ELU", {"alpha": "big"}, "parameter 'alpha': wrong kind of value: found 'big', expected float"),
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


def test_an_open_dimension_is_halved_to_an_open_one() -> None:
    spec = build("F.glu", 1).infer([tensor(2, 4)])
    assert spec.shape == (2, 2)
    assert build("F.glu", 1, dim=0).infer([type(spec)((None, 4), spec.dtype)]).shape == (None, 4)


def test_operands_are_left_alone() -> None:
    x = np.linspace(-2, 2, 5, dtype=np.float32)
    before = x.copy()
    for name in ("F.sigmoid", "F.silu", "F.gelu", "F.softplus", "F.logsigmoid"):
        build(name, 1).forward([x])
    np.testing.assert_array_equal(x, before)
