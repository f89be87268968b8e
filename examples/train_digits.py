"""Training of model_store/digits; writes its folder: weights, config, labels, README and images.

    pip install ".[export]"
    python examples/train_digits.py

About a minute on one core. All random numbers come from one seed and torch uses one thread, so that the same versions
on the same CPU write the same files. `train` never gets the test images. The figures of the README are measured on the
exported files, read back by pnnx, with the preprocessing of config.toml.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np
import numpy.typing as npt
import sklearn
import torch
import torch.nn.functional as F
from pair import write_pair
from PIL import Image, ImageOps
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

ROOT = Path(__file__).resolve().parent.parent
SEED = 0
HELD_BACK = 0.25
SIZE = 16
SCALE, MEAN, STD = 1 / 255, 0.5, 0.5
BATCH = 64

CONFIG = f"""\
# Written by examples/train_digits.py, which trains with exactly this preprocessing.
task = "classification"
labels = "labels.txt"
default = true                # requests that name no model mean this one

[preprocess]
size = [{SIZE}, {SIZE}]              # height, width
resize = "stretch"
interpolation = "bilinear"
color = "grey"
scale = {SCALE!r}   # value = (pixel * scale - mean) / std
mean = [{MEAN}]
std = [{STD}]

[classification]
top_k = 3
"""

Pictures = list[Image.Image]


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Ink in 0..1, float32 (N, 1, 8, 8), and labels, int64 (N,)."""

    ink: Tensor
    labels: Tensor


