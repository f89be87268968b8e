"""Wake word of three networks, joined by examples/wake_word.py, against the networks in ONNX Runtime.

Needs the wheel of openwakeword 0.4.0 at ``OPENWAKEWORD``: pip download --no-deps openwakeword==0.4.0.
"""

from __future__ import annotations

import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.app.http.server.test_web_socket import opened
from tests.app.sockets import listening

WHEEL = os.environ.get("OPENWAKEWORD", "")
ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.skipif(not WHEEL, reason="OPENWAKEWORD names no wheel: pip download openwakeword==0.4.0")


def expected(networks: list[bytes], samples: np.ndarray[Any, Any]) -> list[float]:
    """Return the probability after each 80 ms, as openwakeword.model computes it."""
    onnxruntime = pytest.importorskip("onnxruntime")
    mel, embed, word = (onnxruntime.InferenceSession(network) for network in networks)

    def run(session: Any, values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(session.run(None, {session.get_inputs()[0].name: values.astype(np.float32)})[0])

    heard = np.concatenate([np.zeros(480, np.int16), samples])
    frames, embeddings, found = np.zeros((76, 32)), np.zeros((16, 96)), []
    for at in range(0, len(samples) - 1279, 1280):
        frames = np.vstack([frames, run(mel, heard[None, at : at + 1760])[0, 0] / 10 + 2])[-76:]
        embeddings = np.vstack([embeddings, run(embed, frames[None, :, :, None]).reshape(1, 96)])[-16:]
        found.append(float(run(word, embeddings[None]).item()))
    return found


@pytest.mark.parametrize("word", ["alexa", "hey_jarvis"])
def test_a_stream_has_the_probabilities_of_the_three_networks(tmp_path: Path, word: str) -> None:
    soundfile = pytest.importorskip("soundfile")
    pytest.importorskip("onnx")
    sys.path.insert(0, str(ROOT / "examples"))
    from wake_word import write_model

    write_model(tmp_path, Path(WHEEL), word)
    samples, rate = soundfile.read(ROOT / "tests" / "data" / "sound" / "speech.flac", dtype="int16")
    samples, found = samples[: 60 * 1280], []
    with listening(tmp_path) as front, opened(front, word, f"?sample_rate={rate}&windows=true") as client:
        for at in range(0, len(samples), 2_000):
            answer = client.ask(samples[at : at + 2_000].tobytes())
            found += [each["classes"][0]["probability"] for each in answer["predictions"] or ()]
    with zipfile.ZipFile(WHEEL) as archive:
        folder = "openwakeword/resources/models"
        names = "melspectrogram", "embedding_model", f"{word}_v0.1"
        networks = [archive.read(f"{folder}/{name}.onnx") for name in names]
    np.testing.assert_allclose(found, expected(networks, samples), atol=1e-4)
    assert max(found) > 1e-4
