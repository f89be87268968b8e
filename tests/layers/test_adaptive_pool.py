"""Adaptive pools: what they refuse."""

from __future__ import annotations

import pytest

from engine import TensorSpec
from tests.layers.refusals import build, refusal, tensor

IMAGE = tensor(1, 2, 5, 5)


@pytest.mark.parametrize(
    ("output_size", "message"),
    [
        ((2, 2, 2), "output_size does not fit: found [2, 2, 2], expected 2 sizes, or 0 to keep the input's"),
        ((2, -1), "output_size does not fit: found [2, -1], expected 2 sizes, or 0 to keep the input's"),
        ("all", "parameter 'output_size': wrong kind of value: found 'all', expected list of int or None"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(output_size: object, message: str) -> None:
    assert refusal("nn.AdaptiveAvgPool2d", IMAGE, output_size=output_size) == message


@pytest.mark.parametrize(
    ("input", "message"),
    [
        (tensor(5, 5), "input has the wrong number of dimensions: found [5, 5], expected 3 or, with a batch, 4"),
        (tensor(1, 2, 0, 5), "a spatial axis is empty: found [1, 2, 0, 5]"),
        (tensor(1, 2, 5, 5, dtype="int64"), "operand 'input' has the wrong dtype: found int64, expected floating"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(input: TensorSpec, message: str) -> None:
    assert refusal("F.adaptive_max_pool2d", input, output_size=(2, 2)) == message


def test_a_size_that_is_kept_stays_open() -> None:
    layer = build("F.adaptive_avg_pool2d", 1, output_size=(0, 3))
    assert layer.infer([TensorSpec((1, 2, None, None), IMAGE.dtype)]) == TensorSpec((1, 2, None, 3), IMAGE.dtype)
