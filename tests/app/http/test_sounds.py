"""Sounds in requests: as bodies, in forms and in JSON, of every format, and what is refused."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.app.client import Client, serving
from tests.app.sound_models import encoded, tone, wav, write_bands, write_waves

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")

# A tone within the first and within the last of four bands, which are 0 to 8,000 Hz.
LOW, HIGH = 300, 6_000


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("sounds")
    write_bands(store)
    write_bands(store, "fixed", frames="101")
    scale = ["pnnx.Expression op 1 1 0 1 expr=mul(@0,1)"]
    write_waves(store, "wave", "?", scale, "[sound]\nsample_rate = 8000\n")
    write_bands(store, "plain", config="", task="tensor")
    with serving(store, threads=1, max_sound_s=20) as found:
        yield found


def best(answer: Any) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["predictions"][0]["label"])


@pytest.mark.parametrize(("hertz", "label"), [(LOW, "band 0"), (HIGH, "band 3")])
@pytest.mark.parametrize(
    "content",
    [
        lambda x: (wav(x), "audio/wav"),
        lambda x: (wav((x * 32767).astype(np.int16)), "audio/x-wav"),
        lambda x: (wav(np.stack([x, x], 1)), "application/octet-stream"),
        lambda x: (encoded(x, format="FLAC"), "audio/flac"),
        lambda x: (encoded(x, format="OGG"), "audio/ogg"),
        lambda x: (encoded(x, format="AIFF"), "audio/aiff"),
        lambda x: (encoded(np.repeat(x, 3), 48_000, format="WAV", subtype="PCM_24"), ""),
    ],
    ids=["float", "int16", "stereo", "flac", "ogg", "aiff", "48kHz"],
)
def test_sounds_of_every_format_are_classified(client: Client, content: Any, hertz: float, label: str) -> None:
    body, media_type = content(tone(hertz))
    assert best(client.post("/models/bands/infer", content=body, headers={"content-type": media_type})) == label


def test_a_form_has_several_sounds(client: Client) -> None:
    files = [("file", ("a.wav", wav(tone(LOW)))), ("file", ("b.wav", wav(tone(HIGH, 0.5))))]
    answer = client.post("/models/bands/infer", files=files)
    assert [each[0]["label"] for each in answer.json()["predictions"]] == ["band 0", "band 3"]


def test_json_has_sounds_in_base64(client: Client) -> None:
    low, high = (base64.b64encode(wav(tone(hertz))).decode() for hertz in (LOW, HIGH))
    assert best(client.post("/models/bands/infer", json={"audio": high})) == "band 3"
    both = client.infer("bands", [{"audio": low}, {"audio": f"data:audio/wav;base64,{high}"}])
    assert [each[0]["label"] for each in both.json()["predictions"]] == ["band 0", "band 3"]
    assert best(client.infer("bands", {"in0": {"audio": low}})) == "band 0"


def test_waves_reach_the_model_as_they_are(client: Client) -> None:
    samples = tone(LOW, 0.25, 8_000)
    answer = client.post("/models/wave/infer", content=wav(samples, 8_000), headers={"content-type": "audio/wav"})
    outputs = client.post("/models/wave/infer?outputs=true", content=wav(samples, 8_000)).json()["outputs"]
    assert "outputs" in answer.json()  # a model without a task answers with its outputs
    np.testing.assert_array_equal(np.float32(outputs["out0"]["data"]), samples)


def test_tensors_are_taken_as_before(client: Client) -> None:
    answer = client.infer("wave", [[0.5, 0.25]])
    assert answer.json()["outputs"]["out0"]["data"] == [0.5, 0.25]
    features = client.infer("bands", np.zeros((1, 4, 3)).tolist())
    assert features.status_code == 200 and features.json()["outputs"]["out0"]["shape"] == [1, 4]


def test_long_sounds_are_cut_into_windows(client: Client) -> None:
    content = wav(np.concatenate([tone(LOW, 1.0), tone(HIGH, 2.0)]))
    assert best(client.post("/models/fixed/infer", content=content)) == "band 3"
    windows = client.post("/models/fixed/infer?windows=true&top_k=1", content=content).json()["predictions"]
    assert [each["classes"][0]["label"] for each in windows] == ["band 0", "band 3", "band 3"]
    assert [(each["start"], each["end"]) for each in windows] == [(0, 1), (1, 2), (2, 3)]


def bad(**changes: Any) -> bytes:
    return wav(tone(LOW), **changes)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"RIFF\x00\x00\x00\x00WAVE", 400, "the sound cannot be read"),
        (b"RIFF\x24\x00\x00\x00WAVEfmt ", 400, "the sound cannot be read"),
        (wav(tone(LOW))[:44], 422, "the sound: found no samples, expected at least one"),
        (wav(np.full(100, np.nan, np.float32)), 422, "the sound: found samples that are not finite"),
        (wav(np.full(100, np.inf, np.float32), 8_000), 422, "the sound: found samples that are not finite"),
        (bad(rate=1), 422, "the sound: found 1 samples per second, expected 1,000 to 384,000"),
        (bad(rate=10_000_000), 422, "found 10,000,000 samples per second"),
        (wav(np.zeros((100, 64), np.float32)), 422, "the sound: found 64 channels, expected at most 32"),
        (wav(np.zeros(16_000 * 21, np.int16)), 413, "the sound is too long: found 21.0 s, expected at most 20"),
        (wav(np.zeros(30_000, np.int16), 1_000), 413, "the sound is too long: found 30.0 s"),
        (b"fLaC" + bytes(60), 400, "the sound cannot be read"),
        (b"OggS" + bytes(60), 400, "the sound cannot be read"),
        (b"ID3" + bytes(60), 400, "the sound cannot be read"),
    ],
)
def test_bad_sounds_are_refused(client: Client, body: bytes, status: int, message: str) -> None:
    answer = client.post("/models/bands/infer", content=body, headers={"content-type": "audio/wav"})
    assert answer.status_code == status, answer.text
    assert message in answer.json()["error"]["message"]
    assert client.plane.memory.used == 0


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 1 << 20])
def test_a_header_that_claims_too_much_counts_for_what_is_there(client: Client, size: int) -> None:
    assert best(client.post("/models/bands/infer", content=bad(size=size))) == "band 0"


def test_the_shortest_sounds_are_padded(client: Client) -> None:
    assert client.post("/models/bands/infer", content=wav(np.ones(1, np.float32))).status_code == 200
    assert client.post("/models/fixed/infer", content=wav(np.ones(1, np.float32))).status_code == 200


def test_a_model_for_tensors_takes_no_sound(client: Client, tmp_path: Any) -> None:
    write_waves(tmp_path, "tensors", "?", ["pnnx.Expression op 1 1 0 1 expr=mul(@0,1)"], "")
    with serving(tmp_path, threads=1) as other:
        answer = other.post("/models/tensors/infer", content=wav(tone(LOW)))
    assert answer.status_code == 422
    assert "takes no sounds: found a sound, expected a tensor" in answer.text


def test_too_many_sounds_are_refused(client: Client) -> None:
    sound = base64.b64encode(wav(np.zeros(4, np.int16))).decode()
    answer = client.infer("bands", [{"audio": sound}] * 65)
    assert answer.status_code == 413 and "found 65, expected at most 64" in answer.text


def test_labels_that_do_not_fit_are_found_when_the_model_is_loaded(tmp_path: Any) -> None:
    write_bands(tmp_path)
    config = tmp_path / "bands" / "config.toml"
    config.write_text(config.read_text().replace('"band 3"', '"band 3", "band 4"'))
    with serving(tmp_path, threads=1) as other:
        reason = other.get("/models/bands").json()["versions"][0]["reason"]
    assert reason == "labels: found 5, expected 4, one for each class of the model"


def test_features_are_compiled_when_the_model_is_loaded(client: Client) -> None:
    version = client.plane.store.version("bands", None)
    assert version.model is not None and version.model.sound_inputs is not None
    session = version.model.sound_inputs._features
    assert session is not None and session.compile_failure is None
    for samples in (8_000, 16_000, 50_000):
        assert session.is_compiled([np.zeros((1, samples), np.float32)], exact=False)
