"""Tests of POST /infer with images as answers."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from app.http.schemas import infer_body
from app.images.palette import generated
from app.tasks.registry import TASKS
from tests.app.client import Client, serving
from tests.app.picture_models import write_enlarger, write_segmenter, write_yolo
from tests.app.pictures import encoded, gradient, npy, png
from tests.app.sample_models import write_classifier, write_detector

PNG = {"accept": "image/png"}


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("gallery")
    write_classifier(store)
    write_detector(store)
    write_segmenter(store)
    write_segmenter(store, "middle", '[preprocess]\nresize = "crop"\ncrop_fraction = 1.0\n')
    write_enlarger(store)
    write_enlarger(store, "eights", "multiple = 8\nmax_pixels = 400\n")
    write_yolo(store)
    write_yolo(store, "yolo8", "yolov8")
    with serving(store) as client:
        yield client


def send(client: Client, model: str, picture: bytes, query: str = "", **headers: str) -> httpx.Response:
    typed = {"content-type": "image/png", **headers}
    return client.post(f"/models/{model}/infer{query}", content=picture, headers=typed)


def predictions(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["predictions"]


def picture(data: bytes | str) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(data) if isinstance(data, str) else data))


def drawn(response: httpx.Response) -> np.ndarray:
    assert (response.status_code, response.headers["content-type"]) == (200, "image/png"), response.text
    return np.asarray(picture(response.content))


@pytest.mark.parametrize("model", ["shades", "boxes", "colours", "double", "yolo"])
@pytest.mark.parametrize("count", [1, 2])
def test_every_answer_has_the_documented_shape(gallery: Client, model: str, count: int) -> None:
    files = [("file", (f"{i}.png", png(12, 9))) for i in range(count)]
    answer = gallery.post(f"/models/{model}/infer", files=files).json()
    assert not infer_body().model_validate(answer).model_extra
    task = gallery.get(f"/models/{model}").json()["task"]
    shown = TASKS[task].EXAMPLE["predictions"]
    for found in [answer["predictions"]] if count == 1 else answer["predictions"]:
        assert type(found) is type(shown)
        assert set(found[0] if isinstance(found, list) else found) == set(
            shown[0] if isinstance(shown, list) else shown
        )


def halves() -> Image.Image:
    """Return an image with a red left and a blue right half, more than twice the network's size."""
    image = Image.new("RGB", (32, 12), (200, 0, 0))
    image.paste((0, 0, 200), (16, 0, 32, 12))
    return image


def test_a_segmentation_answers_areas_and_a_mask_of_the_pictures_size(gallery: Client) -> None:
    found = predictions(send(gallery, "colours", encoded(halves())))
    assert [(row["label"], row["area"], row["fraction"]) for row in found["classes"]] == [
        ("red", 192, 0.5), ("blue", 192, 0.5)
    ]  # fmt: skip
    mask = np.asarray(picture(found["mask"]))
    assert mask.tolist() == [[0] * 16 + [2] * 16] * 12
    assert (found["width"], found["height"]) == (32, 12)


def test_a_crop_leaves_the_rest_of_the_picture_without_class(gallery: Client) -> None:
    found = predictions(send(gallery, "middle", encoded(halves())))
    assert np.asarray(picture(found["mask"])).tolist() == [[255] * 8 + [0] * 8 + [2] * 8 + [255] * 8] * 12


def test_several_pictures_have_a_mask_each(gallery: Client) -> None:
    files = [("file", (f"{size}.png", png(size, 5))) for size in (4, 9)]
    found = predictions(gallery.post("/models/colours/infer", files=files))
    assert [picture(item["mask"]).size for item in found] == [(4, 5), (9, 5)]


def test_a_tensor_has_a_mask_of_its_own_size(gallery: Client) -> None:
    response = gallery.infer("colours", np.zeros((1, 3, 6, 8)).tolist())
    assert picture(predictions(response)["mask"]).size == (8, 6)
    assert "out0" in response.json()["outputs"]


def test_a_request_can_move_threshold_and_least_area(gallery: Client) -> None:
    assert predictions(send(gallery, "colours", encoded(halves()), "?min_area=193"))["classes"] == []
    assert predictions(send(gallery, "colours", encoded(halves()), "?threshold=1"))["classes"] == []


def test_a_segmentation_is_drawn_half_transparent(gallery: Client) -> None:
    found = drawn(send(gallery, "colours", encoded(halves()), **PNG)).astype(int)
    for x, original, index in ((0, (200, 0, 0), 0), (31, (0, 0, 200), 2)):
        np.testing.assert_allclose(found[5, x], np.add(original, generated(index)) / 2, atol=1)


@pytest.mark.parametrize("size", [(5, 7), (1, 1), (300, 2)])
def test_a_picture_of_any_size_is_answered_with_a_picture(gallery: Client, size: tuple[int, int]) -> None:
    expected = 255 - np.kron(np.asarray(gradient(*size)), np.ones((2, 2, 1), np.uint8))
    found = predictions(send(gallery, "double", png(*size)))
    assert (found["width"], found["height"]) == (size[0] * 2, size[1] * 2)
    np.testing.assert_array_equal(np.asarray(picture(found["image"])), expected)
    np.testing.assert_array_equal(drawn(send(gallery, "double", png(*size), **PNG)), expected)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1"])
def test_pictures_without_colour_or_with_transparency_are_taken(gallery: Client, mode: str) -> None:
    sent = gradient(6, 4).convert(mode)
    flat = Image.new("RGBA", sent.size, "white")
    flat.alpha_composite(sent.convert("RGBA"))
    expected = 255 - np.kron(np.asarray(flat.convert("RGB")), np.ones((2, 2, 1), np.uint8))
    np.testing.assert_array_equal(drawn(send(gallery, "double", encoded(sent), **PNG)), expected)


