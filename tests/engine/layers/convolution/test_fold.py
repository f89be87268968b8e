"""Patches: what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from engine import TensorSpec
from tests.engine.layers.refusals import build, refusal, tensor

COLUMNS = tensor(1, 8, 12)
FOLD = {"output_size": (4, 5), "kernel_size": 2}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"output_size": (4, 5, 6)}, "output_size does not fit: found [4, 5, 6], expected height and width"),
        ({"kernel_size": (2, 0)}, "kernel_size does not fit: found [2, 0], expected 2 numbers, at least 1"),
        ({"padding": -1}, "padding does not fit: found [-1], expected 2 numbers, at least 0"),
        ({"kernel_size": 3}, "rows are not divisible into patches: found 8, expected a multiple of 9"),
        ({"output_size": (4, 4)}, "wrong number of patches: found [1, 8, 12], expected 9 patches"),
    ],
)
def test_patches_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    assert refusal("F.fold", COLUMNS, **{**FOLD, **changed}) == message


def test_an_image_smaller_than_a_patch_is_refused() -> None:
    message = refusal("nn.Unfold", tensor(1, 1, 2, 5), kernel_size=3)
    assert message == "the input is smaller than the window: found size 2, padded 2, expected at least 3"


def test_dynamic_dimensions_stay_dynamic() -> None:
    layer = build("F.unfold", 1, kernel_size=2)
    assert layer.infer([TensorSpec((None, 3, None, 4), COLUMNS.dtype)]) == TensorSpec((None, 12, None), COLUMNS.dtype)
