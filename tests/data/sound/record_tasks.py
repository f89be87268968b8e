"""Record answers of silero-vad and of transformers' CTC tokenizer; see tests/app/tasks/sounds.

    pip install silero-vad onnxruntime transformers soundfile
    apt-get install espeak-ng
    python tests/data/sound/record_tasks.py

Writes speech.flac (espeak-ng), silero.npz (probabilities of each window of it) and tasks.json.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

DATA = Path(__file__).parent
RATE = 16_000
SENTENCES = ("The quick brown fox jumps over the lazy dog.", "Hello world.", "One, two, three.")
VOCABULARY = ("<pad>", "<s>", "</s>", "<unk>", "|", *"ETAONIHSRDLUMWCFGYPBVK'XJQZ")
SPANS: tuple[dict[str, Any], ...] = (
    {}, {"threshold": 0.7}, {"min_silence_duration_ms": 500}, {"speech_pad_ms": 200}, {"neg_threshold": 0.1},
    {"min_speech_duration_ms": 1000, "speech_pad_ms": 0},
)  # fmt: skip


def speak() -> np.ndarray:
    """Return sentences with pauses between, and a little noise."""
    import soundfile
    import soxr

    parts: list[np.ndarray] = [np.zeros(RATE // 2)]
    for sentence in SENTENCES:
        with tempfile.NamedTemporaryFile(suffix=".wav") as file:
            subprocess.run(["espeak-ng", "-s", "150", "-w", file.name, sentence], check=True)
            wave, rate = soundfile.read(file.name)
        parts += [soxr.resample(wave, rate, RATE), np.zeros(int(0.7 * RATE))]
    noise = 1e-4 * np.random.default_rng(0).standard_normal(sum(map(len, parts)))
    return (np.concatenate(parts) * 0.5 + noise).astype(np.float32)


def silero(wave: np.ndarray) -> np.ndarray:
    """Return the probability of each window by the network of 16 kHz with its states."""
    import onnxruntime
    import silero_vad

    path = Path(silero_vad.__file__).parent / "data" / "silero_vad_16k_op15.onnx"
    session = onnxruntime.InferenceSession(str(path))
    state, context, found = np.zeros((2, 1, 128), np.float32), np.zeros(64, np.float32), []
    for start in range(0, len(wave), 512):
        chunk = np.pad(wave[start : start + 512], (0, max(0, start + 512 - len(wave))))
        x = np.concatenate([context, chunk])[None]
        output, state = session.run(None, {"input": x, "state": state, "sr": np.array(RATE)})
        context = x[0, -64:]
        found.append(output.item())
    return np.array(found, np.float32)


def spans(probabilities: np.ndarray, length: int) -> list[Any]:
    from silero_vad.utils_vad import get_speech_timestamps_from_probs

    found = []
    for options in SPANS:
        each = get_speech_timestamps_from_probs(probabilities.tolist(), audio_length_samples=length, **options)
        found.append({"options": options, "spans": [[span["start"], span["end"]] for span in each]})
    return found


def transcripts() -> list[Any]:
    """Return texts and words of greedy alignments, by transformers."""
    from transformers import Wav2Vec2CTCTokenizer

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.json"
        path.write_text(json.dumps({token: index for index, token in enumerate(VOCABULARY)}))
        tokenizer = Wav2Vec2CTCTokenizer(str(path))
    chance = np.random.default_rng(1)
    found = []
    for length in (1, 40, 120):
        # Letters that last one to three steps, blanks, delimiters.
        letters = chance.choice([0, 0, 4, *range(5, len(VOCABULARY))], length)
        steps = np.repeat(letters, chance.integers(1, 4, length)).tolist()
        decoded = tokenizer.decode(steps, output_word_offsets=True)
        words = [[each["word"], int(each["start_offset"]), int(each["end_offset"])] for each in decoded["word_offsets"]]
        found.append({"steps": steps, "text": decoded["text"], "words": words})
    return found


def main() -> None:
    import soundfile

    wave = speak()
    soundfile.write(DATA / "speech.flac", wave, RATE)
    wave = soundfile.read(DATA / "speech.flac", dtype="float32")[0]
    probabilities = silero(wave)
    np.savez_compressed(DATA / "silero.npz", probabilities=probabilities)
    chance = np.random.default_rng(2)
    rough = np.clip(np.repeat(chance.random(60), 8) + 0.2 * chance.standard_normal(480), 0, 1).astype(np.float32)
    np.savez_compressed(DATA / "silero.npz", probabilities=probabilities, rough=rough)
    answers = {
        "vocabulary": VOCABULARY,
        "speech": spans(probabilities, len(wave)),
        "rough": spans(rough, 480 * 512 - 100),
        "transcripts": transcripts(),
    }
    (DATA / "tasks.json").write_text(json.dumps(answers, separators=(",", ":")))


if __name__ == "__main__":
    main()
