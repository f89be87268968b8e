"""Training of examples/sounds/keywords; writes its folder: weights, config, labels, README and sounds.

    apt-get install espeak-ng
    pip install ".[export,audio]"
    python examples/train_keywords.py

Needs torch, pnnx, soundfile, soxr and the program espeak-ng, which speaks all sounds; voices of test sounds are not in
training. About ten minutes on one core. All random numbers come from one seed and torch uses one thread. The figures of
the README are measured on the exported files, with the features of config.toml as the server computes them.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import soxr
import torch
from pair import write_pair
from torch import Tensor, nn

import engine
from app.sound.config import SoundConfig
from app.sound.features import compose_features

ROOT = Path(__file__).resolve().parent.parent
SEED = 0
RATE = 16_000
WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
LABELS = (*WORDS, "unknown", "silence")
# Words that are none of these.
OTHERS = (
    "bed", "bird", "cat", "dog", "happy", "house", "marvin", "sheila", "tree", "wow", "zero", "one", "two", "three",
    "four", "five", "six", "seven", "eight", "nine", "water", "light", "music", "table", "window", "open", "close",
    "morning", "summer", "paper", "yellow", "nothing", "under", "lift", "note", "stone", "gold", "often", "upper",
    "tower", "writer",
)  # fmt: skip
ACCENTS = ("en-us", "en-gb", "en-gb-scotland", "en-gb-x-rp", "en-gb-x-gbclan", "en-gb-x-gbcwmd", "en-029")
VOICES = ("m1", "m2", "m3", "m4", "m5", "m6", "f1", "f2", "f3", "Andy", "Alex", "belinda", "Denis", "linda", "max")
UNSEEN_VOICES = ("m7", "m8", "f4", "f5", "Annie", "Jacky", "Lee")
BATCH = 64

CONFIG = """\
# Written by examples/train_keywords.py, which trains with exactly these features.
task = "audio-classification"
labels = "labels.txt"

[sound]
sample_rate = 16000
features = "log-mel"            # a row is 101 frames: one second
n_mels = 40
fmin = 60.0
log_floor = 1e-5
overlap_s = 0.5                 # of the windows of longer sounds

