"""A real trained detector, recorded with onnxruntime: from an encoded photograph to the face in it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.images.decode import Picture
from app.tasks.images.detection.boxes import overlap
from tests.app.client import Client, serving
from tests.app.pictures import npy, run_of

SOURCE = Path(__file__).parents[6] / "shared" / "models" / "ultraface"
pytestmark = [pytest.mark.corpus, pytest.mark.skipif(not SOURCE.exists(), reason="the recorded model is not here")]

CONFIG = """task = "detection"
labels = ["background", "face"]
[preprocess]
scale = 1.0
mean = [127]
std = [128]
[detection]
background = 0
score_threshold = 0.7
"""


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("store")
    folder = store / "faces" / "1"
    folder.mkdir(parents=True)
    for kind in ("param", "bin"):
        shutil.copyfile(SOURCE / f"ultraface_12.pnnx.{kind}", folder / f"model.pnnx.{kind}")
    (store / "faces" / "config.toml").write_text(CONFIG)
    with serving(store) as client:
        yield client


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(SOURCE / "golden.npz") as file:
        return dict(file)


def test_the_one_face_of_the_photograph_is_found_where_it_is(faces: Client, golden: dict[str, np.ndarray]) -> None:
    photograph = (SOURCE / "astronaut.png").read_bytes()
    found = faces.post("/infer", content=photograph, headers={"content-type": "image/png"}).json()["predictions"]
    best = golden["out_1"][0, golden["out_0"][0, :, 1].argmax()].astype(np.float64) * 512
    assert [row["label"] for row in found] == ["face"]
    assert overlap(best, np.array([found[0]["box"]]))[0] >= 0.99
    assert found[0]["score"] == pytest.approx(golden["out_0"][0, :, 1].max(), abs=2e-6)


def test_raw_outputs_are_those_of_onnxruntime(faces: Client, golden: dict[str, np.ndarray]) -> None:
    headers = {"content-type": "application/x-npy", "accept": "application/x-npz"}
    outputs = np.load(io.BytesIO(faces.post("/infer", content=npy(golden["in_0"]), headers=headers).content))
    for index in (0, 1):
        np.testing.assert_allclose(outputs[f"out{index}"], golden[f"out_{index}"], rtol=0, atol=2e-6)


def test_the_photograph_becomes_the_recorded_input(faces: Client, golden: dict[str, np.ndarray]) -> None:
    model = faces.plane.store.version("faces").model
    assert model is not None and model.preprocessor is not None
    photograph = Picture(data=(SOURCE / "astronaut.png").read_bytes())
    np.testing.assert_allclose(
        run_of(model.preprocessor, [photograph]).tensors[model.preprocessor.port.name],
        golden["in_0"],
        rtol=0,
        atol=1e-6,
    )
