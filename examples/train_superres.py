"""Training of model_store/superres; writes its folder: weights, config, README and images.

    pip install ".[export]"
    python examples/train_superres.py

Needs torch, pnnx, Pillow and the photographs in the wheels of scikit-image and scikit-learn; nothing is downloaded.
About ten minutes on one core. All random numbers come from one seed and torch uses one thread, so that the same
versions on the same CPU write the same files. Whole photographs are kept for the test, and `train` never gets them. A
small image is Pillow's bicubic reduction of the large one. The figures of the README are of 8-bit images and the
exported files, read back by pnnx.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np
import numpy.typing as npt
import skimage
import sklearn
import torch
import torch.nn.functional as F
from pair import write_pair
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor, nn

import engine

ROOT = Path(__file__).resolve().parent.parent
SEED = 0
FACTOR = 2
BATCH, PATCH = 16, 32
HELD_BACK = ("chelsea", "coffee", "camera", "rocket", "flower")
TRAINING = (
    *("astronaut", "motorcycle", "china", "hubble_deep_field", "immunohistochemistry", "retina"),
    *("brick", "grass", "gravel", "coins", "moon", "page", "text"),
)
CROPS = {"chelsea": (112, 64), "coffee": (288, 225)}  # what examples/ shows: left, top of 160x120 pixels
CROP_SIZE = (160, 120)
SHOWN_SIZE = (96, 72)  # the middle of a crop, for comparison.png

CONFIG = f"""\
# Written by examples/train_superres.py, which trains with exactly this preprocessing.
task = "image"

[preprocess]
resize = "none"               # any height and width
max_pixels = 640000           # about 800 by 800: larger pictures would outlast a request
color = "rgb"
scale = {1 / 255!r}   # value = pixel * scale

[image]
output = "out0"
scale = 255.0                 # pixel = value * scale
color = "rgb"
"""

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A photograph at both sizes, uint8: (3, H, W) and (3, 2H, 2W)."""

    small: Tensor
    large: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Peak signal-to-noise ratios of a photograph in dB: bicubic and network, in RGB and luma."""

    name: str
    bicubic: float
    network: float
    bicubic_luma: float
    network_luma: float


class Block(nn.Module):
    """Residual block with two convolutions: (N, width, H, W) -> the same shape."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1)
        self.second = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.second(F.relu(self.first(x)))
        return found


class SuperResolution(nn.Module):
    """Network: (N, 3, H, W) float32 in 0..1 -> (N, 3, 2H, 2W) in 0..1, bicubic plus sub-pixel convolution."""

    def __init__(self, width: int = 32, blocks: int = 2) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.tail = nn.Conv2d(width, 3 * FACTOR**2, 3, padding=1)
        self.shuffle = nn.PixelShuffle(FACTOR)
        # The untrained network is exactly bicubic interpolation.
        nn.init.zeros_(self.tail.weight)
        nn.init.zeros_(self.tail.bias)

    def forward(self, x: Tensor) -> Tensor:
        detail = self.shuffle(self.tail(F.relu(self.body(F.relu(self.head(x))))))
        smooth = F.interpolate(x, scale_factor=FACTOR, mode="bicubic", align_corners=False)
        enlarged: Tensor = smooth + detail
        # Clamping in training would stop the gradient where the output is too bright.
        return enlarged if self.training else enlarged.clamp(0, 1)


