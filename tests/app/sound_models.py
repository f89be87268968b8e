"""Small models for sounds, and sounds as files."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.app.sample_models import write_model

RATE = 16_000


def tone(hertz: float, seconds: float = 1.0, rate: int = RATE) -> NDArray[np.float32]:
    """Return a sine at half of the full scale."""
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)).astype(np.float32)


def wav(samples: NDArray[Any], rate: int = RATE, *, size: int | None = None) -> bytes:
    """Return a WAV file, (samples,) or (samples, channels), of float32 or int16; size: what its header claims."""
    channels = 1 if samples.ndim == 1 else samples.shape[1]
    data = np.ascontiguousarray(samples).tobytes()
    width, kind = samples.dtype.itemsize, 3 if samples.dtype.kind == "f" else 1
    claimed = len(data) if size is None else size
    head = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * width % 2**32, channels * width, 8 * width)
    chunks = b"fmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", claimed) + data
    return b"RIFF" + struct.pack("<I", min(4 + len(chunks), 2**32 - 1)) + b"WAVE" + chunks


def encoded(samples: NDArray[Any], rate: int = RATE, **options: Any) -> bytes:
    """Return a file of another format, written by libsndfile."""
    import soundfile

    file = io.BytesIO()
    soundfile.write(file, samples, rate, **options)
    return file.getvalue()


def write_bands(
    store: Path,
    name: str = "bands",
    config: str = "",
    *,
    frames: str = "?",
    bands: int = 4,
    task: str = "audio-classification",
) -> None:
    """Write a model of log-mel features (N, bands, frames): the score of class i is the mean of band i over time."""
    lines = [
        f"pnnx.Input in0 0 1 0 #0=(?,{bands},{frames})f32",
        f"torch.mean pool 1 1 0 1 dim=(-1) keepdim=False #0=(?,{bands},{frames})f32 #1=(?,{bands})f32",
        f"pnnx.Output out 1 0 1 #1=(?,{bands})f32",
    ]
    labels = json.dumps([f"band {index}" for index in range(bands)])
    sound = f'[sound]\nfeatures = "log-mel"\nn_mels = {bands}\n'
    write_model(store, name, lines, config=f'task = "{task}"\nlabels = {labels}\n{sound}{config}')


def write_waves(store: Path, name: str, samples: str, lines: Sequence[str], config: str) -> None:
    """Write a model of waves (N, samples); the lines are those between operand 0 and operand 1."""
    write_model(
        store, name, [f"pnnx.Input in0 0 1 0 #0=(?,{samples})f32", *lines, "pnnx.Output out 1 0 1"], config=config
    )
