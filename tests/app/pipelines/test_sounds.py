"""Pipelines with sounds: spans of speech are cut out and given to the next model, as a client would cut them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cli import main
from tests.app.client import Client, serving
from tests.app.pipelines.conftest import write_pipeline
from tests.app.sample_models import write_classifier
from tests.app.sound_models import encoded, tone, wav, write_bands, write_waves

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")

RATE = 16_000
LOUDNESS = ["torch.abs loud 1 1 0 2", "torch.amax most 1 1 2 1 dim=(1) keepdim=True"]
LEVEL = 'task = "vad"\n[sound]\nwindow_s = 0.1\n[vad]\nthreshold = 0.25\nmin_speech_s = 0.15\npad_s = 0.0\n'
SPEECH = """
[[step]]
name = "speech"
model = "level"
input = "sound"
"""
CLASSES = f"""{SPEECH}
[[step]]
name = "kind"
model = "bands"
crop = "speech.spans"
parameters = {{ top_k = 1 }}
"""
SOUND = np.concatenate(
    [tone(250, 0.6), np.zeros(RATE // 2, np.float32), tone(6_000, 0.9), np.zeros(RATE // 2, np.float32)]
)
HEADERS = {"content-type": "audio/wav"}


def write_store(store: Path) -> None:
    write_waves(store, "level", "1600", LOUDNESS, LEVEL)
    write_bands(store)
    write_pipeline(store, "kinds", CLASSES)
    write_pipeline(store, "wide", f"{CLASSES}margin = 0.5\n")
    write_pipeline(store, "sure", f"{CLASSES}where = {{ speech.score = 0.501 }}\n")
    write_pipeline(store, "outer", '[[step]]\nname = "inner"\nmodel = "kinds"\ninput = "sound"\n')
    write_pipeline(
        store, "both", f'{SPEECH}\n[[step]]\nname = "whole"\nmodel = "bands"\ninput = "sound"\n'
    )  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    store = tmp_path_factory.mktemp("sounds")
    write_store(store)
    with serving(store) as client:
        yield client


def infer(client: Client, name: str, body: bytes = b"", query: str = "") -> Any:
    answer = client.post(f"/models/{name}/infer{query}", content=body or wav(SOUND), headers=HEADERS)
    assert answer.status_code == 200, answer.text
    return answer.json()["predictions"]


@pytest.mark.parametrize("rate", [16_000, 44_100])
def test_spans_are_classified_as_if_the_client_had_cut_them(client: Client, rate: int) -> None:
    sound = np.concatenate([tone(250, 0.6, rate), np.zeros(rate // 2, np.float32), tone(6_000, 0.9, rate)])
    spans = infer(client, "kinds", wav(sound, rate))["speech"]["spans"]
    assert [(span["start"], span["end"]) for span in spans] == [(0.0, 0.6), (1.1, pytest.approx(2.0, abs=0.01))]
    assert [span["kind"][0]["index"] for span in spans] == [0, 3]
    for span in spans:
        part = wav(sound[round(span["start"] * rate) : round(span["end"] * rate)], rate)
        assert span["kind"] == infer(client, "bands", part, "?top_k=1")


def test_a_margin_is_a_share_of_the_span(client: Client) -> None:
    spans = infer(client, "wide")["speech"]["spans"]
    part = wav(SOUND[: round(0.9 * RATE)])  # clipped at the beginning
    assert spans[0]["kind"] == infer(client, "bands", part, "?top_k=1")


def test_channels_are_mixed_as_each_model_does(client: Client) -> None:
    stereo = np.stack([SOUND, SOUND], axis=1)
    assert infer(client, "kinds", wav(stereo)) == infer(client, "kinds")


def test_conditions_silence_and_several_sounds(client: Client) -> None:
    assert [span["kind"] for span in infer(client, "sure")["speech"]["spans"]] == [None, None]
    assert infer(client, "kinds", wav(np.zeros(RATE, np.float32)))["speech"]["spans"] == []
    files = [("file", ("a.wav", wav(SOUND))), ("file", ("b.wav", wav(SOUND[RATE:])))]
    first, second = client.post("/models/kinds/infer", files=files).json()["predictions"]
    assert (len(first["speech"]["spans"]), len(second["speech"]["spans"])) == (2, 1)


def test_a_pipeline_in_a_pipeline_and_two_readers_of_a_sound(client: Client) -> None:
    assert infer(client, "outer")["inner"] == infer(client, "kinds")
    found = infer(client, "both", encoded(SOUND, format="FLAC"))
    assert len(found["speech"]["spans"]) == 2 and found["whole"][0]["index"] in range(4)


def test_bad_sounds_are_refused_by_the_step(client: Client) -> None:
    for body, status in ((b"RIFF\x24\0\0\0WAVEfmt ", 400), (wav(np.zeros(0, np.int16)), 422), (wav(SOUND, 5), 422)):
        assert client.post("/models/kinds/infer", content=body, headers=HEADERS).status_code == status
    tensor = {"inputs": {"sound": {"shape": [1, 4], "dtype": "float32", "data": [0, 0, 0, 0]}}}
    answer = client.post("/models/kinds/infer", json=tensor)
    assert answer.status_code == 422
    assert "found a tensor, expected a sound, because a step crops it" in answer.json()["error"]["message"]


def test_metadata_and_the_command_line_know_the_sound(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert client.get("/models/kinds").json()["sound"] == {"input": "sound"}
    about = client.get("/models/level").json()["sound"]
    assert (about["sample_rate"], about["window_s"], about["takes_streams"]) == (16_000, 0.1, True)
    assert client.get("/models/bands").json()["sound"]["takes_streams"] is False
    write_store(tmp_path / "store")
    (tmp_path / "sounds").mkdir()
    (tmp_path / "sounds" / "sound.wav").write_bytes(wav(SOUND))
    store = ["--store", str(tmp_path / "store")]
    assert main(["run", "kinds", *store, "--sound", str(tmp_path / "sounds")]) == 0
    out = capsys.readouterr().out
    assert "sound.wav:" in out and "spans:" in out and "band 0" in out and "band 3" in out
    assert main(["run", "bands", *store]) == 2
    assert "or --sound FILE for 'in0'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CLASSES.replace("speech.spans", "speech.box"), "crop: found 'speech.box'"),
        (CLASSES.replace("speech.spans", "speech.span"), "expected STEP.box, STEP.polygon or STEP.spans"),
        (CLASSES.replace('model = "level"', 'model = "bands"'), "the predictions of the step have no spans"),
        (CLASSES.replace('model = "bands"', 'model = "shades"'), "model 'shades' takes no sounds"),
        (CLASSES.replace('"kind"', '"start"'), "'start' is a field of the predictions of step 'speech'"),
        (CLASSES + 'turn = "speech"\n', "turn: found with parts of a sound"),
    ],
)
def test_steps_that_do_not_fit_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    write_store(tmp_path)
    write_classifier(tmp_path, "shades")
    write_pipeline(tmp_path, "wrong", text)
    with serving(tmp_path) as client:
        assert expected in client.get("/models/wrong").json()["reason"]
