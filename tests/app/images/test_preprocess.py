"""Pictures to tensors: plain numpy and Pillow's own resize are the oracle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from PIL import Image

import engine
from app.errors import ConfigError, InputMismatchError, RequestTooLargeError
from app.images.config import PreprocessConfig, takes_pictures
from app.images.decode import Picture
from app.images.placement import Placement
from app.images.preprocess import Preprocessor
from app.memory.reservation import MemoryBudget
from app.settings import Settings
from tests.app.pictures import encoded, gradient, run_of

RAPIDOCR = Path(__file__).parents[2] / "data" / "decoders" / "sizes.npz"
Shape = tuple[int | None, ...]


def port(shape: Shape = (1, 3, 4, 6), dtype: Any = np.float32) -> engine.Port:
    return engine.Port(name="in0", operand="0", spec=engine.TensorSpec(shape, np.dtype(dtype)))


def prepare(image: Image.Image, shape: Shape = (1, 3, 4, 6), dtype: Any = np.float32, **config: Any) -> np.ndarray:
    made = Preprocessor(port(shape, dtype), PreprocessConfig(**config), Settings())
    return run_of(made, [Picture(data=encoded(image))]).tensors["in0"]


def chw(image: Image.Image) -> np.ndarray:
    return np.asarray(image).transpose(2, 0, 1)[None]


def test_without_a_table_pixels_become_0_to_1() -> None:
    np.testing.assert_array_equal(prepare(gradient(6, 4)), (chw(gradient(6, 4)) / 255).astype(np.float32))


def test_every_value_is_the_formula_rounded_once() -> None:
    picture, mean, std = gradient(6, 4), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    exact = (chw(picture) / 255 - np.reshape(mean, (1, 3, 1, 1))) / np.reshape(std, (1, 3, 1, 1))
    np.testing.assert_array_equal(prepare(picture, mean=mean, std=std), exact.astype(np.float32))


def test_bgr_swaps_the_channels_before_mean_and_std() -> None:
    found = prepare(gradient(6, 4), color="bgr", scale=1, mean=[1, 2, 3])
    np.testing.assert_array_equal(found, chw(gradient(6, 4))[:, ::-1] - np.float32([1, 2, 3]).reshape(1, 3, 1, 1))


def test_grey_is_one_channel() -> None:
    found = prepare(gradient(6, 4), (1, 1, 4, 6), scale=1)
    np.testing.assert_array_equal(found[0, 0], np.asarray(gradient(6, 4, "L")))


def test_nhwc_keeps_the_channels_last() -> None:
    found = prepare(gradient(6, 4), (1, 4, 6, 3), layout="nhwc", scale=1)
    np.testing.assert_array_equal(found[0], np.asarray(gradient(6, 4)))


def test_uint8_inputs_take_the_pixels_as_they_are() -> None:
    np.testing.assert_array_equal(prepare(gradient(6, 4), dtype=np.uint8), chw(gradient(6, 4)), strict=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ml_dtypes.bfloat16])
def test_the_tensor_has_the_inputs_dtype(dtype: Any) -> None:
    assert prepare(gradient(6, 4), dtype=dtype).dtype == dtype


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos", "box"])
def test_stretching_is_pillows_resize(interpolation: str) -> None:
    picture = gradient(31, 17)
    expected = picture.resize((6, 4), Image.Resampling[interpolation.upper()])
    np.testing.assert_array_equal(prepare(picture, interpolation=interpolation, scale=1), chw(expected))


@pytest.mark.parametrize("size", [(40, 30), (30, 40), (25, 25), (90, 10)])
def test_a_crop_is_a_resize_followed_by_a_cut(size: tuple[int, int]) -> None:
    picture = gradient(*size)
    short = 16
    scale = (short * size[0] // min(size), short * size[1] // min(size))
    left, top = round((scale[0] - 14) / 2), round((scale[1] - 14) / 2)
    expected = picture.resize(scale, Image.Resampling.BILINEAR).crop((left, top, left + 14, top + 14))
    found = prepare(picture, (1, 3, 14, 14), resize="crop", crop_fraction=0.875, scale=1)
    np.testing.assert_allclose(found, chw(expected), atol=1)


def test_a_letterbox_is_filled_around_the_picture() -> None:
    found = prepare(Image.new("RGB", (10, 5), (1, 2, 3)), (1, 3, 8, 8), resize="letterbox", fill=77, scale=1)
    expected = np.full((8, 8, 3), 77)
    expected[2:6] = (1, 2, 3)
    np.testing.assert_array_equal(found[0].transpose(1, 2, 0), expected)


def test_a_letterbox_may_lie_in_the_corner() -> None:
    found = prepare(gradient(6, 2), resize="letterbox", align="corner", fill=9, scale=1)
    np.testing.assert_array_equal(found[..., :2, :], chw(gradient(6, 2)))
    assert (found[..., 2:, :] == 9).all()


def test_a_long_thin_picture_costs_no_more_than_its_canvas() -> None:
    assert prepare(Image.new("L", (60_000, 2)), (1, 3, 224, 224), resize="crop").shape == (1, 3, 224, 224)


def test_none_takes_a_picture_of_the_right_size_as_it_is() -> None:
    np.testing.assert_array_equal(prepare(gradient(6, 4), resize="none", scale=1), chw(gradient(6, 4)))


def test_none_refuses_another_size() -> None:
    with pytest.raises(InputMismatchError, match=r"wrong size: found 5x4, expected 6x4 \(this model does not resize\)"):
        prepare(gradient(5, 4), resize="none")


def test_a_dynamic_size_takes_any_picture_but_not_two_sizes_at_once() -> None:
    made = Preprocessor(port((None, 3, None, None)), PreprocessConfig(resize="none"), Settings())
    first, second = (Picture(data=encoded(gradient(*size)), label=str(size)) for size in ((5, 4), (6, 4)))
    assert run_of(made, [first]).tensors["in0"].shape == (1, 3, 4, 5)
    with pytest.raises(
        InputMismatchError, match=r"\(6, 4\) has a different size than the first: found 6x4, expected 5x4"
    ):
        run_of(made, [first, second])


@pytest.mark.parametrize(("size", "canvas"), [((5, 3), (8, 4)), ((8, 4), (8, 4)), ((1, 9), (4, 12))])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_multiple_repeats_the_last_row_and_column(size: tuple[int, int], canvas: tuple[int, int], mode: str) -> None:
    shape = (1, 3 if mode == "RGB" else 1, None, None)
    made = Preprocessor(port(shape), PreprocessConfig(resize="none", multiple=4, scale=1), Settings())
    prepared = run_of(made, [Picture(data=encoded(gradient(*size, mode)))])
    assert prepared.contents == (Placement(picture=size, resized=size, canvas=canvas),)
    pixels = np.atleast_3d(np.asarray(gradient(*size, mode)))
    for y in range(canvas[1]):
        for x in range(canvas[0]):
            expected = pixels[min(y, size[1] - 1), min(x, size[0] - 1)]
            assert prepared.tensors["in0"][0, :, y, x].tolist() == expected.tolist()


def test_a_model_may_take_smaller_pictures_than_the_server() -> None:
    config = PreprocessConfig(resize="none", max_pixels=100)
    made = Preprocessor(port((1, 3, None, None)), config, Settings())
    assert run_of(made, [Picture(data=encoded(gradient(10, 10)))]).tensors["in0"].shape == (1, 3, 10, 10)
    with pytest.raises(
        RequestTooLargeError, match="the picture has too many pixels: found 101x1, expected at most 100"
    ):
        run_of(made, [Picture(data=encoded(gradient(101, 1)))])


def test_a_picture_may_not_grow_beyond_the_limit() -> None:
    made = Preprocessor(port((1, 3, None, None)), PreprocessConfig(resize="none", multiple=8), Settings(max_pixels=100))
    with pytest.raises(RequestTooLargeError, match="found 24x8 after growing to multiples of 8, expected at most 100"):
        run_of(made, [Picture(data=encoded(gradient(20, 1)))])


def test_the_picture_itself_is_upright_in_its_own_pixels() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right
    made = Preprocessor(port((1, 1, 4, 6)), PreprocessConfig(), Settings())
    opened = made.open(Picture(data=encoded(gradient(9, 5), exif=exif)))
    np.testing.assert_array_equal(opened, gradient(9, 5).transpose(Image.Transpose.ROTATE_270), strict=True)


def test_a_batch_is_its_pictures_one_by_one() -> None:
    made = Preprocessor(port(), PreprocessConfig(), Settings())
    pictures = [Picture(data=encoded(gradient(*size))) for size in ((9, 7), (6, 4), (30, 3))]
    single = [run_of(made, [picture]) for picture in pictures]
    batch = run_of(made, pictures)
    np.testing.assert_array_equal(batch.tensors["in0"], np.concatenate([one.tensors["in0"] for one in single]))
    assert batch.contents == tuple(one.contents[0] for one in single)


def test_transparency_lies_on_the_tables_colour() -> None:
    found = prepare(Image.new("RGBA", (6, 4)), alpha="#102030", scale=1)
    assert found[0, :, 0, 0].tolist() == [0x10, 0x20, 0x30]


def test_more_pictures_than_allowed_are_refused() -> None:
    made = Preprocessor(port(), PreprocessConfig(), Settings(max_images=2))
    with pytest.raises(RequestTooLargeError, match="too many pictures: found 3, expected at most 2"):
        run_of(made, [Picture(data=b"")] * 3)


OPEN: Shape = (None, 3, None, None)
FOLLOWS: dict[str, Any] = {"resize": "letterbox", "fill": 0, "scale": 1.0}


@pytest.mark.parametrize(
    ("size", "picture", "found"),
    [((4, 0), (12, 8), (4, 6)), ((4, 0), (1, 400), (4, 1)), ((0, 6), (12, 8), (4, 6)), ((0, 6), (400, 1), (1, 6))],
)
def test_one_side_of_a_letterbox_may_follow(
    size: tuple[int, int], picture: tuple[int, int], found: tuple[int, int]
) -> None:
    tensor = prepare(gradient(*picture), OPEN, size=size, **FOLLOWS)
    expected = gradient(*picture).resize(found[::-1], Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(tensor, chw(expected))


def test_pictures_of_a_batch_lie_at_the_left_of_the_widest() -> None:
    made = Preprocessor(port(OPEN), PreprocessConfig(size=(4, 0), multiple=8, **FOLLOWS), Settings())
    prepared = run_of(made, [Picture(data=encoded(gradient(*size))) for size in ((8, 8), (40, 8))])
    assert prepared.tensors["in0"].shape == (2, 3, 4, 24) and made.example_size is None
    assert prepared.contents[0] == Placement(picture=(8, 8), resized=(4, 4), canvas=(24, 4))
    narrow = gradient(8, 8).resize((4, 4), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(prepared.tensors["in0"][:1, :, :, :4], chw(narrow))
    assert not prepared.tensors["in0"][0, :, :, 4:].any()


def test_what_follows_is_bounded() -> None:
    with pytest.raises(RequestTooLargeError, match=r"found 32000x32 after resizing to \[32, 0\]"):
        made = Preprocessor(port(OPEN), PreprocessConfig(size=(32, 0), max_pixels=10**6, **FOLLOWS), Settings())
        run_of(made, [Picture(data=encoded(gradient(1000, 1)))])


@pytest.mark.parametrize(("key", "side"), [("min_side", 736), ("max_side", 960)])
def test_limits_give_the_sizes_of_rapidocr(key: str, side: int) -> None:
    with np.load(RAPIDOCR) as record:
        expected = record[f"{key[:3]}_{side}"].tolist()
        pictures = record["pictures"].tolist()
    made = Preprocessor(port(OPEN), PreprocessConfig(resize="limit", multiple=32, **{key: side}), Settings())
    placements = [run_of(made, [Picture(data=encoded(gradient(*size)))]).contents[0] for size in pictures]
    assert [list(each.canvas) for each in placements] == expected
    assert all(each.resized == each.canvas for each in placements)


def test_wide_pictures_are_padded_as_by_rapidocr() -> None:
    with np.load(RAPIDOCR.parent.parent / "pipelines" / "crops.npz") as record:
        wide, expected = record["wide"].tolist(), record["sizes"].tolist()
    config = PreprocessConfig(resize="limit", multiple=32, min_side=736, max_aspect=8, fill=0)
    for size, (above, *canvas) in zip(wide, expected, strict=True):
        made = run_of(Preprocessor(port(OPEN), config, Settings()), [Picture(data=encoded(gradient(*size)))])
        placement = made.contents[0]
        assert list(placement.canvas) == canvas
        assert -placement.origin[1] * size[1] / placement.resized[1] == pytest.approx(above)


def test_padding_is_blended_with_a_wide_picture_as_by_rapidocr() -> None:
    with np.load(RAPIDOCR.parent.parent / "pipelines" / "crops.npz") as record:
        picture, expected = Image.fromarray(record["wide_picture"]), record["wide_canvas"].astype(int)
    config = {"resize": "limit", "multiple": 32, "min_side": 64, "max_aspect": 8, "fill": 0, "scale": 1.0}
    found = prepare(picture, OPEN, **config)[0].transpose(1, 2, 0)
    assert found.shape == expected.shape and np.abs(found - expected).max() <= 1


def test_a_padded_picture_is_charged_with_its_padding() -> None:
    made = Preprocessor(port(OPEN), PreprocessConfig(resize="limit", max_side=64, max_aspect=1), Settings())
    budget = MemoryBudget(32 << 20)
    with budget.open(), pytest.raises(RequestTooLargeError, match="needs too much memory"):
        run_of(made, [Picture(data=encoded(gradient(3000, 1)))])


def test_lines_alone_and_in_a_batch_have_the_sizes_of_rapidocr() -> None:
    with np.load(RAPIDOCR) as record:
        lines, expected = record["lines"].tolist(), record["line_sizes"].tolist()
    made = Preprocessor(port(OPEN), PreprocessConfig(size=(48, 0), min_side=320, **FOLLOWS), Settings())
    pictures = [Picture(data=encoded(gradient(*size))) for size in lines]
    alone, together = [run_of(made, [picture]).contents[0] for picture in pictures], run_of(made, pictures).contents
    assert [
        [[each.resized[0], each.canvas[0]] for each in pair] for pair in zip(alone, together, strict=True)
    ] == expected


def test_padding_may_lie_between_two_pixel_values() -> None:
    config = {"size": (4, 0), "min_side": 9, "fill": 127.5, "mean": [0.5], "std": [0.5], "resize": "letterbox"}
    tensor = prepare(gradient(8, 8), OPEN, **config)
    assert tensor.shape == (1, 3, 4, 9) and not tensor[..., 4:].any() and tensor[..., :4].any()


def test_a_side_that_follows_is_squeezed_to_its_limit() -> None:
    made = Preprocessor(port(OPEN), PreprocessConfig(size=(4, 0), max_side=6, **FOLLOWS), Settings())
    found = run_of(made, [Picture(data=encoded(gradient(*size))) for size in ((8, 8), (40, 8))])
    assert [each.resized for each in found.contents] == [(4, 4), (6, 4)] and found.tensors["in0"].shape == (2, 3, 4, 6)


def test_limits_of_a_huge_picture_are_bounded() -> None:
    made = Preprocessor(port(OPEN), PreprocessConfig(resize="limit", min_side=736, max_pixels=10**6), Settings())
    with pytest.raises(RequestTooLargeError, match="found 736000x736 after resizing to the limits of its sides"):
        run_of(made, [Picture(data=encoded(gradient(1000, 1)))])


@pytest.mark.parametrize(
    ("shape", "config", "message"),
    [
        (
            (1, 3, None, None),
            {"resize": "limit"},
            "preprocess.resize: found 'limit' with neither, expected min_side or",
        ),
        ((1, 3, 4, 6), {"resize": "limit", "max_side": 9}, r"found 'limit' with size \[4, 6\], expected"),
        ((1, 3, 4, 6), {"max_side": 9}, "preprocess.max_side: found with resize 'stretch', expected 'limit', or"),
        ((1, 3, None, None), {}, "preprocess.size: missing, and input 'in0' has dynamic height and width"),
        ((1, 3, 4, 6), {"size": (5, 5)}, r"preprocess.size: found \[5, 5\], expected \[4, 6\] as input 'in0' has it"),
        ((1, 1, 4, 6), {"color": "rgb"}, "preprocess.color: found 'rgb', but input 'in0' has 1 channels"),
        ((1, 5, 4, 6), {}, "preprocess.color: found nothing, but input 'in0' has 5 channels"),
        ((1, 3, 4, 6), {"mean": (1, 2)}, "preprocess.mean: found 2 values, expected 1 or 3"),
        ((1, 3, 4, 6), {"std": (1, 2)}, "preprocess.std: found 2 values, expected 1 or 3"),
        ((1, 3, 4, 6), {"multiple": 8, "resize": "none"}, "preprocess.multiple: found 8, expected 1 where size is not"),
        ((1, 3, None, None), {"multiple": 8, "size": (8, 8)}, "preprocess.multiple: found 8, expected 1"),
        ((1, 3, 4, 6), {"size": (4, 0), "resize": "letterbox"}, r"preprocess.size: found \[4, 0\], expected \[4, 6\]"),
        ((1, 3, 4, 6), {"alpha": "whyte"}, "preprocess.alpha: found 'whyte', expected a colour"),
    ],
)
def test_tables_that_contradict_the_graph_are_refused(shape: Shape, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Preprocessor(port(shape), PreprocessConfig(**config), Settings())


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "expected"),
    [
        ((1, 3, 4, 6), np.float32, "nchw", True),
        ((None, 1, None, None), np.uint8, "nchw", True),
        ((1, 4, 6, 3), np.float32, "nhwc", True),
        ((1, 3, 4, 6), ml_dtypes.bfloat16, "nchw", True),
        ((1, 3, 4, 6), np.int64, "nchw", False),
        ((1, 3, 4, 6), np.complex64, "nchw", False),
        ((1, 2, 4, 6), np.float32, "nchw", False),
        ((3, 4, 6), np.float32, "nchw", False),
        ((1, None, 4, 6), np.float32, "nchw", False),
    ],
)
def test_inputs_that_look_like_pictures_take_them(shape: Shape, dtype: Any, layout: str, expected: bool) -> None:
    assert takes_pictures(port(shape, dtype), layout) is expected
