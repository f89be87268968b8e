"""Training of model_store/shapes; writes its folder: weights, config, labels, README and images.

    pip install ".[export]"
    python examples/train_shapes.py

Needs torch, pnnx and Pillow; shapes/drawing.py draws all images. About ten minutes on one core. All random numbers come
from one seed and torch uses one thread, so that the same versions on the same CPU write the same files. Test images
come from another random stream than training images. The figures of the README are measured on the exported files, read
back by pnnx, with the preprocessing of config.toml.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

import numpy as np
import numpy.typing as npt
import torch
from pair import write_pair
from PIL import Image
from shapes.drawing import LABELS, MOST_SHAPES, Scene, draw_scene
from shapes.loss import Truth, detection_loss
from shapes.network import STRIDES, Detector
from shapes.precision import Boxes, average_precisions, decode, precision_and_recall
from torch import Tensor, nn

import engine

ROOT = Path(__file__).resolve().parent.parent
SEED = 0
SIZE = 128
FILL = 114
SIDES = 96, 224  # of pictures that are not SIZE by SIZE
BATCH = 32
UNSEEN = 500  # pictures of each kind the figures are measured on
EXAMPLES = {"a": (128, 128), "b": (128, 128), "c": (200, 150), "d": (120, 180)}
SCORE_THRESHOLD, IOU_THRESHOLD = 0.2, 0.5

CONFIG = f"""\
# Written by examples/train_shapes.py, which trains with exactly this preprocessing.
task = "detection"
labels = "labels.txt"

[preprocess]
size = [{SIZE}, {SIZE}]            # height, width
resize = "letterbox"
fill = {FILL}
interpolation = "bilinear"
color = "rgb"
scale = {1 / 255!r}   # value = pixel * scale

