"""Images resampled as ONNX has it: every mode, map of places and order of axes gives the reference's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.pnnx import Operator
from tests.engine.compiler.lowering.agreeing import check, everywhere
from tests.engine.graph.build import op

RANDOM = np.random.default_rng(23)
CLOSE = 1e-6
MAPS = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def image(*shape: int, dtype: str = "float32") -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(dtype)


def resized(number: int = 0, **given: Any) -> Operator:
    return op("Resize", f"it_{number}", "0", f"y_{number}", **given)


@pytest.mark.parametrize("places", MAPS)
def test_every_mode_and_map_of_places(places: str) -> None:
    given = {"coordinate_transformation_mode": places, "scales": (1.0, 1.0, 1.7, 0.6)}
    nearest = [resized(k, mode="nearest", nearest_mode=each, **given) for k, each in enumerate(ROUNDINGS)]
    others: list[dict[str, Any]] = [
        {"mode": "linear"},
        {"mode": "linear", "antialias": 1},
        {"mode": "cubic", "cubic_coeff_a": -0.5},
        {"mode": "cubic", "exclude_outside": 1},
    ]
    check([image(2, 5, 9, 11)], *nearest, *(resized(9 + k, **each, **given) for k, each in enumerate(others)),
          tolerance=CLOSE)  # fmt: skip


def test_any_processor() -> None:
    given = {"coordinate_transformation_mode": "asymmetric", "sizes": (1, 19, 7, 13)}
    everywhere([image(1, 19, 5, 9)], resized(0, mode="linear", **given), resized(1, mode="nearest", **given),
               tolerance=CLOSE)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "given"),
    [
        ((1, 1, 1, 1), {"scales": (1.0, 1.0, 3.0, 2.0)}),
        ((5, 7), {"scales": (2.0, 1.5)}),
        ((9,), {"scales": (2.5,)}),
        ((2, 6, 7, 5), {"scales": (1.0, 2.0, 1.3, 1.0)}),
        ((2, 6, 7, 5), {"scales": (2.0, 1.0, 1.0, 1.5)}),
        ((2, 3, 4, 5, 6), {"scales": (1.0, 1.0, 1.5, 0.5, 2.0)}),
        ((2, 3, 4, 5), {"scales": (1.0, 1.0, 1.0, 1.0)}),
        ((2, 3, 4, 5), {"sizes": (9, 9), "axes": (2, 3), "keep_aspect_ratio_policy": "not_larger"}),
    ],
    ids=str,
)
def test_axes_of_any_order(shape: tuple[int, ...], given: dict[str, Any]) -> None:
    x = image(*shape)
    more = op("nn.ReLU", "more", "0", "z")
    places = {"coordinate_transformation_mode": "asymmetric"}
    check([x], resized(0, mode="linear", **places, **given), resized(1, mode="nearest", **places, **given), more,
          tolerance=CLOSE)  # fmt: skip


def test_parts_that_are_cut_out() -> None:
    given = {"coordinate_transformation_mode": "tf_crop_and_resize", "roi": (0.0, 0.0, 0.2, 0.1, 1.0, 1.0, 0.8, 0.9)}
    check([image(2, 5, 9, 11)], resized(mode="linear", sizes=(2, 5, 6, 7), **given), tolerance=CLOSE)


def test_parts_that_reach_outside_are_left_to_the_reference() -> None:
    given = {"coordinate_transformation_mode": "tf_crop_and_resize", "roi": (0.0, 0.0, -0.2, 0.1, 1.0, 1.0, 0.8, 1.9)}
    cut = resized(mode="linear", sizes=(2, 5, 6, 7), extrapolation_value=3.0, **given)
    check([image(2, 5, 9, 11)], cut, op("nn.ReLU", "more", "0", "z"), tolerance=CLOSE, is_whole=False)


def test_more_taps_than_fit_a_pixel_are_taken_axis_by_axis() -> None:
    given = {"mode": "cubic", "antialias": 1, "scales": (1.0, 1.0, 0.2, 0.25)}
    check([image(1, 7, 40, 44)], resized(0, **given), tolerance=CLOSE)


def test_what_is_not_finite_comes_through() -> None:
    x = image(1, 5, 8, 8)
    x[0, 1, 2, 3], x[0, 2, 4, 4], x[0, 3, 5, 5] = np.nan, np.inf, -np.inf
    for mode in ("nearest", "linear", "cubic"):
        given = {"coordinate_transformation_mode": "half_pixel_symmetric", "scales": (1.0, 1.0, 1.6, 1.3)}
        check([x], resized(mode=mode, **given), tolerance=CLOSE)


def test_older_files_and_float64() -> None:
    older = op("Upsample", "older", "0", "u", mode="linear", scales=(1.0, 1.0, 2.0, 2.0))
    check([image(2, 3, 5, 6)], older, tolerance=CLOSE)
    check([image(2, 3, 5, 6, dtype="float64")], resized(mode="linear", scales=(1.0, 1.0, 1.3, 2.0),
          coordinate_transformation_mode="asymmetric"), tolerance=1e-6)  # fmt: skip
