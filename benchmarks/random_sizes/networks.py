"""The networks of this benchmark: which of their axes are open, and between which sizes inputs are drawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.networks import NETWORKS, Network


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An open axis: sizes are drawn evenly from the multiples of `step` between `least` and `most`."""

    name: str
    least: int
    most: int
    step: int = 1

    def draw(self, random: np.random.Generator) -> int:
        """Return a random size."""
        return self.step * int(random.integers(-(-self.least // self.step), self.most // self.step + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenNetwork:
    """A network of `benchmarks/networks` with open axes.

    Args:
        network: the network; its shape is an example.
        axes: open axes of its only input by their number.
    """

    network: Network
    axes: dict[int, Axis]

    def draw_shape(self, random: np.random.Generator) -> tuple[int, ...]:
        """Return the shape of a random input."""
        shape = list(self.network.shape)
        for number, axis in self.axes.items():
            shape[number] = axis.draw(random)
        return tuple(shape)

    def largest_shape(self) -> tuple[int, ...]:
        """Return the shape with every open axis at its largest size."""
        shape = list(self.network.shape)
        for number, axis in self.axes.items():
            shape[number] = axis.most // axis.step * axis.step
        return tuple(shape)

    def input_of(self, shape: Sequence[int]) -> NDArray[Any]:
        """Return the input of a shape: token ids, or values of a normal distribution. The shape is the seed."""
        random = np.random.default_rng(list(shape))
        if self.network.vocabulary:
            return random.integers(0, self.network.vocabulary, shape)
        return random.standard_normal(shape, np.float32)


def _pictures(least: int = 96, most: int = 288, step: int = 1) -> dict[int, Axis]:
    return {
        2: Axis(name="height", least=least, most=most, step=step),
        3: Axis(name="width", least=least, most=most, step=step),
    }


_TOKENS: Final = {1: Axis(name="tokens", least=8, most=300)}

OPEN_NETWORKS: Final = {
    "mobilenet_v2": OpenNetwork(network=NETWORKS["mobilenet_v2"], axes=_pictures()),
    "mobilenet_v3_small": OpenNetwork(network=NETWORKS["mobilenet_v3_small"], axes=_pictures()),
    "yolov5n": OpenNetwork(network=replace(NETWORKS["yolov5n"], make="yolov5n_open"), axes=_pictures(160, 480, 32)),
    "unet": OpenNetwork(network=NETWORKS["unet_256"], axes=_pictures(64, 192, 16)),
    "dbnet": OpenNetwork(network=NETWORKS["dbnet_640"], axes=_pictures(160, 640, 32)),
    "crnn": OpenNetwork(network=NETWORKS["crnn_100"], axes={3: Axis(name="width", least=32, most=320)}),
    "letters": OpenNetwork(network=NETWORKS["letters_400"], axes={2: Axis(name="frames", least=100, most=800)}),
    "vits": OpenNetwork(network=NETWORKS["vits_60"], axes={1: Axis(name="symbols", least=10, most=120)}),
    "bert_mini": OpenNetwork(network=replace(NETWORKS["bert_mini_128"], make="bert_mini_open"), axes=_TOKENS),
    "minilm": OpenNetwork(network=replace(NETWORKS["minilm_l6_128"], make="minilm_l6_open"), axes=_TOKENS),
}


def export_missing(names: Sequence[str], folder: Path) -> None:
    """Write the files of networks that a folder lacks, for which torch is needed."""
    missing = [name for name in names if not (folder / name / "answers.npz").exists()]
    if missing:
        from benchmarks.random_sizes.export import export

        for name in missing:
            export(OPEN_NETWORKS[name], folder / name)
            print(f"{name}: exported", file=sys.stderr, flush=True)
