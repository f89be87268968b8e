"""Outputs to pictures, by hand on a few pixels."""

from __future__ import annotations

import base64
import io
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

import engine
from app.errors import ConfigError, InvalidRequestError
from app.images.config import PreprocessConfig
from app.images.decode import Picture
from app.images.placement import Placement
from app.images.preprocess import Preprocessor
from app.settings import Settings
from app.tasks.images.image import ImageTask
from tests.app.pictures import encoded, gradient, run_of
from tests.app.tasks.build import task_of

task = partial(task_of, ImageTask)


def predict(values: Any, placement: Placement | None = None, **config: Any) -> Image.Image:
    """values: (C, H, W) or (H, W)."""
    array = values if isinstance(values, np.ndarray) else np.array(values, np.float32)
    made, placed = task(**config), placement if placement is not None else Placement.identity((1, 1))
    found = made.predict({"out0": array[None]}, [placed], made.options({}))[0]
    image = Image.open(io.BytesIO(base64.b64decode(found["image"])))
    assert image.format == "PNG" and image.size == (found["width"], found["height"])
    return image


def rgb(image: Image.Image) -> list[Any]:
    assert image.mode == "RGB"
    return np.asarray(image)[0].tolist()


def test_values_of_0_to_1_are_pixels_of_0_to_255() -> None:
    assert rgb(predict([[[0, 1]], [[0.5, 0.2]], [[2, -1]]])) == [[0, 128, 255], [255, 51, 0]]


def test_one_channel_is_grey() -> None:
    for values in ([[[0, 1, 0.2]]], [[0, 1, 0.2]]):
        image = predict(values)
        assert image.mode == "L" and np.asarray(image).tolist() == [[0, 255, 51]]


def test_bgr_is_swapped_back() -> None:
    assert rgb(predict([[[0]], [[0.2]], [[1]]], color="bgr")) == [[255, 51, 0]]


def test_std_mean_and_scale_come_in_this_order() -> None:
    found = predict([[[1]], [[2]], [[3]]], std=(2, 3, 4), mean=(1, 0, -2), scale=10)
    assert rgb(found) == [[(1 * 2 + 1) * 10, 2 * 3 * 10, (3 * 4 - 2) * 10]]


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_whole_numbers_are_pixels(dtype: type) -> None:
    assert rgb(predict(np.array([[[7]], [[8]], [[255]]], dtype))) == [[7, 8, 255]]
    assert rgb(predict(np.array([[[1]], [[0]], [[1]]], dtype), scale=255)) == [[255, 0, 255]]


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16, np.bool_])
def test_every_real_dtype_is_taken(dtype: Any) -> None:
    assert rgb(predict(np.array([[[1]], [[0]], [[1]]]).astype(dtype))) == [[255, 0, 255]]


def test_what_is_not_finite_is_black_or_as_bright_as_can_be() -> None:
    assert rgb(predict([[[np.nan]], [[np.inf]], [[-np.inf]]])) == [[0, 255, 0]]
    assert rgb(predict(np.array([[[1e308]], [[-1e308]], [[1e300]]]), scale=1e30)) == [[255, 0, 255]]


@given(arrays.arrays(np.float32, (3, 2, 3), elements=st.floats(width=32)))
def test_any_values_make_a_picture(values: np.ndarray) -> None:
    assert predict(values).size == (3, 2)


@pytest.mark.parametrize(
    ("config", "image"),
    [({}, {}), ({"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},) * 2, ({"color": "bgr"},) * 2,
     ({"scale": 1.0}, {"scale": 1.0})],
)  # fmt: skip
def test_the_same_keys_undo_the_preprocessing(config: dict[str, Any], image: dict[str, Any]) -> None:
    port = engine.Port(name="in0", operand="0", spec=engine.TensorSpec((1, 3, 9, 14), np.dtype(np.float32)))
    made = Preprocessor(port, PreprocessConfig.model_validate(config), Settings())
    run = run_of(made, [Picture(data=encoded(gradient(14, 9)))])
    found = predict(run.tensors["in0"][0], run.contents[0], **image)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(gradient(14, 9)))


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_what_was_filled_in_is_cut_off_at_any_resolution(factor: int) -> None:
    placement = Placement(picture=(10, 5), resized=(4, 2), canvas=(4, 4), origin=(0, -1))
    values = np.zeros((4, 4), np.float32)
    values[1:3] = 1
    found = predict(np.kron(values, np.ones((factor, factor), np.float32)), placement)
    assert np.asarray(found).tolist() == [[255] * 4 * factor] * 2 * factor


def test_a_multiple_is_cut_off() -> None:
    placement = Placement(picture=(5, 3), resized=(5, 3), canvas=(8, 4))
    assert predict(np.zeros((3, 8, 16), np.float32), placement).size == (10, 6)


def test_a_crop_gives_what_was_seen() -> None:
    placement = Placement(picture=(10, 5), resized=(8, 4), canvas=(4, 4), origin=(2, 0))
    assert predict(np.zeros((3, 4, 4), np.float32), placement).size == (4, 4)


def test_something_is_left_of_the_narrowest_picture() -> None:
    placement = Placement(picture=(1, 100), resized=(1, 100), canvas=(100, 100), origin=(-49, 0))
    assert predict(np.zeros((3, 5, 5), np.float32), placement).size == (1, 5)


def test_each_item_of_a_batch_has_its_picture() -> None:
    made = task()
    values = np.float32([0, 1]).reshape(2, 1, 1, 1)
    found = made.predict({"out0": values}, [Placement.identity((1, 1))] * 2, made.options({}))
    assert [item["width"] for item in found] == [1, 1] and found[0]["image"] != found[1]["image"]


@pytest.mark.parametrize(
    ("shape", "dtype", "config", "message"),
    [
        ((2, 4, 4), np.float32, {}, r"output 'out0': found \[1, 2, 4, 4\] float32, expected real numbers \(N, 3 or 1"),
        ((4,), np.float32, {}, r"output 'out0': found \[1, 4\]"),
        ((3, 0, 4), np.float32, {}, r"output 'out0': found \[1, 3, 0, 4\]"),
        ((3, 4, 4), np.complex64, {}, "complex64, expected real numbers"),
        ((3, 4, 4), np.float32, {"color": "grey"}, "image.color: found 'grey', but the output has 3 channels"),
        ((1, 4, 4), np.float32, {"color": "rgb"}, "image.color: found 'rgb', but the output has 1 channels"),
        ((3, 4, 4), np.float32, {"mean": (1, 2)}, "image.mean: found 2 values, expected 1 or 3"),
        ((1, 4, 4), np.float32, {"std": (1, 2, 3)}, "image.std: found 3 values, expected 1 or 1"),
    ],
)
def test_what_does_not_fit_is_refused(shape: Any, dtype: Any, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predict(np.zeros(shape, dtype), **config)


def test_an_output_the_model_has_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="image.output: found 'out9', expected one of 'out0'"):
        task(output="out9")


def test_outputs_of_another_batch_are_refused() -> None:
    made = task()
    with pytest.raises(ConfigError, match="the outputs: found 1 items, expected 2"):
        made.predict({"out0": np.zeros((1, 1, 2, 2))}, [Placement.identity((1, 1))] * 2, made.options({}))


def test_there_are_no_parameters() -> None:
    with pytest.raises(InvalidRequestError, match="unknown parameter 'scale', this model takes none"):
        task().options({"scale": 1})
