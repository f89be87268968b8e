"""Small residual network that classifies four patterns, made with numpy only: no torch, no training loop.

    python examples/tiny_resnet.py model_store/patterns

Writes a complete model folder: PNNX files, config, labels and sample images. The trunk is a ResNet as in He et al. 2015
with random weights, which is enough to recognise texture. Only the last layer is fitted, in closed form, to the
features of a few hundred drawn images. Batch normalisation is left out, since a converter folds it into the
convolutions. All random numbers come from one seed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import engine
from engine import pnnx

SEED = 0
SIZE = 16
WIDTHS = (16, 32)
LABELS = ("across", "down", "checkers", "disc")
FITTED, HELD_BACK = 600, 200
CONFIG = f"""\
# Written by examples/tiny_resnet.py.
task = "classification"
labels = "labels.txt"

[preprocess]
size = [{SIZE}, {SIZE}]
color = "grey"
mean = [0.5]
std = [0.5]
"""

Floats = npt.NDArray[np.float32]


def operator(
    type: str, name: str, inputs: str, output: str, weights: Mapping[str, Floats] | None = None, /,
    **params: pnnx.Parameter,
) -> pnnx.Operator:  # fmt: skip
    """Return a line of the text file with its archive members; inputs are operand names separated by blanks."""
    attributes = {key: pnnx.Attribute(array.shape, array.dtype, array) for key, array in (weights or {}).items()}
    return pnnx.Operator(type, name, tuple(inputs.split()), (output,), params, attributes)


def convolution(
    name: str, input: str, output: str, channels: tuple[int, int], chance: np.random.Generator, *, kernel: int = 3,
    stride: int = 1,
) -> pnnx.Operator:  # fmt: skip
    """Return a square convolution that keeps the size or divides it by stride; He's scale keeps the variance."""
    taken, made = channels
    weight = chance.standard_normal((made, taken, kernel, kernel)) * np.sqrt(2 / (taken * kernel**2))
    weights = {"weight": weight.astype(np.float32), "bias": np.zeros(made, np.float32)}
    return operator(
        "nn.Conv2d", name, input, output, weights, in_channels=taken, out_channels=made, kernel_size=(kernel, kernel),
        stride=(stride, stride), padding=(kernel // 2, kernel // 2), padding_mode="zeros", dilation=(1, 1), groups=1,
        bias=True,
    )  # fmt: skip


def block(
    name: str, input: str, output: str, channels: tuple[int, int], chance: np.random.Generator
) -> list[pnnx.Operator]:
    """Return relu(x + f(x)) with two convolutions in f; a 1x1 convolution adapts x if the shapes differ."""
    taken, made = channels
    stride, shortcut = (1, input) if taken == made else (2, f"{output}_short")
    operators = [
        convolution(f"{name}.conv1", input, f"{output}_a", channels, chance, stride=stride),
        operator("nn.ReLU", f"{name}.relu1", f"{output}_a", f"{output}_b"),
        convolution(f"{name}.conv2", f"{output}_b", f"{output}_f", (made, made), chance),
    ]
    if taken != made:
        operators.append(convolution(f"{name}.fit", input, shortcut, channels, chance, kernel=1, stride=stride))
    return [
        *operators,
        operator("pnnx.Expression", f"{name}.add", f"{output}_f {shortcut}", f"{output}_sum", expr="add(@0,@1)"),
        operator("nn.ReLU", f"{name}.relu2", f"{output}_sum", output),
    ]


def trunk(chance: np.random.Generator) -> list[pnnx.Operator]:
    """Return the layers from an image, operand ``x`` (N, 1, 16, 16), to operand ``features`` (N, 32)."""
    narrow, wide = WIDTHS
    return [
        pnnx.Operator("pnnx.Input", "pnnx_input_0", (), ("x",)),
        convolution("stem.conv", "x", "stem_a", (1, narrow), chance),
        operator("nn.ReLU", "stem.relu", "stem_a", "stem"),
        *block("block1", "stem", "one", (narrow, narrow), chance),
        *block("block2", "one", "two", (narrow, wide), chance),
        operator("nn.AdaptiveAvgPool2d", "pool", "two", "mean", output_size=(1, 1)),
        operator("torch.flatten", "flatten", "mean", "features", start_dim=1, end_dim=-1),
    ]


def finished(operators: Sequence[pnnx.Operator], output: str) -> engine.RuntimeGraph:
    """Return the operators as a built graph with one output, and all shapes written as a converter does."""
    ending = pnnx.Operator("pnnx.Output", "pnnx_output_0", (output,), ())
    source = pnnx.Graph([*operators, ending], {"x": engine.TensorSpec((1, 1, SIZE, SIZE), np.dtype(np.float32))})
    graph = engine.RuntimeGraph.from_source(source)
    graph.build()
    source.annotations.update({name: operand.spec for name, operand in graph.operands.items() if operand.spec})
    return graph


def draw(kind: str, size: int, chance: np.random.Generator) -> Floats:
    """Return a noisy image of a kind, (size, size), light on dark or dark on light, in 0..1."""
    down, across = np.mgrid[0:size, 0:size] / size
    turns = 2 * np.pi * chance.uniform(2, 4)
    phase, other_phase = chance.uniform(0, 2 * np.pi, 2)
    rows, columns = np.sin(turns * down + phase), np.sin(turns * across + other_phase)
    middle, radius = chance.uniform(0.4, 0.6, 2), chance.uniform(0.2, 0.35)
    ink = {
        "across": rows > 0,
        "down": columns > 0,
        "checkers": rows * columns > 0,
        "disc": np.hypot(down - middle[0], across - middle[1]) < radius,
    }[kind]
    low, high = chance.permutation([chance.uniform(0, 0.3), chance.uniform(0.7, 1)])
    picture: Floats = np.clip(np.where(ink, high, low) + chance.normal(0, 0.04, ink.shape), 0, 1).astype(np.float32)
    return picture


def pictures(count: int, chance: np.random.Generator) -> tuple[Floats, npt.NDArray[np.intp]]:
    """Return network inputs (count, 1, 16, 16) in -1..1, and the label of each."""
    kinds = np.arange(count) % len(LABELS)
    drawn = np.stack([draw(LABELS[kind], SIZE, chance) for kind in kinds])
    return (drawn[:, None] - 0.5) / 0.5, kinds


def fit_head(features: Floats, kinds: npt.NDArray[np.intp], ridge: float = 1e-3) -> dict[str, Floats]:
    """Return weight (4, 32) and bias (4,) by least squares: 10 for the right label, 0 for the others."""
    rows = np.column_stack([features, np.ones(len(features))]).astype(np.float64)
    wanted = 10 * np.eye(len(LABELS))[kinds]
    solved = np.linalg.solve(rows.T @ rows + ridge * np.eye(rows.shape[1]), rows.T @ wanted)
    return {"weight": solved[:-1].T.astype(np.float32, order="C"), "bias": solved[-1].astype(np.float32)}


def make(chance: np.random.Generator) -> engine.RuntimeGraph:
    """Return the fitted network."""
    operators = trunk(chance)
    seen, kinds = pictures(FITTED, chance)
    (features,) = engine.Session(finished(operators, "features")).run([seen])
    sizes = {"in_features": WIDTHS[1], "out_features": len(LABELS)}
    head = operator("nn.Linear", "head", "features", "scores", fit_head(features, kinds), bias=True, **sizes)
    return finished([*operators, head], "scores")


def share_right(graph: engine.RuntimeGraph, chance: np.random.Generator) -> float:
    """Return the accuracy on new images, in 0..1."""
    seen, kinds = pictures(HELD_BACK, chance)
    (scores,) = engine.Session(graph).run([seen])
    return float((scores.argmax(1) == kinds).mean())


def write_folder(graph: engine.RuntimeGraph, folder: Path, chance: np.random.Generator) -> None:
    """Write files, config, labels, and an image of each kind at four times the input size."""
    for name in ("1", "examples"):
        folder.joinpath(name).mkdir(parents=True, exist_ok=True)
    graph.save(folder / "1/model.pnnx.param", folder / "1/model.pnnx.bin")
    folder.joinpath("config.toml").write_text(CONFIG, encoding="utf-8")
    folder.joinpath("labels.txt").write_text("".join(f"{label}\n" for label in LABELS), encoding="utf-8")
    for label in LABELS:
        pixels = (draw(label, 4 * SIZE, chance) * 255).round().astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"examples/{label}.png")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description="Make a little residual network and write its folder."
    )
    parser.add_argument("folder", type=Path, help="folder of the model to write, such as model_store/patterns")
    folder = parser.parse_args(arguments).folder
    chance = np.random.default_rng(SEED)
    graph = make(chance)
    write_folder(graph, folder, chance)
    totals = graph.describe()["totals"]
    print(f"{folder}: {totals['operators']} operators, {totals['parameters']:,} parameters")
    print(f"{share_right(graph, chance):.1%} of {HELD_BACK} new pictures named right")


if __name__ == "__main__":
    main()
