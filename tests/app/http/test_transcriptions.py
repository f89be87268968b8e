"""OpenAI's route for transcriptions, by OpenAI's own client and by plain forms."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.app.client import Client, serving
from tests.app.sockets import listening
from tests.app.sound_models import wav, write_bands, write_waves

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")
LABELS = ("-", " ", *"abcdefgh")
RATE = 1_000
# A step takes a sample for each label, so 10 ms.
CONFIG = f'task = "speech-to-text"\nlabels = {list(LABELS)}\n[sound]\nsample_rate = {RATE}\n'.replace("'", '"')


def write_speller(store: Path, name: str = "speller", config: str = "") -> None:
    """Write a model whose scores are the samples: (N, samples) to (N, steps, classes)."""
    shape = f"Tensor.unflatten op 1 1 0 1 dim=1 sizes=(-1,{len(LABELS)})"
    write_waves(store, name, "?", [shape], CONFIG + config)


def spelt(text: str, repeats: int = 1) -> bytes:
    """Return a sound that the model spells so; "-" is a blank step."""
    scores = np.zeros((len(text) * repeats, len(LABELS)), np.float32)
    scores[np.arange(len(scores)), [LABELS.index(each) for each in text for _ in range(repeats)]] = 9
    return wav(scores.ravel(), RATE)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("speech")
    write_speller(folder)
    write_bands(folder)
    return folder


@pytest.fixture(scope="module")
def client(store: Path) -> Iterator[Client]:
    with serving(store, threads=1) as found:
        yield found


def post(client: Client, body: bytes, **fields: str) -> Any:
    return client.post("/v1/audio/transcriptions", files={"file": ("a.wav", body)}, data=fields)


def test_infer_has_text_and_words(client: Client) -> None:
    found = client.post("/models/speller/infer", content=spelt("-a-b- -c", 2)).json()["predictions"]
    assert found["text"] == "ab c" and found["duration"] == 0.16
    assert [(word["word"], word["start"], word["end"]) for word in found["words"]] == [
        ("ab", 0.02, 0.08), ("c", 0.14, 0.16),
    ]  # fmt: skip
    plain = client.post("/models/speller/infer?timestamps=false&decoder=beam", content=spelt("a-b- -c")).json()
    assert plain["predictions"]["text"] == "ab c" and "words" not in plain["predictions"]


def test_forms_are_answered_in_every_format(client: Client) -> None:
    body = spelt("-ab" + "-" * 70 + " cd")
    assert post(client, body, model="speller").json() == {"text": "ab cd"}
    text = post(client, body, model="speller", response_format="text", language="de", temperature="0")
    assert text.text == "ab cd\n" and text.headers["content-type"].startswith("text/plain")
    srt = post(client, body, model="speller", response_format="srt").text
    assert srt == "1\n00:00:00,010 --> 00:00:00,030\nab\n\n2\n00:00:00,740 --> 00:00:00,760\ncd\n"
    vtt = post(client, body, model="speller", response_format="vtt").text
    assert vtt.startswith("WEBVTT\n\n00:00:00.010 --> 00:00:00.030\nab\n")
    verbose = post(client, body, model="speller", response_format="verbose_json").json()
    assert verbose["duration"] == 0.76 and "words" not in verbose
    assert [(each["start"], each["end"], each["text"]) for each in verbose["segments"]] == [
        (0.01, 0.03, "ab"), (0.74, 0.76, "cd"),
    ]  # fmt: skip


def test_the_only_recogniser_needs_no_name(client: Client) -> None:
    assert post(client, spelt("abba")).json() == {"text": "aba"}


@pytest.mark.parametrize(
    ("fields", "files", "status", "message"),
    [
        ({"model": "nothing"}, {"file": ("a.wav", spelt("a"))}, 404, "no model 'nothing'"),
        ({"model": "bands"}, {"file": ("a.wav", spelt("a"))}, 422, "found task 'audio-classification'"),
        ({"response_format": "yaml"}, {"file": ("a.wav", spelt("a"))}, 400, "response_format: found 'yaml'"),
        ({"stream": "true"}, {"file": ("a.wav", spelt("a"))}, 400, "stream: found true, expected false"),
        ({"timestamp_granularities[]": "line"}, {"file": ("a.wav", spelt("a"))}, 400, "found 'line'"),
        ({}, {"other": ("a.wav", spelt("a"))}, 400, "file: found 0 files, expected one"),
        ({}, {"file": ("a.wav", b"no sound at all")}, 400, "the sound 'a.wav' cannot be read"),
        ({"prompt": "x" * 70_000}, {"file": ("a.wav", spelt("a"))}, 400, "prompt: found 70000 bytes"),
    ],
)
def test_bad_forms_are_refused_in_openais_form(
    client: Client, fields: dict[str, str], files: Any, status: int, message: str
) -> None:
    answer = client.post("/v1/audio/transcriptions", files=files, data=fields)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert message in error["message"] and error["type"] == "invalid_request_error"
    assert client.plane.memory.used == 0


def test_a_body_that_is_no_form_is_refused(client: Client) -> None:
    answer = client.post("/v1/audio/transcriptions", content=spelt("a"), headers={"content-type": "audio/wav"})
    assert answer.status_code == 400 and "found no boundary" in answer.json()["error"]["message"]


def test_words_of_a_file_are_those_that_are_found(tmp_path: Path) -> None:
    (tmp_path / "speller").mkdir()
    (tmp_path / "speller" / "words.txt").write_text("bad\ncafe\n", encoding="utf-8")
    write_waves(
        tmp_path, "speller", "?", [f"Tensor.unflatten op 1 1 0 1 dim=1 sizes=(-1,{len(LABELS)})"],
        CONFIG.replace("[sound]", 'words = "words.txt"\n[speech-to-text]\ndecoder = "beam"\n[sound]'),
    )  # fmt: skip
    with serving(tmp_path, threads=1) as other:
        assert post(other, spelt("bade")).json() == {"text": "bad"}


def test_openais_client_runs_unchanged(store: Path, tmp_path: Path) -> None:
    openai = pytest.importorskip("openai", reason="needs openai, of the test extra")
    file = tmp_path / "speech.wav"
    file.write_bytes(spelt("-ab- cd"))
    with (
        listening(store) as front,
        openai.OpenAI(base_url=f"http://127.0.0.1:{front.port}/v1", api_key="none", max_retries=0) as made,
    ):
        create = made.audio.transcriptions.create
        with file.open("rb") as sound:
            assert create(model="speller", file=sound, language="en", prompt="x").text == "ab cd"
        body = spelt("-ab- cd")
        assert create(model="speller", file=("a.wav", body), response_format="text") == "ab cd\n"
        assert "-->" in create(model="speller", file=("a.wav", body), response_format="srt")
        verbose = create(
            model="speller", file=("a.wav", body), response_format="verbose_json",
            timestamp_granularities=["word", "segment"],
        )  # fmt: skip
        assert [word.word for word in verbose.words] == ["ab", "cd"]
        assert verbose.segments[0].text == "ab cd" and verbose.duration == pytest.approx(0.07)
        with pytest.raises(openai.NotFoundError, match="no model 'whisper-1'"):
            create(model="whisper-1", file=("a.wav", body))