[detection]
decoder = "yolov8"           # cx, cy, w, h in pixels of the 128x128 canvas, then a score for each class
normalized = false
score_threshold = {SCORE_THRESHOLD}
iou_threshold = {IOU_THRESHOLD}
"""

Canvas = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A scene as network input: a canvas (3, 128, 128), and its boxes in pixels of the canvas."""

    canvas: Canvas
    boxes: Boxes


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Metrics of one kind of images: average precision of each class at IoU 0.5, mAP50 and mAP50-95.

    Precision and recall are at IoU 0.5, with the thresholds of config.toml.
    """

    pictures: int
    shapes: int
    by_class: list[float]
    map50: float
    map50_95: float
    precision: float
    recall: float


def letterbox(picture: Image.Image) -> tuple[Canvas, float, tuple[int, int]]:
    """Return the canvas as the server makes it, and the ratio and origin that map boxes onto it."""
    ratio = min(SIZE / picture.width, SIZE / picture.height)
    width, height = max(1, round(picture.width * ratio)), max(1, round(picture.height * ratio))
    origin = (SIZE - width) // 2, (SIZE - height) // 2
    canvas = Image.new("RGB", (SIZE, SIZE), (FILL, FILL, FILL))
    canvas.paste(picture.resize((width, height), Image.Resampling.BILINEAR), origin)
    return np.asarray(canvas).transpose(2, 0, 1), ratio, origin


def to_sample(scene: Scene) -> Sample:
    canvas, ratio, origin = letterbox(scene.picture)
    corners = scene.boxes * ratio + np.tile(origin, 2)
    return Sample(canvas=canvas, boxes=Boxes(corners=corners, classes=scene.classes, scores=np.ones(len(corners))))


def draw_samples(stream: int, square: int, other: int) -> list[Sample]:
    """Return scenes of 128 by 128 and of other sizes from one random stream."""
    chance = np.random.default_rng([SEED, stream])
    sizes = [(SIZE, SIZE)] * square + [(int(w), int(h)) for w, h in chance.integers(*SIDES, (other, 2))]
    return [to_sample(draw_scene(chance, size)) for size in sizes]


def batches(samples: Sequence[Sample], epochs: int) -> Iterator[tuple[Tensor, Truth]]:
    """Yield each sample once an epoch, (N, 3, 128, 128) in 0..1, with rotated, mirrored, recoloured batches."""
    chance = torch.Generator().manual_seed(SEED)
    pictures = torch.from_numpy(np.stack([sample.canvas for sample in samples]))
    truth = _pad([sample.boxes for sample in samples])
    for _ in range(epochs):
        for chosen in torch.randperm(len(samples), generator=chance).split(BATCH):
            colors = torch.randperm(3, generator=chance)
            x, boxes = pictures[chosen][:, colors].float() / 255, truth.boxes[chosen]
            flips = (torch.rand(3, generator=chance) < 0.5).tolist()
            if flips[0]:
                x, boxes = x.transpose(2, 3), boxes[..., [1, 0, 3, 2]]
            if flips[1]:
                x, boxes = x.flip(3), _mirror(boxes, (2, 1, 0, 3))
            if flips[2]:
                x, boxes = x.flip(2), _mirror(boxes, (0, 3, 2, 1))
            yield x, Truth(boxes=boxes, classes=truth.classes[chosen], present=truth.present[chosen])


def _mirror(boxes: Tensor, order: tuple[int, int, int, int]) -> Tensor:
    is_exchanged = torch.tensor([side != index for index, side in enumerate(order)])
    return torch.where(is_exchanged, SIZE - boxes[..., list(order)], boxes)


def _pad(all_boxes: Sequence[Boxes]) -> Truth:
    boxes = torch.zeros(len(all_boxes), MOST_SHAPES, 4)
    classes = torch.zeros(len(all_boxes), MOST_SHAPES, dtype=torch.int64)
    present = torch.zeros(len(all_boxes), MOST_SHAPES, dtype=torch.bool)
    for index, item in enumerate(all_boxes):
        there = slice(len(item.classes))
        boxes[index, there] = torch.from_numpy(item.corners).float()
        classes[index, there] = torch.from_numpy(item.classes)
        present[index, there] = True
    return Truth(boxes=boxes, classes=classes, present=present)


def train(samples: Sequence[Sample], epochs: int) -> Detector:
    torch.manual_seed(SEED)
    model = Detector(len(LABELS), SIZE).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=1e-2)
    steps = epochs * math.ceil(len(samples) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.15)
    for step, (x, truth) in enumerate(batches(samples, epochs)):
        corners, logits = model.locate(x.contiguous(memory_format=torch.channels_last))
        loss = detection_loss(corners, logits, model.centers, truth)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        schedule.step()
        if step % 20 == 19 and sys.stderr.isatty():
            print(f"\rstep {step + 1}/{steps}, loss {loss.item():.3f} ", end="", file=sys.stderr, flush=True)
    trained: Detector = model.to(memory_format=torch.contiguous_format).eval()
    return trained


@torch.no_grad()
def measure(model: nn.Module, samples: Sequence[Sample]) -> Figures:
    pictures = torch.from_numpy(np.stack([sample.canvas for sample in samples])).float() / 255
    outputs = torch.cat([model(x) for x in pictures.split(50)]).numpy()
    found, let_through = (
        [decode(output, score, IOU_THRESHOLD) for output in outputs] for score in (0.005, SCORE_THRESHOLD)
    )
    true = [sample.boxes for sample in samples]
    at = {iou: average_precisions(found, true, range(len(LABELS)), iou / 100) for iou in range(50, 100, 5)}
    precision, recall = precision_and_recall(let_through, true, 0.5)
    return Figures(
        pictures=len(samples),
        shapes=sum(len(boxes.classes) for boxes in true),
        by_class=at[50],
        map50=float(np.mean(at[50])),
        map50_95=float(np.mean(list(at.values()))),
        precision=precision,
        recall=recall,
    )


@torch.no_grad()
def check_engine(version: Path, model: nn.Module, samples: Sequence[Sample]) -> float:
    """Return the largest difference between engine and torch, in pixels or score, on some images."""
    session = engine.Session(engine.load(version / "model.pnnx.param", version / "model.pnnx.bin"))
    x = np.stack([sample.canvas for sample in samples[:5]]).astype(np.float32) / np.float32(255)
    return float(np.abs(session.run([x])[0] - model(torch.from_numpy(x)).numpy()).max())


def write_examples(folder: Path) -> None:
    """Write images of a third stream, and their true boxes in pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    chance = np.random.default_rng([SEED, 2])
    expected = {}
    for letter, size in EXAMPLES.items():
        scene = draw_scene(chance, size)
        name = f"shapes-{letter}.png"
        scene.picture.save(folder / name, optimize=True)
        expected[name] = [
            {"label": LABELS[label], "box": [round(side, 1) for side in box]}
            for label, box in zip(scene.classes.tolist(), scene.boxes.tolist(), strict=True)
        ]
    lines = ",\n".join(f"  {json.dumps(name)}: {_listed(boxes)}" for name, boxes in expected.items())
    folder.joinpath("expected.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def _listed(boxes: Sequence[object]) -> str:
    return "[\n" + ",\n".join(f"    {json.dumps(box)}" for box in boxes) + "\n  ]"


def write_card(folder: Path, *, parameters: int, trained: int, figures: dict[str, Figures]) -> None:
    rows = [
        f"| {kind} | {one.pictures} | {one.shapes:,} | **{one.map50:.3f}** | {one.map50_95:.3f} | "
        + f"{one.precision:.1%} | {one.recall:.1%} | "
        + " | ".join(f"{value:.3f}" for value in one.by_class)
        + " |"
        for kind, one in figures.items()
    ]
    template = Path(__file__).with_name("train_shapes_card.md").read_text(encoding="utf-8")
    card = Template(template).substitute(
        parameters=f"{parameters:,}",
        trained=f"{trained:,}",
        labels=", ".join(LABELS[:-1]) + f" or {LABELS[-1]}",
        header=" | ".join(LABELS),
        ruler="---|" * (7 + len(LABELS)),
        rows="\n".join(rows),
        iou_threshold=IOU_THRESHOLD,
        score_threshold=SCORE_THRESHOLD,
        size=SIZE,
        rows_out=4 + len(LABELS),
        anchors=sum((SIZE // stride) ** 2 for stride in STRIDES),
        fine=SIZE // STRIDES[0],
        coarse=SIZE // STRIDES[1],
        torch=torch.__version__.partition("+")[0],
        seed=SEED,
    )
    folder.joinpath("README.md").write_text(card, encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False, description="Train the shapes model and write its folder.")
    parser.add_argument("--out", type=Path, default=ROOT / "model_store/shapes", help="folder to write")
    parser.add_argument("--pictures", type=int, default=6000, help="to draw and train on")
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args(arguments)

    torch.set_num_threads(1)
    # pnnx reads back upsample for interpolate.
    warnings.filterwarnings("ignore", message=".*upsample_nearest. is deprecated")
    model = train(draw_samples(0, options.pictures // 2, options.pictures // 2), options.epochs)
    # A second batch size makes the batch dimension open.
    shapes = torch.zeros(1, 3, SIZE, SIZE), torch.zeros(3, 3, SIZE, SIZE)
    read_back = write_pair(model, options.out / "1", *shapes)
    unseen = draw_samples(1, UNSEEN, UNSEEN)
    figures = {
        "128×128": measure(read_back, unseen[:UNSEEN]),
        f"sides of {SIDES[0]} to {SIDES[1] - 1}": measure(read_back, unseen[UNSEEN:]),
    }

    options.out.joinpath("config.toml").write_text(CONFIG, encoding="utf-8")
    options.out.joinpath("labels.txt").write_text("".join(f"{label}\n" for label in LABELS), encoding="utf-8")
    parameters = sum(weight.numel() for weight in model.parameters())
    write_card(options.out, parameters=parameters, trained=options.pictures, figures=figures)
    write_examples(options.out / "examples")
    for kind, one in figures.items():
        print(f"mAP50 {one.map50:.4f}, mAP50-95 {one.map50_95:.4f} on unseen pictures ({kind})")
    print(f"engine and torch differ by {check_engine(options.out / '1', read_back, unseen):.1e} at most")


if __name__ == "__main__":
    main()
