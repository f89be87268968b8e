"""Linear maps: what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from engine import TensorSpec
from tests.engine.layers.refusals import build, refusal, tensor


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (
            (tensor(2, 4), tensor(6, 5)),
            "input does not fit the weight: found [2, 4] by [6, 5], expected [..., I] by [O, I]",
        ),
        ((tensor(), tensor(6, 5)), "input does not fit the weight: found [] by [6, 5], expected [..., I] by [O, I]"),
        (
            (tensor(5), tensor(1, 6, 5)),
            "input does not fit the weight: found [5] by [1, 6, 5], expected [..., I] by [O, I]",
        ),
        ((tensor(5), tensor(6, 5), tensor(5)), "bias does not fit the weight: found [5], expected [6]"),
    ],
)
def test_operands_that_do_not_fit_are_refused(operands: tuple[TensorSpec, ...], message: str) -> None:
    assert refusal("F.linear", *operands) == message


def test_an_announced_bias_must_be_there() -> None:
    message = refusal("nn.Linear", tensor(5), attributes={"weight": tensor(6, 5)}, bias=True, in_features=5)
    assert message == "attribute 'bias' is missing: found bias=True without it"


def test_bilinear_refuses_widths_that_do_not_fit() -> None:
    message = refusal("aten::bilinear", tensor(2, 4), tensor(2, 5), tensor(3, 5, 5), None)
    assert message == (
        "inputs do not fit the weight: found [2, 4] and [2, 5] by [3, 5, 5],"
        " expected [..., I] and [..., J] by [O, I, J]"
    )


def test_operations_are_counted_as_two_a_multiply_add() -> None:
    layer = build("nn.Linear", 1, {"weight": tensor(6, 5)}, bias=False)
    assert layer.flops(layer.infer([tensor(3, 5)]), [tensor(3, 5)]) == 2 * 3 * 6 * 5


def test_half_weights_meet_a_float_input_in_float() -> None:
    layer = build("nn.Linear", 1, {"weight": tensor(6, 5, dtype="float16")})
    assert layer.infer([TensorSpec((None, 5), np.dtype(np.float32))]) == TensorSpec((None, 6), np.dtype(np.float32))


def test_a_bias_makes_no_axis() -> None:
    """torch.nn.functional.linear refuses a bias of one element where there is one output without an axis."""
    assert refusal("F.linear", tensor(3), tensor(3), tensor(1)).startswith("bias does not fit")
    assert build("F.linear", 3).infer([tensor(2, 3), tensor(4, 3), tensor(1)]) == tensor(2, 4)


def test_matrices_of_groups_are_as_many_on_both_sides() -> None:
    message = "one matrix for each group is needed: found [1, 2, 4], expected [3, M, K]"
    assert refusal("aten::_grouped_mm", tensor(1, 2, 4), tensor(3, 4, 8)) == message
