"""Paths of an exported network: a folder a network, names that contain the batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def default_folder() -> Path:
    """Return the benchmark folder in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pnnx-serve" / "benchmarks"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of one network; those of batch 1 have no suffix, others ``_b8``.

    Args:
        folder: of this network.
    """

    folder: Path

    @property
    def param(self) -> Path:
        """Return the path of the PNNX graph, exported at batch 1, with its weights beside it."""
        return self.folder / "model.pnnx.param"

    @property
    def bin(self) -> Path:
        """Return the path of the PNNX weights."""
        return self.folder / "model.pnnx.bin"

    @property
    def ncnn_param(self) -> Path:
        """Return the path of the ncnn graph, without a batch, from the same converter."""
        return self.folder / "model.ncnn.param"

    @property
    def ncnn_bin(self) -> Path:
        """Return the path of the ncnn weights, float32."""
        return self.folder / "model.ncnn.bin"

    @property
    def weights(self) -> Path:
        """Return the path of PyTorch's state_dict."""
        return self.folder / "model.state.pt"

    def onnx(self, batch: int) -> Path:
        """Return the path of the ONNX graph with fixed shapes."""
        return self.folder / f"model{_suffix(batch)}.onnx"

    def input(self, batch: int) -> Path:
        """Return the path of the input of every engine."""
        return self.folder / f"input{_suffix(batch)}.npy"

    def output(self, batch: int) -> Path:
        """Return the path of PyTorch's answer."""
        return self.folder / f"output{_suffix(batch)}.npy"

    def missing(self, batches: Sequence[int]) -> list[Path]:
        """Return the missing files of a network that is to be measured."""
        wanted = [self.weights, self.bin, self.param, self.input(1), self.output(1)]
        for batch in batches:
            wanted += [self.onnx(batch), self.input(batch), self.output(batch)]
        return [path for path in wanted if not path.exists()]


def _suffix(batch: int) -> str:
    return "" if batch == 1 else f"_b{batch}"