[audio-classification]
top_k = 3
pooling = "max"                 # the word may be in one window of several
"""

Wave = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Utterance:
    """A spoken word and its class."""

    wave: Wave
    label: int


class Spotter(nn.Module):
    """Class scores (N, 12) of log-mel features (N, 40, 101): depthwise separable convolutions."""

    def __init__(self, classes: int, width: int = 48) -> None:
        super().__init__()

        def separable(channels: int, stride: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(channels, channels, 3, stride, 1, groups=channels, bias=False), nn.BatchNorm2d(channels),
                nn.ReLU(), nn.Conv2d(channels, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(),
            )  # fmt: skip

        self.norm = nn.BatchNorm1d(40)
        self.stem = nn.Sequential(nn.Conv2d(1, width, 5, 2, 2, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.body = nn.Sequential(*(separable(width, stride) for stride in (1, 2, 1, 2, 1)))
        self.head = nn.Linear(width * 5, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(self.stem(self.norm(x).unsqueeze(1)))
        return self.head(x.amax(dim=3).flatten(1))


def speak(word: str, voice: str, speed: int, pitch: int) -> Wave:
    """Return a spoken word at RATE."""
    command = ["espeak-ng", "-v", voice, "-s", str(speed), "-p", str(pitch), "--stdout", word]
    output = subprocess.run(command, check=True, capture_output=True).stdout
    wave, rate = soundfile.read(io.BytesIO(output), dtype="float32")
    loud = np.flatnonzero(np.abs(wave) > 0.02 * np.abs(wave).max())
    return np.asarray(soxr.resample(wave[loud[0] : loud[-1] + 1], rate, RATE), np.float32)


def utterances(stream: int, voices: Sequence[str], times: int) -> list[Utterance]:
    """Return each keyword so often by each voice and accent, and other words."""
    chance = np.random.default_rng([SEED, stream])
    found: list[Utterance] = []
    for accent in ACCENTS:
        for voice in voices:
            others = chance.permutation(OTHERS)[: 2 * times]
            for word in [*WORDS * times, *others]:
                wave = speak(word, f"{accent}+{voice}", int(chance.integers(120, 230)), int(chance.integers(20, 90)))
                label = WORDS.index(word) if word in WORDS else LABELS.index("unknown")
                found.append(Utterance(wave, label))
    return found


def noise(chance: np.random.Generator) -> Wave:
    """Return a second of noise between white and brown, or a hum."""
    spectrum = np.fft.rfft(chance.standard_normal(RATE))
    spectrum /= np.maximum(1, np.arange(len(spectrum))) ** chance.uniform(0, 1)
    wave = np.fft.irfft(spectrum, RATE)
    if chance.random() < 0.3:
        wave += wave.std() * np.sin(2 * np.pi * chance.uniform(50, 3_000) * np.arange(RATE) / RATE)
    return (wave / np.abs(wave).max()).astype(np.float32)


def place(wave: Wave, chance: np.random.Generator) -> Wave:
    """Return a second with the word anywhere in it, at some loudness, in noise."""
    second = np.zeros(RATE, np.float32)
    wave = wave[:RATE]
    start = int(chance.integers(0, RATE - len(wave) + 1))
    second[start : start + len(wave)] = wave / np.abs(wave).max()
    second *= np.float32(10 ** chance.uniform(-1.5, -0.05))
    return second + noise(chance) * second.std() * np.float32(10 ** chance.uniform(-2, -0.1))


def silence(chance: np.random.Generator) -> Wave:
    """Return a second without a word."""
    return noise(chance) * np.float32(10 ** chance.uniform(-4, -0.3))


def features(waves: Wave, session: engine.Session) -> Tensor:
    return torch.from_numpy(np.asarray(session.run([waves])[0]))


def open_features() -> engine.Session:
    """Return the session that computes the features of CONFIG."""
    config = SoundConfig.model_validate(tomllib.loads(CONFIG)["sound"])
    return engine.Session(compose_features(config), threads=1)


def seconds(words: Sequence[Utterance], chance: np.random.Generator) -> Iterator[tuple[Wave, npt.NDArray[np.int64]]]:
    """Yield batches of seconds, one twelfth of them without a word, and their classes."""
    order = chance.permutation(len(words))
    silent = BATCH // len(LABELS)
    for at in range(0, len(order) - BATCH + silent + 1, BATCH - silent):
        chosen = [words[index] for index in order[at : at + BATCH - silent]]
        waves = [place(each.wave, chance) for each in chosen] + [silence(chance) for _ in range(silent)]
        labels = [each.label for each in chosen] + [LABELS.index("silence")] * silent
        yield np.stack(waves), np.array(labels)


def train(words: Sequence[Utterance], epochs: int, session: engine.Session) -> Spotter:
    torch.manual_seed(SEED)
    chance = np.random.default_rng([SEED, 2])
    model = Spotter(len(LABELS))
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    steps = epochs * (len(words) // (BATCH - BATCH // len(LABELS)) + 1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps, pct_start=0.2)
    for epoch in range(epochs):
        for waves, labels in seconds(words, chance):
            loss = nn.functional.cross_entropy(
                model(features(waves, session)), torch.from_numpy(labels), label_smoothing=0.05
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        print(f"epoch {epoch + 1}/{epochs}, loss {loss.item():.3f}", file=sys.stderr, flush=True)
    return model.eval()


@torch.no_grad()
def measure(model: nn.Module, words: Sequence[Utterance], session: engine.Session) -> tuple[int, int, list[float]]:
    """Return how many of how many seconds of unseen voices are right, and the share of each class."""
    chance = np.random.default_rng([SEED, 3])
    right, total = np.zeros(len(LABELS)), np.zeros(len(LABELS))
    for waves, labels in seconds(words, chance):
        found = model(features(waves, session)).argmax(dim=1).numpy()
        np.add.at(total, labels, 1)
        np.add.at(right, labels, found == labels)
    return int(right.sum()), int(total.sum()), (right / total).tolist()


def write_examples(folder: Path, words: Sequence[Utterance]) -> None:
    """Write one second of each keyword by an unseen voice, and a sentence of three."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng([SEED, 4])
    for index, word in enumerate(WORDS):
        spoken = [each for each in words if each.label == index]
        wave = place(spoken[int(chance.integers(len(spoken)))].wave, chance)
        soundfile.write(folder / f"{word}.flac", wave, RATE)


def write_card(folder: Path, **values: Any) -> None:
    template = Path(__file__).with_name("train_keywords_card.md").read_text(encoding="utf-8")
    folder.joinpath("README.md").write_text(Template(template).substitute(values), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Train the keywords model and write its folder.")
    parser.add_argument("--out", type=Path, default=ROOT / "examples/sounds/keywords", help="folder to write")
    parser.add_argument("--times", type=int, default=4, help="each word by each voice")
    parser.add_argument("--epochs", type=int, default=15)
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    session = open_features()
    words = utterances(0, VOICES, options.times)
    model = train(words, options.epochs, session)
    read_back = write_pair(model, options.out / "1", torch.zeros(1, 40, 101), torch.zeros(3, 40, 101))
    unseen = utterances(1, UNSEEN_VOICES, 2)
    right, total, shares = measure(read_back, unseen, session)
    options.out.joinpath("config.toml").write_text(CONFIG, encoding="utf-8")
    options.out.joinpath("labels.txt").write_text("".join(f"{label}\n" for label in LABELS), encoding="utf-8")
    version = subprocess.run(["espeak-ng", "--version"], check=True, capture_output=True, text=True).stdout.split()[3]
    write_card(
        options.out,
        parameters=f"{sum(weight.numel() for weight in model.parameters()):,}",
        labels=", ".join(WORDS),
        trained=f"{len(words):,}",
        voices=len(VOICES) * len(ACCENTS),
        unseen=len(UNSEEN_VOICES) * len(ACCENTS),
        right=f"{right:,}",
        total=f"{total:,}",
        accuracy=f"{right / total:.1%}",
        header=" | ".join(LABELS),
        ruler="---|" * len(LABELS),
        shares=" | ".join(f"{share:.1%}" for share in shares),
        torch=torch.__version__.partition("+")[0],
        espeak=version,
        seed=SEED,
    )
    write_examples(options.out / "examples", unseen)
    print(f"{right} of {total} seconds of unseen voices are right")


if __name__ == "__main__":
    main()