def test_a_picture_that_grew_to_a_multiple_comes_back_without_what_was_added(gallery: Client) -> None:
    expected = drawn(send(gallery, "double", png(13, 9), **PNG))
    np.testing.assert_array_equal(drawn(send(gallery, "eights", png(13, 9), **PNG)), expected)


def test_a_models_own_limit_of_pixels_holds(gallery: Client) -> None:
    response = send(gallery, "eights", png(30, 30))
    assert (response.status_code, response.json()["error"]["code"]) == (413, "too_large")


def test_an_answer_can_be_sent_back(gallery: Client) -> None:
    found = predictions(send(gallery, "double", png(3, 2)))
    again = gallery.post("/models/double/infer", json={"image": found["image"]})
    assert predictions(again)["width"] == 12


def test_a_tensor_is_answered_with_a_picture_as_well(gallery: Client) -> None:
    response = gallery.post("/models/double/infer", json={"inputs": np.zeros((1, 3, 2, 3)).tolist()}, headers=PNG)
    assert (drawn(response) == 255).all() and drawn(response).shape == (4, 6, 3)


@pytest.mark.parametrize("model", ["yolo", "yolo8"])
@pytest.mark.parametrize(("size", "scale", "top"), [((64, 32), 1, 0), ((128, 32), 2, 8), ((640, 320), 10, 0)])
def test_boxes_come_back_from_the_letterbox(
    gallery: Client, model: str, size: tuple[int, int], scale: int, top: int
) -> None:
    found = predictions(send(gallery, model, png(*size)))
    cat, dog = ([x * scale for x in box] for box in ([8, 8 - top, 24, 24 - top], [36, 2 - top, 60, 30 - top]))
    height = size[1]
    dog = [dog[0], max(dog[1], 0), dog[2], min(dog[3], height)]
    assert [(row["label"], row["index"]) for row in found] == [("cat", 0), ("dog", 1)]
    np.testing.assert_allclose([row["score"] for row in found], [0.9, 0.75], rtol=1e-6)
    np.testing.assert_allclose([row["box"] for row in found], [cat, dog], atol=0.01)


def test_boxes_are_drawn_on_the_picture_sent(gallery: Client) -> None:
    sent = Image.new("L", (640, 320), 50)
    found = drawn(send(gallery, "yolo", encoded(sent), **PNG))
    assert found.shape == (320, 640, 3)
    assert tuple(found[160, 80]) == generated(0) and tuple(found[160, 600 - 1]) == generated(1)
    assert (found[100:200, 100:200] == 50).all()


def test_drawings_are_upright(gallery: Client) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turn right
    found = drawn(send(gallery, "boxes", encoded(Image.new("RGB", (80, 40)), exif=exif), **PNG))
    assert found.shape == (80, 40, 3)


@pytest.mark.parametrize("accept", ["image/png", "image/*", "image/png, application/json;q=0.5"])
def test_a_picture_is_what_accept_likes_best(gallery: Client, accept: str) -> None:
    drawn(send(gallery, "boxes", png(), accept=accept))


@pytest.mark.parametrize("accept", ["", "*/*", "application/json, image/png", "image/png;q=0.1, */*"])
def test_json_is_the_answer_where_nothing_else_is_liked_better(gallery: Client, accept: str) -> None:
    assert predictions(send(gallery, "boxes", png(), accept=accept))


def test_a_model_that_cannot_draw_answers_what_else_is_accepted(gallery: Client) -> None:
    assert len(predictions(send(gallery, "shades", png(), accept="image/png, application/json;q=0.5"))) == 3
    response = send(gallery, "shades", png(), **PNG)
    assert (response.status_code, response.json()["error"]["code"]) == (406, "not_acceptable")
    assert response.json()["error"]["message"] == (
        "Accept: found 'image/png', expected one of application/json, application/x-npz"
    )


def test_several_pictures_are_no_picture(gallery: Client) -> None:
    files = [("file", (f"{i}.png", png())) for i in range(2)]
    response = gallery.post("/models/boxes/infer", files=files, headers=PNG)
    assert (response.status_code, response.json()["error"]["code"]) == (422, "input_mismatch")
    assert response.json()["error"]["message"] == "a picture as the answer: found 2, expected 1"


def test_there_is_no_drawing_on_a_tensor(gallery: Client) -> None:
    for model, shape in (("boxes", (1, 3, 4, 8)), ("colours", (1, 3, 6, 8))):
        response = gallery.post(
            f"/models/{model}/infer", content=npy(np.zeros(shape, np.float32)),
            headers={"content-type": "application/x-npy", **PNG},
        )  # fmt: skip
        assert response.status_code == 422
        assert response.json()["error"]["message"] == (
            "a picture as the answer: found a tensor, expected an input picture to draw on"
        )


def test_an_unknown_model_is_unknown_as_a_picture_too(gallery: Client) -> None:
    assert send(gallery, "nope", png(), **PNG).status_code == 404


def test_what_is_hostile_stays_json(gallery: Client) -> None:
    tensor = np.full((1, 3, 6, 8), np.nan, np.float32)
    tensor[0, 0, :2] = np.inf
    for model in ("colours", "double"):
        response = gallery.post(
            f"/models/{model}/infer", content=npy(tensor), headers={"content-type": "application/x-npy"}
        )
        json.loads(response.text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert response.status_code == 200
