"""Detection, crops and classification in one request, against the same steps done by a client."""

from __future__ import annotations

import base64
import io
import math
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.app.client import Client
from tests.app.pipelines.conftest import PICTURES

PNG = {"content-type": "image/png"}


def post(client: Client, model: str, picture: bytes, query: str = "") -> Any:
    response = client.post(f"/models/{model}/infer{query}", content=picture, headers=PNG)
    assert response.status_code == 200, response.text
    return response.json()


def crop_of(picture: bytes, box: list[float], margin: float = 0.0) -> bytes:
    """Return the part of a picture that contains a box, as a PNG."""
    image, (x0, y0, x1, y1) = Image.open(io.BytesIO(picture)).convert("RGB"), box
    dx, dy = margin * (x1 - x0), margin * (y1 - y0)
    part = image.crop(
        (
            max(0, math.floor(x0 - dx)), max(0, math.floor(y0 - dy)),
            min(image.width, math.ceil(x1 + dx)), min(image.height, math.ceil(y1 + dy)),
        )
    )  # fmt: skip
    out = io.BytesIO()
    part.save(out, "PNG")
    return out.getvalue()


def by_client(client: Client, picture: bytes, margin: float = 0.0, query: str = "") -> list[dict[str, Any]]:
    """Return what a client gets that detects, crops and classifies in one request each."""
    found = post(client, "shapes", picture)["predictions"]
    for each in found:
        each["read"] = post(client, "digits", crop_of(picture, each["box"], margin), query)["predictions"]
    return list(found)


def rounded(value: Any) -> Any:
    """Return an answer with probabilities that may differ by the order of sums in a batch."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return pytest.approx(value, abs=1e-5) if isinstance(value, float) else value


@pytest.mark.parametrize("path", sorted(PICTURES.glob("*.png")), ids=lambda path: path.stem)
def test_the_answer_is_that_of_a_client_that_does_the_steps(scans: Client, path: Path) -> None:
    picture = path.read_bytes()
    assert post(scans, "scan", picture)["predictions"] == {"find": rounded(by_client(scans, picture))}


def test_a_margin_widens_crops_and_max_items_bounds_them(scans: Client) -> None:
    picture = (PICTURES / "shapes-a.png").read_bytes()
    expected = by_client(scans, picture, margin=0.25, query="?top_k=1")
    for each in expected[1:]:
        each["read"] = None
    assert len(expected) > 1 and post(scans, "best", picture)["predictions"] == {"find": rounded(expected)}


def test_conditions_choose_predictions(scans: Client) -> None:
    picture = (PICTURES / "shapes-a.png").read_bytes()
    expected = by_client(scans, picture)
    for each in expected:
        if each["label"] not in ("star", "circle") or each["score"] < 0.5:
            each["read"] = None
    assert {each["read"] is None for each in expected} == {True, False}
    assert post(scans, "stars", picture)["predictions"] == {"find": rounded(expected)}


def test_without_detections_the_next_step_does_not_run(scans: Client) -> None:
    blank = io.BytesIO()
    Image.new("RGB", (64, 64), "white").save(blank, "PNG")
    answer = post(scans, "scan", blank.getvalue(), "?outputs=true")
    assert answer["predictions"] == {"find": []}
    assert answer["outputs"]["read.out0"]["shape"] == [0, 10]


def test_several_pictures_have_an_answer_each(scans: Client) -> None:
    pictures = [(PICTURES / f"shapes-{each}.png").read_bytes() for each in "abc"]
    files = [("file", (f"{at}.png", picture, "image/png")) for at, picture in enumerate(pictures)]
    answer = scans.post("/models/scan/infer", files=files).json()
    assert answer["predictions"] == [{"find": rounded(by_client(scans, picture))} for picture in pictures]


def test_outputs_of_all_steps_can_be_asked_for(scans: Client) -> None:
    picture = (PICTURES / "shapes-a.png").read_bytes()
    found = by_client(scans, picture)
    answer = post(scans, "scan", picture, "?outputs=read.out0")
    assert list(answer["outputs"]) == ["read.out0"]
    scores = answer["outputs"]["read.out0"]
    assert scores["shape"] == [len(found), 10]
    rows = [scores["data"][start : start + 10] for start in range(0, 10 * len(found), 10)]
    assert [max(range(10), key=row.__getitem__) for row in rows] == [each["read"][0]["index"] for each in found]


def test_parameters_go_to_the_steps_that_have_them(scans: Client) -> None:
    picture = (PICTURES / "shapes-a.png").read_bytes()
    few = post(scans, "scan", picture, "?top_k=2&score_threshold=0.89")["predictions"]["find"]
    assert few == [each for each in few if each["score"] >= 0.89 and len(each["read"]) == 2]
    assert 0 < len(few) < len(post(scans, "scan", picture)["predictions"]["find"])
    refused = scans.post("/models/scan/infer?activation=what", content=picture, headers=PNG)
    assert refused.status_code == 400 and "activation" in refused.json()["error"]["message"]
    unknown = scans.post("/models/scan/infer?decoder=1", content=picture, headers=PNG)
    assert unknown.status_code == 400


def test_a_picture_in_json_works_and_a_tensor_is_refused(scans: Client) -> None:
    picture = (PICTURES / "shapes-b.png").read_bytes()
    encoded = {"image": base64.b64encode(picture).decode()}
    answer = scans.infer("scan", encoded)
    assert answer.json()["predictions"] == post(scans, "scan", picture)["predictions"]
    refused = scans.infer("scan", [[[[0.0] * 128] * 128] * 3])
    assert refused.status_code == 422
    assert "found a tensor, expected a picture, because a step crops it" in refused.json()["error"]["message"]


def test_a_damaged_picture_is_refused(scans: Client) -> None:
    picture = (PICTURES / "shapes-b.png").read_bytes()
    refused = scans.post("/models/scan/infer", content=picture[: len(picture) // 2], headers=PNG)
    assert refused.status_code == 400 and "damaged" in refused.json()["error"]["message"]


def test_a_drawing_is_not_offered(scans: Client) -> None:
    picture = (PICTURES / "shapes-b.png").read_bytes()
    refused = scans.post("/models/scan/infer", content=picture, headers={**PNG, "accept": "image/png"})
    assert refused.status_code == 406
