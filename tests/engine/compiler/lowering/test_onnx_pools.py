"""Pools as ONNX has them: whatever padding, dilation or hanging window, the reference's answers, places included."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.pnnx import Operator
from tests.engine.compiler.lowering.agreeing import check, everywhere
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(17)
CLOSE = 1e-6
FORMS: list[dict[str, Any]] = [
    {"kernel_shape": (3, 3), "auto_pad": "SAME_UPPER", "strides": (2, 2)},
    {"kernel_shape": (2, 3), "auto_pad": "SAME_LOWER"},
    {"kernel_shape": (3, 2), "pads": (1, 0, 2, 1), "strides": (2, 3)},
    {"kernel_shape": (3, 3), "pads": (0, 2, 1, 0), "dilations": (2, 1), "ceil_mode": 1, "strides": (3, 2)},
]


def image(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers of which some are equal, infinite or none."""
    x = RANDOM.integers(-40, 40, shape).astype(dtype) / 8
    x[RANDOM.random(shape) < 0.03] = np.inf
    x[RANDOM.random(shape) < 0.03] = np.nan
    return x


def largest(given: dict[str, Any], outputs: str = "m places") -> Operator:
    return op("MaxPool", "largest", "0", outputs, **given)


def pools(given: dict[str, Any]) -> list[Operator]:
    return [
        largest(given),
        op("MaxPool", "values", "0", "v", **given),
        op("AveragePool", "mean", "0", "a", **given),
        op("AveragePool", "padded", "0", "p", count_include_pad=1, **given),
    ]


@pytest.mark.parametrize("given", FORMS, ids=str)
def test_windows_with_other_padding_before_than_after(given: dict[str, Any]) -> None:
    check([image(2, 5, 11, 9)], *pools(given), tolerance=CLOSE)


def test_such_windows_on_any_processor() -> None:
    everywhere([image(1, 19, 7, 10)], *pools(FORMS[3]), tolerance=CLOSE)


def test_windows_of_signals_volumes_and_large_images() -> None:
    check([image(3, 4, 17)], largest({"kernel_shape": (4,), "pads": (1, 2), "strides": (3,)}))
    volume = {"kernel_shape": (2, 3, 2), "auto_pad": "SAME_UPPER", "strides": (2, 1, 2)}
    check([image(2, 3, 5, 4, 6)], largest(volume), op("AveragePool", "mean", "0", "a", **volume), tolerance=CLOSE)
    large = {"kernel_shape": (3, 3), "auto_pad": "SAME_UPPER", "strides": (2, 2)}
    check([image(1, 64, 56, 57)], op("AveragePool", "mean", "0", "a", **large), tolerance=CLOSE)


def test_a_window_that_is_as_large_as_the_image() -> None:
    given = {"kernel_shape": (1, 1), "strides": (2, 2)}
    check([image(1, 1, 1, 1)], largest(given), op("AveragePool", "mean", "0", "a", **given))
    check([image(2, 3, 2, 2)], largest({"kernel_shape": (3, 3), "auto_pad": "SAME_UPPER"}))


def test_places_of_a_pnnx_pool_are_counted_in_the_whole_tensor_where_no_dilation_is_written() -> None:
    given = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": False, "return_indices": True}
    check([image(2, 5, 9, 8)], op("nn.MaxPool2d", "pool", "0", "1 2", **given))


def test_means_of_dilated_windows_divide_by_their_taps() -> None:
    x = RANDOM.standard_normal((1, 9, 12, 13)).astype(np.float32)
    for counts in (0, 1):
        given = {"kernel_shape": (3, 3), "dilations": (2, 3), "pads": (2, 3, 1, 2), "count_include_pad": counts}
        check([x], op("AveragePool", "mean", "0", "a", **given), tolerance=CLOSE)


@pytest.mark.parametrize("p", [1, 2, 3, 2.5])
def test_powers_of_windows_and_of_whole_images(p: float) -> None:
    operators = [
        op("LpPool", "windows", "0", "w", p=p, kernel_shape=(3, 2), pads=(1, 0, 0, 1), strides=(2, 1)),
        op("LpPool", "dilated", "0", "d", p=p, kernel_shape=(2, 2), dilations=(3, 1), auto_pad="SAME_LOWER"),
        op("GlobalLpPool", "whole", "0", "g", p=p),
    ]
    check([image(2, 5, 7, 9)], *operators, tolerance=CLOSE)


@pytest.mark.parametrize("shape", [(2, 3, 8, 6), (1, 1, 2, 2)], ids=str)
def test_what_was_pooled_is_put_back(shape: tuple[int, ...]) -> None:
    given = {"kernel_shape": (2, 2), "strides": (2, 2)}
    unpool = op("MaxUnpool", "unpool", "m places", "back", **given)
    check([RANDOM.standard_normal(shape).astype(np.float32)], largest(given), unpool)


def test_float64_keeps_its_digits() -> None:
    operators = [largest(FORMS[2]), op("AveragePool", "mean", "0", "a", **FORMS[2]),
                 op("LpPool", "powers", "0", "p", p=2, **FORMS[2])]  # fmt: skip
    check([image(2, 5, 11, 9, dtype="float64")], *operators, tolerance=1e-14)


def test_places_counted_along_columns_are_left_to_the_reference() -> None:
    check([image(1, 2, 5, 4)], largest({"kernel_shape": (2, 2), "storage_order": 1}), op("nn.ReLU", "r", "0", "q"),
          is_whole=False)  # fmt: skip
