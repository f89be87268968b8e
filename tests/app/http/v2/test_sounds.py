"""Sounds in the V2 protocol: files as BYTES elements, or one file as the body."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.app.client import Client, serving
from tests.app.http.v2.messages import LENGTH, received, refused, send
from tests.app.sample_models import write_model
from tests.app.sound_models import tone, wav, write_waves

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")

LEVEL = ["torch.abs loud 1 1 0 2", "torch.amax most 1 1 2 1 dim=(1) keepdim=True"]
RATED = [
    "pnnx.Input in0 0 1 0 #0=(?,1600)f32", "pnnx.Input sr 0 1 1 #1=()f32",
    "pnnx.Expression scaled 2 1 0 1 2 expr=mul(@0,@1)", "pnnx.Output out 1 0 2",
]  # fmt: skip
TONES = [wav(scale * tone(440, 0.1)) for scale in (1.0, 0.5, 0.25)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("store")
    write_waves(store, "level", "1600", LEVEL, 'task = "vad"\n[sound]\nwindow_s = 0.1\n')
    write_model(store, "rated", RATED, config="[sound]\nwindow_s = 0.1\n")
    with serving(store) as client:
        yield client


def sounds(*files: bytes) -> tuple[dict[str, Any], bytes]:
    tail = b"".join(len(file).to_bytes(4, "little") + file for file in files)
    parameters = {"binary_data_size": len(tail)}
    return {"name": "in0", "datatype": "BYTES", "shape": [len(files)], "parameters": parameters}, tail


def test_files_become_the_rows_of_the_input(client: Client) -> None:
    row, tail = sounds(TONES[0])
    np.testing.assert_allclose(received(send(client, "level", {"inputs": [row]}, tail))["out0"], [[0.5]], atol=0.01)
    raw = client.post("/v2/models/level/infer", content=TONES[1], headers={LENGTH: "0"})
    np.testing.assert_allclose(received(raw)["out0"], [[0.25]], atol=0.01)


def test_inputs_beside_the_sound_are_left_out(client: Client) -> None:
    row, tail = sounds(TONES[0])
    found = received(send(client, "rated", {"inputs": [row]}, tail))["out0"]
    assert found.shape == (1, 1600) and np.abs(found).max() == pytest.approx(8_000, rel=0.01)
    assert "missing required input" in refused(send(client, "rated", {"inputs": [{**row, "name": "sr"}]}, tail))


def test_what_is_no_sound_is_refused(client: Client) -> None:
    row, tail = sounds(b"RIFF")
    assert "cannot be read" in refused(send(client, "level", {"inputs": [row]}, tail))
    many, tail = sounds(*[b""] * 65)
    assert "too many sounds: found 65, expected at most 64" in refused(
        send(client, "level", {"inputs": [many]}, tail), 413
    )
    text = {"name": "in0", "datatype": "BYTES", "shape": [1], "data": ["RIFF"]}
    assert "found a sound in the JSON" in refused(send(client, "level", {"inputs": [text]}))
