"""WebSockets that take samples: a stream is answered as the whole sound is, window by window."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wsproto import events

from tests.app.http.server.test_web_socket import KEYS, Socket, opened
from tests.app.sockets import Front, listening
from tests.app.sound_models import tone, wav, write_bands, write_waves
from tests.patience import until

pytest.importorskip("soundfile", reason="needs the extra audio")
pytest.importorskip("soxr", reason="needs the extra audio")

RATE = 16_000
# Probability of speech: the largest magnitude of a window.
LOUDNESS = ["torch.abs loud 1 1 0 2", "torch.amax most 1 1 2 1 dim=(1) keepdim=True"]
LEVEL = 'task = "vad"\n[sound]\nwindow_s = 0.1\n[vad]\nthreshold = 0.25\nmin_speech_s = 0.15\npad_s = 0.05\n'


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    store = tmp_path_factory.mktemp("store")
    write_bands(store, "bands", "overlap_s = 0.5\nwindow_s = 1.0\n", frames="101")
    write_bands(store, "free")
    write_waves(store, "level", "1600", LOUDNESS, LEVEL)
    write_waves(store, "hooked", "1600", LOUDNESS, LEVEL)
    (store / "hooked/1/hooks.py").write_text("def postprocess(outputs): return outputs['out0'][:, 0] > 0.5")
    write_waves(store, "bodies", "1600", LOUDNESS, LEVEL)
    (store / "bodies/1/hooks.py").write_text("def preprocess(request): return {}")
    (store / "steps").mkdir()
    (store / "steps/pipeline.toml").write_text('[[step]]\nname = "speech"\nmodel = "level"\ninput = "sound"\n')
    with listening(store, keep_alive_s=5.0, plugins=("hooks.py",)) as front:
        yield front


def pcm(samples: Any) -> bytes:
    return np.round(samples * 32_767).astype("<i2").tobytes()


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def whole(front: Front, name: str, samples: Any, query: str = "", rate: int = RATE) -> Any:
    body = wav(np.frombuffer(pcm(samples), np.int16), rate)
    head = f"POST /models/{name}/infer{query} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n"
    request = head.encode() + b"content-type: audio/wav\r\nconnection: close\r\n\r\n" + body
    return front.ask(request)[0][2]["predictions"]


SOUND = np.concatenate([tone(300, 0.55), np.zeros(8_000, np.float32), tone(3_000, 0.9), np.zeros(4_000, np.float32)])


@pytest.mark.parametrize("size", [320, 3_202, 100_000])
def test_spans_of_speech_are_those_of_the_whole_sound(front: Front, size: int) -> None:
    spans, starts, end = [], set(), 0.0
    with opened(front, "level", f"?sample_rate={RATE}") as client:
        for piece in pieces(pcm(SOUND), size):
            answer = client.ask(piece)
            assert answer["start"] in (end, answer["end"])
            end = answer["end"]
            if answer["predictions"] is not None:
                spans += answer["predictions"]["spans"]
                starts.add(answer["predictions"]["speech_start"])
    expected = whole(front, "level", SOUND)["spans"]
    assert len(expected) == 2
    assert [(span["start"], span["end"]) for span in spans] == [(span["start"], span["end"]) for span in expected]
    assert end == pytest.approx(len(SOUND) / RATE, abs=0.1)
    if size == 320:
        assert starts == {None, *(span["start"] for span in expected)}
    until(lambda: front.server.plane.memory.used == 0)


def test_classes_are_those_of_each_window(front: Front) -> None:
    sound = np.concatenate([tone(300, 1.2), tone(6_000, 1.3)])
    expected = whole(front, "bands", sound, "?windows=true")
    found = []
    with opened(front, "bands", f"?sample_rate={RATE}&windows=true") as client:
        for piece in pieces(pcm(sound), 5_000):
            found += client.ask(piece)["predictions"] or []
    assert [each["start"] for each in found] == [0, 0.5, 1.0, 1.5]
    assert found == expected[: len(found)]
    assert found[0]["classes"][0]["label"] != found[-1]["classes"][0]["label"]


def test_another_rate_is_resampled(front: Front) -> None:
    rate = 48_000
    with opened(front, "level", f"?sample_rate={rate}&probabilities=true") as client:
        answers = [client.ask(piece) for piece in pieces(pcm(tone(440, 1.0, rate)), 9_600)]
    values = [each for answer in answers if answer["predictions"] for each in answer["predictions"]["probabilities"]]
    assert 8 <= len(values) <= 10
    np.testing.assert_allclose(values, 0.5, atol=0.02)


def test_a_wrong_message_is_answered_with_an_error_and_the_stream_goes_on(front: Front) -> None:
    with opened(front, "level", f"?sample_rate={RATE}") as client:
        assert client.ask({"inputs": 1})["error"]["code"] == "invalid_request"
        assert client.ask(b"abc")["error"]["code"] == "input_mismatch"
        assert client.ask(bytes(2 * RATE * 601))["error"]["code"] == "too_large"
        assert client.ask(bytes(3_200))["end"] == 0.1


def test_hooks_make_the_answers_of_windows(front: Front) -> None:
    with opened(front, "hooked", f"?sample_rate={RATE}") as client:
        levels = np.repeat([0.1, 0.9, 0.2], 1_600)
        assert client.ask(pcm(levels[:1_000]))["predictions"] is None
        answer = client.ask(pcm(levels[1_000:]))
        assert answer["predictions"] == [False, True, False] and (answer["start"], answer["end"]) == (0.0, 0.3)


def test_a_pipeline_takes_sound_files(front: Front) -> None:
    with opened(front, "steps") as client:
        for _ in range(2):
            found = client.ask(wav(np.frombuffer(pcm(SOUND), np.int16), RATE))
            assert len(found["predictions"]["speech"]["spans"]) == 2


@pytest.mark.parametrize(
    ("name", "query", "expected"),
    [
        ("level", "?sample_rate=0", "sample_rate: found '0', expected 1000 to 384000"),
        ("level", "?sample_rate=x", "sample_rate: found 'x', expected 1000 to 384000"),
        ("level", "?sample_rate=%D9%A1%D9%A1%D9%A1%D9%A1", "expected 1000 to 384000"),
        ("free", "?sample_rate=16000", "expected a network with windows (sound.window_s)"),
        ("bodies", "?sample_rate=16000", "its preprocess in hooks.py takes whole bodies, no samples"),
        ("steps", "?sample_rate=16000", "pipeline 'steps' takes no samples, expected messages that are sound files"),
        ("level", "?sample_rates=16000", "unknown query parameter 'sample_rates'"),
    ],
)
def test_a_wrong_handshake_is_refused(front: Front, name: str, query: str, expected: str) -> None:
    with front.connect() as connection:
        client = Socket(connection, f"/models/{name}/stream{query}", {})
        refused = client.receive()
        assert isinstance(refused, events.RejectConnection) and refused.status_code in (400, 422)
        body = client.receive()
        assert expected in json.loads(body.data)["error"]["message"]


def test_a_browser_sends_its_key_as_a_protocol(tmp_path: Path) -> None:
    write_waves(tmp_path, "level", "1600", LOUDNESS, LEVEL)
    with listening(tmp_path, keys=KEYS) as front:
        for offered, status in (("key.YS1rZXktb2YtdGhlLXRlc3QtMQ", 101), ("key.AAAA", 401), ("key.%", 401)):
            with front.connect() as connection:
                target = f"/models/level/stream?sample_rate={RATE}"
                client = Socket(connection, target, {}, ("pnnx-serve", offered))
                found = client.receive()
                if status == 101:
                    assert found.subprotocol == "pnnx-serve"
                    assert client.ask(bytes(3_200))["end"] == 0.1
                else:
                    assert found.status_code == status
