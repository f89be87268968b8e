"""Deformable convolution: what is refused."""

from __future__ import annotations

import pytest

from engine import TensorSpec
from tests.engine.layers.refusals import refusal, tensor

IMAGE, OFFSET, MASK = tensor(1, 4, 5, 5), tensor(1, 18, 3, 3), tensor(1, 9, 3, 3)
WEIGHT = {"weight": tensor(6, 4, 3, 3)}
CONV = {"in_channels": 4, "out_channels": 6, "kernel_size": (3, 3), "bias": False}


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        (
            (tensor(4, 5, 5), OFFSET),
            "input has the wrong number of dimensions: found [4, 5, 5], expected 4",
        ),
        ((IMAGE, tensor(1, 18, 3, 2)), "offset does not fit: found [1, 18, 3, 2], expected [1, ?, 3, 3]"),
        (
            (IMAGE, tensor(1, 20, 3, 3)),
            "offset does not divide into groups: found 20, expected a multiple of 18 whose number divides the input's "
            "channels",
        ),
        (
            (IMAGE, tensor(1, 54, 3, 3)),
            "offset does not divide into groups: found 54, expected a multiple of 18 whose number divides the input's "
            "channels",
        ),
        (
            (IMAGE, OFFSET, tensor(1, 18, 3, 3)),
            "mask and offset differ in their groups: found [1, 18, 3, 3], expected 1",
        ),
        ((tensor(1, 3, 5, 5), OFFSET, MASK), "input has the wrong number of channels: found 3, expected 4"),
    ],
)
def test_operands_that_do_not_fit_are_refused(operands: tuple[TensorSpec, ...], message: str) -> None:
    assert refusal("torchvision.ops.DeformConv2d", *operands, attributes=WEIGHT, **CONV) == message


def test_a_weight_that_contradicts_the_parameters_is_refused() -> None:
    message = refusal("torchvision.ops.DeformConv2d", IMAGE, OFFSET, attributes=WEIGHT, **{**CONV, "out_channels": 5})
    assert message == "weight does not fit the parameters: found [6, 4, 3, 3], expected [5, 4, 3, 3]"