class Digits(nn.Module):
    """Classifier: (N, 1, 16, 16) float32 in about -1..1 -> (N, 10) logits."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *_convolve(1, width),
            *_convolve(width, width),
            nn.MaxPool2d(2),
            *_convolve(width, 2 * width),
            *_convolve(2 * width, 2 * width),
            nn.MaxPool2d(2),
            *_convolve(2 * width, 3 * width),
        )
        self.dropout = nn.Dropout(0.3)
        self.head = nn.Linear(3 * width * (SIZE // 4) ** 2, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.dropout(torch.flatten(self.features(x), 1)))
        return logits


def _convolve(channels: int, filters: int) -> Iterable[nn.Module]:
    return nn.Conv2d(channels, filters, 3, padding=1, bias=False), nn.BatchNorm2d(filters), nn.ReLU()


def load_splits() -> tuple[Split, Split]:
    """Return the training and the test split, with the same share of each digit."""
    data = load_digits()
    parts = train_test_split(
        data.images / 16, data.target, test_size=HELD_BACK, random_state=SEED, stratify=data.target
    )
    ink = [torch.tensor(part, dtype=torch.float32)[:, None] for part in parts[:2]]
    labels = [torch.tensor(part) for part in parts[2:]]
    return Split(ink=ink[0], labels=labels[0]), Split(ink=ink[1], labels=labels[1])


def augment(ink: Tensor, chance: torch.Generator) -> Tensor:
    """Return variants that clients may send, (N, 1, 16, 16): redrawn, moved, faint, noisy, dark on light."""

    def draw(low: float, high: float) -> Tensor:
        return torch.rand((len(ink), 1, 1, 1), generator=chance) * (high - low) + low

    big = F.interpolate(ink, size=2 * SIZE, mode="bicubic", align_corners=False).clamp(0, 1)
    big = torch.where(draw(0, 1) < 0.5, _sharpen(big, steepness=draw(4, 16), threshold=draw(0.25, 0.6)), big)
    big = torch.where(draw(0, 1) < 0.7, _move(big, chance), big)
    picture = _photograph(big, kind=draw(0, 1)) * draw(0.6, 1)
    picture = (picture + torch.randn(picture.shape, generator=chance) * 0.03).clamp(0, 1)
    return torch.where(draw(0, 1) < 0.3, 1 - picture, picture)


def _sharpen(ink: Tensor, *, steepness: Tensor, threshold: Tensor) -> Tensor:
    # The data's grey values count ink in 4x4 blocks of a scan; a threshold restores strokes of about the old shape.
    low = torch.sigmoid(-threshold * steepness)
    high = torch.sigmoid((1 - threshold) * steepness)
    return (torch.sigmoid((ink - threshold) * steepness) - low) / (high - low)


def _move(ink: Tensor, chance: torch.Generator) -> Tensor:
    def draw(low: float, high: float) -> Tensor:
        return torch.rand(len(ink), generator=chance) * (high - low) + low

    turn, shear = draw(-15, 15) * math.pi / 180, draw(-0.2, 0.2)
    wide, tall = 1 / draw(0.6, 1.1), 1 / draw(0.6, 1.1)
    across = torch.stack([wide * turn.cos(), wide * (shear - turn.sin()), draw(-0.25, 0.25)], 1)
    down = torch.stack([tall * turn.sin(), tall * turn.cos(), draw(-0.25, 0.25)], 1)
    grid = F.affine_grid(torch.stack([across, down], 1), list(ink.shape), align_corners=False)
    return F.grid_sample(ink, grid, align_corners=False)


def _photograph(big: Tensor, *, kind: Tensor) -> Tensor:
    """Reduce images to the input size: directly, or through 8x8 like the data, smooth or in blocks."""
    coarse = F.avg_pool2d(big, big.shape[-1] // 8)
    smooth = F.interpolate(coarse, size=SIZE, mode="bilinear", align_corners=False)
    blocks = F.interpolate(coarse, size=SIZE, mode="nearest")
    sharp = F.avg_pool2d(big, big.shape[-1] // SIZE)
    return torch.where(kind < 0.3, smooth, torch.where(kind < 0.45, blocks, sharp))


def train(split: Split, epochs: int) -> Digits:
    torch.manual_seed(SEED)
    chance = torch.Generator().manual_seed(SEED + 1)
    model = Digits()
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    steps = epochs * math.ceil(len(split.labels) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for epoch in range(epochs):
        order = torch.randperm(len(split.labels), generator=chance)
        pictures = (augment(split.ink[order], chance) - MEAN) / STD
        for x, labels in zip(pictures.split(BATCH), split.labels[order].split(BATCH), strict=True):
            loss = F.cross_entropy(model(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if sys.stderr.isatty():
            print(f"\repoch {epoch + 1}/{epochs}, loss {loss.item():.3f} ", end="", file=sys.stderr, flush=True)
    return model.eval()


def to_pictures(ink: Tensor) -> Pictures:
    grey = (ink[:, 0] * 255).round().to(torch.uint8).numpy()
    return [Image.fromarray(pixels) for pixels in grey]


def enlarged(pictures: Pictures) -> Pictures:
    return [picture.resize((64, 64), Image.Resampling.BICUBIC) for picture in pictures]


def preprocess(pictures: Pictures) -> Tensor:
    """Preprocess images as the server does by config.toml: (N, 1, 16, 16) float32."""
    small = [picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR) for picture in pictures]
    pixels = np.stack([np.asarray(picture, dtype=np.float32) for picture in small])[:, None]
    return (torch.from_numpy(pixels) * SCALE - MEAN) / STD


@torch.no_grad()
def count_right(model: nn.Module, pictures: Pictures, labels: Tensor) -> int:
    # The network that pnnx reads back was traced with batch size 1.
    named = [int(model(x).argmax()) for x in preprocess(pictures).split(1)]
    return sum(name == label for name, label in zip(named, labels.tolist(), strict=True))


def measure(model: nn.Module, split: Split) -> dict[str, int]:
    """Return the number of correct answers for each kind of test image."""
    small = to_pictures(split.ink)
    large = enlarged(small)
    ways = {
        "8×8, as the data has them": small,
        "enlarged to 64×64, as in `examples/`": large,
        "enlarged to 64×64, dark on light": [ImageOps.invert(picture) for picture in large],
    }
    return {way: count_right(model, pictures, split.labels) for way, pictures in ways.items()}


def write_card(folder: Path, *, parameters: int, trained: int, held_back: int, figures: dict[str, int]) -> None:
    rows = [f"| {way} | {right} of {held_back} | {right / held_back:.2%} |" for way, right in figures.items()]
    template = Path(__file__).with_name("train_digits_card.md").read_text(encoding="utf-8")
    card = Template(template).substitute(
        parameters=f"{parameters:,}",
        trained=f"{trained:,}",
        held_back=held_back,
        rows="\n".join(rows),
        torch=torch.__version__.partition("+")[0],
        sklearn=sklearn.__version__,
        seed=SEED,
        size=SIZE,
    )
    folder.joinpath("README.md").write_text(card, encoding="utf-8")


def write_examples(folder: Path, split: Split) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pictures = enlarged(to_pictures(split.ink))
    for digit in range(10):
        first_two = torch.nonzero(split.labels == digit)[:2, 0].tolist()
        for letter, index in zip("ab", first_two, strict=True):
            pictures[index].save(folder / f"digit-{digit}-{letter}.png", optimize=True)


def write_held_back(path: Path, split: Split) -> None:
    """Write all test images, uint8 (N, 8, 8), for the test that repeats the README's first figure."""
    pixels: npt.NDArray[np.uint8] = np.stack([np.asarray(picture) for picture in to_pictures(split.ink)])
    np.savez_compressed(path, pixels=pixels, labels=split.labels.numpy().astype(np.uint8))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Train the digits model and write its folder.")
    parser.add_argument("--out", type=Path, default=ROOT / "model_store/digits", help="folder to write")
    parser.add_argument("--held-back", type=Path, help="also write all held-back pictures to this .npz")
    parser.add_argument("--epochs", type=int, default=100)
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    training, held_back = load_splits()
    model = train(training, options.epochs)
    read_back = write_pair(model, options.out / "1", torch.zeros(1, 1, SIZE, SIZE))
    figures = measure(read_back, held_back)

    options.out.joinpath("config.toml").write_text(CONFIG, encoding="utf-8")
    options.out.joinpath("labels.txt").write_text("".join(f"{digit}\n" for digit in range(10)), encoding="utf-8")
    write_card(
        options.out,
        parameters=sum(weight.numel() for weight in model.parameters()),
        trained=len(training.labels),
        held_back=len(held_back.labels),
        figures=figures,
    )
    write_examples(options.out / "examples", held_back)
    if options.held_back:
        write_held_back(options.held_back, held_back)
    for way, right in figures.items():
        print(f"{right / len(held_back.labels):.4f} of the held-back pictures named right ({way})")


if __name__ == "__main__":
    main()
