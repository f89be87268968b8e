"""Explanations of refused operands: the annotations of the file tell whether the converter is to blame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import ShapeError
from engine.pnnx import Operator
from tests.engine.graph.build import INPUT, built, op

OUTPUT = op("pnnx.Output", "out", "2")
POOLED = op("nn.AdaptiveAvgPool2d", "pool", "0", "1", output_size=(2, 2))


def refused(*operators: Operator, **shapes: Any) -> str:
    with pytest.raises(ShapeError) as caught:
        built(INPUT, *operators, OUTPUT, **shapes)
    return str(caught.value)


def linear(source: str) -> Operator:
    return op(
        "nn.Linear",
        "head",
        source,
        "2",
        in_features=24,
        out_features=5,
        bias=False,
        weight=np.zeros((5, 24), np.float32),
    )


def test_an_operator_that_is_another_one_than_the_file_has_results_of() -> None:
    shuffle = op("nn.PixelShuffle", "shuffle", "1", "2", upscale_factor=2)
    text = refused(POOLED, shuffle, _0=(1, 6, 4, 4), _1=(1, 6, 2, 2), _2=(1, 3, 2, 4))
    assert text.startswith("shuffle (nn.PixelShuffle)")
    assert text.endswith(
        "; the file declares [1, 3, 2, 4] float32: the converter changed this operator or one before it"
    )


def test_an_operator_before_that_gives_another_shape_than_in_the_file() -> None:
    flat = op("torch.flatten", "flat", "0", "1", start_dim=2, end_dim=3)
    text = refused(flat, linear("1"), _0=(1, 6, 2, 2), _1=(1, 24), _2=(1, 5))
    assert "; before it, flat (torch.flatten): operand '1' is [1, 6, 4] float32, the file says [1, 24] float32" in text


def test_a_shuffle_that_is_none_in_truth_is_told_with_a_way_out() -> None:
    shuffle = op("nn.PixelUnshuffle", "shuffle", "0", "1", downscale_factor=2)
    text = refused(shuffle, linear("1"), _0=(1, 6, 2, 2), _1=(1, 24, 1, 1), _2=(1, 5))
    assert "; before it, " not in text  # it is what the file says
    text = refused(shuffle, linear("1"), _0=(1, 6, 2, 2), _1=(1, 6, 4, 1), _2=(1, 5))
    assert "taken for a shuffle; export with --opt-level 1" in text


def test_where_the_file_says_nothing_no_operator_is_blamed() -> None:
    assert ";" not in refused(
        POOLED, op("torch.flatten", "flat", "1", "3", start_dim=2, end_dim=3), linear("3"), _0=(1, 6, 4, 4)
    )