def load_photograph(name: str) -> Image.Image:
    """Return a photograph as RGB with even sides."""
    if name in ("china", "flower"):
        pixels = load_sample_image(f"{name}.jpg")
    elif name == "motorcycle":
        pixels = skimage.data.stereo_motorcycle()[0]
    else:
        pixels = getattr(skimage.data, name)()
    photograph = Image.fromarray(pixels).convert("RGB")
    return photograph.crop((0, 0, photograph.width // 2 * 2, photograph.height // 2 * 2))


def halve(large: Image.Image) -> Image.Image:
    return large.resize((large.width // FACTOR, large.height // FACTOR), Image.Resampling.BICUBIC)


def to_tensor(picture: Image.Image) -> Tensor:
    """Return the image as (3, H, W) uint8."""
    return torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous()


def load_training() -> list[Pair]:
    """Return each photograph at three sizes: reduction sharpens it and removes JPEG artefacts."""
    pairs = []
    for name in TRAINING:
        photograph = load_photograph(name)
        for share in (1, 0.7, 0.5):
            width, height = (round(side * share) // 2 * 2 for side in photograph.size)
            large = photograph.resize((width, height), Image.Resampling.LANCZOS)
            pairs.append(Pair(small=to_tensor(halve(large)), large=to_tensor(large)))
    return pairs


def batches(pairs: Sequence[Pair], steps: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield rotated, mirrored, recoloured patches: (N, 3, 32, 32) and (N, 3, 64, 64), in 0..1."""
    chance = np.random.default_rng(SEED)
    areas = np.sqrt([pair.small[0].numel() for pair in pairs])
    for _ in range(steps):
        chosen = chance.choice(len(pairs), BATCH, p=areas / areas.sum())
        small, large = zip(*(_cut(pairs[index], chance) for index in chosen), strict=True)
        yield torch.stack(small).float() / 255, torch.stack(large).float() / 255


def _cut(pair: Pair, chance: np.random.Generator) -> tuple[Tensor, Tensor]:
    top, left = (int(chance.integers(side - PATCH + 1)) for side in pair.small.shape[1:])
    colors, turns, is_mirrored = chance.permutation(3), int(chance.integers(4)), bool(chance.integers(2))

    def cut(picture: Tensor, scale: int) -> Tensor:
        rows, columns = (slice(scale * start, scale * (start + PATCH)) for start in (top, left))
        patch = picture[colors, rows, columns].rot90(turns, (1, 2))
        return patch.flip(2) if is_mirrored else patch

    return cut(pair.small, 1), cut(pair.large, FACTOR)


def train(pairs: Sequence[Pair], steps: int) -> SuperResolution:
    torch.manual_seed(SEED)
    model = SuperResolution().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.05)
    for step, (small, large) in enumerate(batches(pairs, steps)):
        loss = F.l1_loss(model(small.to(memory_format=torch.channels_last)), large)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        if step % 50 == 49 and sys.stderr.isatty():
            print(f"\rstep {step + 1}/{steps}, loss {loss.item():.4f} ", end="", file=sys.stderr, flush=True)
    trained: SuperResolution = model.to(memory_format=torch.contiguous_format).eval()
    return trained


@torch.no_grad()
def enlarge(model: nn.Module, small: Image.Image) -> Image.Image:
    """Enlarge an image as the server does."""
    values = model(to_tensor(small)[None].float() / 255)[0]
    return Image.fromarray((values * 255).round().to(torch.uint8).permute(1, 2, 0).numpy())


def enlarge_bicubic(small: Image.Image) -> Image.Image:
    return small.resize((small.width * FACTOR, small.height * FACTOR), Image.Resampling.BICUBIC)


def psnr(found: Image.Image, expected: Image.Image, mode: str = "RGB") -> float:
    """Return the PSNR of all pixels, edges included; in mode "L", of Pillow's luma."""
    difference = np.asarray(found.convert(mode), np.float64) - np.asarray(expected.convert(mode), np.float64)
    return 10 * math.log10(255**2 / float(np.mean(difference**2)))


def measure(model: nn.Module, name: str) -> Score:
    large = load_photograph(name)
    bicubic, network = enlarge_bicubic(halve(large)), enlarge(model, halve(large))
    return Score(
        name=name,
        bicubic=psnr(bicubic, large),
        network=psnr(network, large),
        bicubic_luma=psnr(bicubic, large, "L"),
        network_luma=psnr(network, large, "L"),
    )


@torch.no_grad()
def check_engine(version: Path, model: nn.Module) -> float:
    """Return the largest difference between engine and torch, at sizes that the export never saw."""
    session = engine.Session(engine.load(version / "model.pnnx.param", version / "model.pnnx.bin"))
    chance = torch.Generator().manual_seed(SEED)
    pictures = [torch.rand(shape, generator=chance) for shape in ((1, 3, 1, 1), (1, 3, 31, 45), (3, 3, 48, 17))]
    return max(float(np.abs(session.run([x.numpy()])[0] - model(x).numpy()).max()) for x in pictures)


def write_examples(folder: Path) -> dict[str, Image.Image]:
    """Write a part of two test photographs, original and reduced."""
    folder.mkdir(parents=True, exist_ok=True)
    crops = {}
    for name, (left, top) in CROPS.items():
        crops[name] = load_photograph(name).crop((left, top, left + CROP_SIZE[0], top + CROP_SIZE[1]))
        crops[name].save(folder / f"{name}-original.png", optimize=True)
        halve(crops[name]).save(folder / f"{name}-small.png", optimize=True)
    return crops


def write_comparison(path: Path, model: nn.Module, crops: Sequence[Image.Image]) -> None:
    """Write a row for each image: nearest neighbour, bicubic, the network, the original."""
    (width, height), gap = SHOWN_SIZE, 2
    sheet = Image.new("RGB", (4 * (width + gap) - gap, len(crops) * (height + gap) - gap), "white")
    for row, original in enumerate(crops):
        small = halve(original)
        nearest = small.resize(original.size, Image.Resampling.NEAREST)
        for column, picture in enumerate((nearest, enlarge_bicubic(small), enlarge(model, small), original)):
            left, top = ((side - shown) // 2 for side, shown in zip(CROP_SIZE, SHOWN_SIZE, strict=True))
            shown = picture.crop((left, top, left + width, top + height))
            sheet.paste(shown, (column * (width + gap), row * (height + gap)))
    sheet.resize((2 * sheet.width, 2 * sheet.height), Image.Resampling.NEAREST).save(path, optimize=True)


def write_card(folder: Path, *, parameters: int, scores: Sequence[Score]) -> None:
    template = Path(__file__).with_name("train_superres_card.md").read_text(encoding="utf-8")
    card = Template(template).substitute(
        parameters=f"{parameters:,}",
        trained=len(TRAINING),
        held_back=len(HELD_BACK),
        training=", ".join(f"`{name}`" for name in TRAINING),
        rows="\n".join(_row(score) for score in (*scores, mean(scores))),
        torch=torch.__version__.partition("+")[0],
        skimage=skimage.__version__,
        sklearn=sklearn.__version__,
        seed=SEED,
    )
    folder.joinpath("README.md").write_text(card, encoding="utf-8")


def mean(scores: Sequence[Score]) -> Score:
    return Score(
        name="mean",
        bicubic=float(np.mean([score.bicubic for score in scores])),
        network=float(np.mean([score.network for score in scores])),
        bicubic_luma=float(np.mean([score.bicubic_luma for score in scores])),
        network_luma=float(np.mean([score.network_luma for score in scores])),
    )


def _row(score: Score) -> str:
    color, luma = score.network - score.bicubic, score.network_luma - score.bicubic_luma
    return (
        f"| {score.name} | {score.bicubic:.2f} | {score.network:.2f} | {color:+.2f} "
        f"| {score.bicubic_luma:.2f} | {score.network_luma:.2f} | {luma:+.2f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Train the superres model and write its folder.")
    parser.add_argument("--out", type=Path, default=ROOT / "model_store/superres", help="folder to write")
    parser.add_argument("--steps", type=int, default=6000)
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    # pnnx reads back upsample for interpolate.
    warnings.filterwarnings("ignore", message=".*upsample. is deprecated")
    model = train(load_training(), options.steps)
    # All sides of the second shape differ from the first, so that all sizes stay dynamic.
    shapes = torch.zeros(1, 3, 24, 40), torch.zeros(2, 3, 37, 29)
    read_back = write_pair(model, options.out / "1", *shapes)
    scores = [measure(read_back, name) for name in HELD_BACK]

    options.out.joinpath("config.toml").write_text(CONFIG, encoding="utf-8")
    write_card(options.out, parameters=sum(weight.numel() for weight in model.parameters()), scores=scores)
    crops = write_examples(options.out / "examples")
    write_comparison(options.out / "comparison.png", read_back, list(crops.values()))
    for score in (*scores, mean(scores)):
        print(f"{score.name}: {score.network:.2f} dB, bicubic {score.bicubic:.2f} dB")
    print(f"engine and torch differ by {check_engine(options.out / '1', read_back):.1e} at most")


if __name__ == "__main__":
    main()
