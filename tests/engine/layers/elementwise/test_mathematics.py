"""Element-wise functions: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.layers.elementwise.ternary import Lerp
from tests.engine.layers.refusals import refusal, tensor

X = tensor(2, 3, 4)
V = tensor(5)
S = tensor()
INTS = tensor(2, 3, dtype="int64")
M = tensor(3, 4)
C = tensor(3, 2, dtype="complex64")

BROADCAST = ", expected each dimension equal or 1, counted from the last"

REFUSALS: list[tuple[str, tuple[object, ...], dict[str, Any], str]] = [
    # mathematics
    (
        "torch.clamp",
        (X, V),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [5]" + BROADCAST,
    ),
    (
        "aten::addcdiv",
        (INTS, INTS, INTS, 1),
        {},
        "integers cannot be divided here: found int64, expected a floating dtype",
    ),
    (
        "aten::lerp",
        (X, V, 0.5),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [5]" + BROADCAST,
    ),
    ("aten::frac", (INTS,), {}, "frac is not defined for this dtype: found int64, expected floating"),
    ("aten::gcd", (M, M), {}, "gcd is not defined for this dtype: found float32, expected integer"),
    ("aten::div", (X, 2, "round"), {}, "unknown rounding_mode: found round, expected floor or trunc"),
    (
        "aten::add",
        (X, V, 1),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [5]" + BROADCAST,
    ),
    (
        "torch.eq",
        (X, V),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [5]" + BROADCAST,
    ),
    (
        "aten::isclose",
        (M, INTS, 1e-05, 1e-08, False),
        {},
        "dtypes differ: found float32 and int64, expected equal ones",
    ),
    (
        "torch.logical_and",
        (X, V),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [5]" + BROADCAST,
    ),
    ("torch.bitwise_not", (X,), {}, "only integers and bools have bits: found float32"),
    ("torch.bitwise_and", (M, M), {}, "and is not defined for this dtype: found float32, expected bool, integer"),
    (
        "aten::float_power",
        (X, V),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [5]" + BROADCAST,
    ),
    ("aten::isposinf", (C,), {}, "complex numbers have no sign: found complex64, expected a real dtype"),
    (
        "torch.lgamma",
        (C,),
        {},
        "lgamma is not defined for this dtype: found complex64, expected bool, integer, floating",
    ),
    # complex
    (
        "torch.complex",
        (M, V),
        {},
        "shapes do not broadcast: found [3, 4] and [5]" + BROADCAST,
    ),
    (
        "torch.complex",
        (M, tensor(3, 4, dtype="float64")),
        {},
        "both parts must have one dtype: found float32 and float64",
    ),
    (
        "torch.complex",
        (tensor(2, dtype="float16"), tensor(2, dtype="float16")),
        {},
        "there is no complex dtype with such parts: found float16, expected float32 or float64",
    ),
    ("torch.imag", (M,), {}, "a complex tensor is needed: found float32"),
    ("torch.view_as_real", (M,), {}, "a complex tensor is needed: found float32"),
    ("torch.view_as_complex", (M,), {}, "the last dimension must hold pairs: found [3, 4], expected 2"),
    ("torch.view_as_complex", (S,), {}, "the last dimension must hold pairs: found [], expected 2"),
    (
        "torch.view_as_complex",
        (tensor(3, 2, dtype="int64"),),
        {},
        "there is no complex dtype with such parts: found int64, expected float32 or float64",
    ),
]


@pytest.mark.parametrize(("type", "operands", "params", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    assert refusal(type, *operands, **params) == message


def test_a_complex_number_has_no_exponent() -> None:
    message = "complex numbers have no order: found complex64, expected a real dtype"
    assert refusal("torch.frexp", tensor(3, dtype="complex64")) == message


def test_numbers_beside_narrow_tensors_keep_their_digits() -> None:
    """As PyTorch 2.13 has it, which computes in float32: 0.3 rounded to float16 first would give -0.9004."""
    start, end = np.array([0, 0.003], np.float16), np.array([-3, -0.015], np.float16)
    assert np.array_equal(Lerp().forward(start, end, 0.3), np.array([-0.89990234375, -0.0023994445800781], np.float16))
