"""Resize and Upsample: sizes from scales, the nearest element, integers.

The specification leaves open in which precision sizes and places are computed; onnxruntime's answers decide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.combining import together
from tests.engine.onnx_files.models import expected, model, node, save, value
from tests.nightly import IS_NIGHTLY

KINDS = {1: np.float32, 10: np.float16, 11: np.float64, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64}
PLACES = ("half_pixel", "pytorch_half_pixel", "asymmetric", "align_corners")

# A length, the one that a scale is to make of it, and what onnxruntime 1.32 makes of it by float32(wanted / length).
SIZES = [
    (22, 15, 15), (88, 120, 120), (7, 31, 30), (7, 61, 61), (49, 29, 29), (88, 91, 91), (7, 62, 61), (7, 234, 233),
    (3, 5, 5), (3, 125, 125), (399, 499, 499), (1, 1, 1), (14, 117, 116),
]  # fmt: skip


def by_scale(kind: str, length: int, wanted: int, size: Any) -> Any:
    inputs, opset = (["x", "", "s"], 18) if kind == "Resize" else (["x", "s"], 9)
    weights = {"s": np.array([1, 1, wanted / length], np.float32)}
    return model([node(kind, inputs, ["y"])], [value("x", size)], [value("y", None)], weights, opset=opset)


@pytest.mark.parametrize("size", ["fixed", "open", "unknown"])
@pytest.mark.parametrize("kind", ["Resize", "Upsample"])
def test_a_size_is_the_floor_of_a_float32_product(kind: str, size: str, tmp_path: Path) -> None:
    for length, wanted, made in SIZES:
        declared = {"fixed": [1, 1, length], "open": ["n", "c", "w"], "unknown": None}[size]
        graph = engine.load(save(tmp_path, by_scale(kind, length, wanted, declared)))
        session = engine.Session(graph, backend="compiled" if length < 4 else "reference", cache=None)
        (y,) = session.run([np.zeros((1, 1, length), np.float32)])
        assert y.shape == (1, 1, made), (length, wanted)


def test_a_resized_image_fits_the_branch_beside_it(tmp_path: Path) -> None:
    nodes = [node("Resize", ["x", "", "s"], ["u"], mode="linear"), node("Add", ["u", "k"], ["y"])]
    weights = {"s": np.array([1, 1, 15 / 22], np.float32), "k": np.zeros((1, 1, 15), np.float32)}
    made = model(nodes, [value("x", [1, 1, 22])], [value("y", None)], weights)
    (y,) = engine.Session(engine.load(save(tmp_path, made)), backend="compiled", cache=None).run(
        [np.ones((1, 1, 22), np.float32)]
    )
    np.testing.assert_allclose(y, np.ones((1, 1, 15)))


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_the_nearest_element_is_that_of_onnxruntime(places: str, rounding: str, by: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    inputs = ["x", "", "by", ""] if by == "scales" else ["x", "", "", "by"]
    how = {"mode": "nearest", "coordinate_transformation_mode": places, "nearest_mode": rounding}
    ports = [value("x", ["n"]), value("by", [1], 1 if by == "scales" else 7)]
    path = save(tmp_path, model([node("Resize", inputs, ["y"], **how)], ports, [value("y", ["m"])], opset=18))
    theirs = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    mine = engine.Session(engine.load(path), backend="reference")
    # Of the first ones two lie within a float32's rounding of half way, where the rounding decides.
    pairs = [(14, 19), (364, 403), (81, 420), (10, 212), (7, 31), (88, 91), (8, 8)]
    if IS_NIGHTLY:  # all lengths and targets; which one each combination sees of the larger ones is shared out
        pairs += [(n, t) for n in range(1, 400) for t in range(1 + n % 7, 500, 7)]
    for length, wanted in pairs:
        by_value = np.array([wanted / length], np.float32) if by == "scales" else np.array([wanted])
        if by == "scales" and np.float32(length) * by_value[0] < 1:
            continue
        feeds = {"x": np.arange(length, dtype=np.float32), "by": by_value}
        np.testing.assert_array_equal(mine.run(feeds)[0], theirs.run(None, feeds)[0], err_msg=f"{length} to {wanted}")


@pytest.mark.skipif(not IS_NIGHTLY, reason="all pairs take minutes")
def test_every_size_by_a_scale_is_that_of_onnxruntime(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    ports = [value("x", ["n"]), value("by", [1])]
    path = save(tmp_path, model([node("Resize", ["x", "", "by"], ["y"])], ports, [value("y", ["m"])], opset=18))
    theirs = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    mine = engine.Session(engine.load(path), backend="reference")
    for length in range(1, 400):
        x = np.arange(length, dtype=np.float32)
        for wanted in range(1, 500):
            scale = np.array([wanted / length], np.float32)
            if np.float32(length) * scale[0] >= 1:
                feeds = {"x": x, "by": scale}
                np.testing.assert_array_equal(mine.run(feeds)[0], theirs.run(None, feeds)[0])


@together(
    ("dtype", KINDS),
    ("mode,antialias", [("linear", 0), ("linear", 1), ("cubic", 0), ("cubic", 1), ("nearest", 0)]),
    ("target", [(9, 4), (3, 7), (2, 2)]),
    ("declared", ["fixed", "open", "unknown"]),
)
def test_numbers_of_every_kind_are_rounded_and_saturated(
    dtype: int, mode: str, antialias: int, target: tuple[int, int], declared: str, tmp_path: Path
) -> None:
    size = {"fixed": [1, 2, 4, 5], "open": ["n", "c", "h", "w"], "unknown": None}[declared]
    resize = node("Resize", ["x", "", "", "to"], ["y"], mode=mode, antialias=antialias)
    weights = {"to": np.array([1, 2, *target])}
    made = model([resize], [value("x", size, dtype)], [value("y", None, dtype)], weights, opset=18)
    kind = np.dtype(KINDS[dtype])
    random = np.random.default_rng(dtype)
    if kind.kind in "iu":  # the ends of its range beside each other, so that cubic ones go past them
        ends = (max(np.iinfo(kind).min, -1000), min(np.iinfo(kind).max, 1000))
        x = random.choice([*ends, 0, 3], (1, 2, 4, 5)).astype(kind)
    else:
        x = (random.standard_normal((1, 2, 4, 5)) * 10).astype(kind)
    (wanted,) = expected(made, {"x": x})
    (found,) = engine.Session(engine.load(save(tmp_path, made)), cache=None).run({"x": x})
    assert (found.shape, found.dtype) == (wanted.shape, kind)
    if kind.kind in "iu":  # a sum that is half way between two integers may be rounded to either
        assert np.abs(found.astype(np.float64) - wanted).max() <= (1 if mode != "nearest" else 0)
    else:
        np.testing.assert_allclose(
            found, wanted, rtol=2e-3 if dtype == 10 else 1e-4, atol=1e-2 if dtype == 10 else 1e-4
        )


def test_integers_beyond_float32_are_picked_as_they_are(tmp_path: Path) -> None:
    made = model(
        [node("Resize", ["x", "", "s"], ["y"])], [value("x", ["n"], 7)], [value("y", None, 7)], {"s": np.float32([2])}
    )
    x = np.array([2**53 + 1, -(2**63), 2**63 - 1])
    (y,) = engine.Session(engine.load(save(tmp_path, made)), backend="reference").run([x])
    assert y.tolist() == np.repeat(x, 2).tolist()


def test_a_fraction_of_uint8_is_not_cut_and_does_not_wrap(tmp_path: Path) -> None:
    for size in ([1, 1, 1, 6], ["n", "c", "h", "w"]):
        weights = {"to": np.array([1, 1, 1, 10])}
        resize = node("Resize", ["x", "", "", "to"], ["y"], mode="cubic")
        made = model([resize], [value("x", size, 2)], [value("y", None, 2)], weights, opset=18)
        (y,) = engine.Session(engine.load(save(tmp_path, made))).run([np.uint8([[[[0, 0, 255, 255, 0, 0]]]])])
        assert y.reshape(-1).tolist() == [0, 0, 0, 156, 255, 255, 156, 0, 0, 0]
