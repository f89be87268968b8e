"""Where the files of an exported network are: a folder a network, names that say the batch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


def default_folder() -> Path:
    """The cache of the user who runs this."""
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
        """The PNNX graph, exported at batch 1; its weights are beside it."""
        return self.folder / "model.pnnx.param"

    @property
    def bin(self) -> Path:
        """The PNNX weights."""
        return self.folder / "model.pnnx.bin"

    @property
    def ncnn_param(self) -> Path:
        """The ncnn graph, which knows no batch; written by the same converter."""
        return self.folder / "model.ncnn.param"

    @property
    def ncnn_bin(self) -> Path:
        """The ncnn weights, float32."""
        return self.folder / "model.ncnn.bin"

    @property
    def weights(self) -> Path:
        """PyTorch's state_dict."""
        return self.folder / "model.state.pt"

    def onnx(self, batch: int) -> Path:
        """The ONNX graph with all shapes fixed."""
        return self.folder / f"model{_suffix(batch)}.onnx"

    def input(self, batch: int) -> Path:
        """What every engine is given."""
        return self.folder / f"input{_suffix(batch)}.npy"

    def output(self, batch: int) -> Path:
        """PyTorch's answer."""
        return self.folder / f"output{_suffix(batch)}.npy"

    def missing(self, batches: Sequence[int]) -> list[Path]:
        """Of the files that a network must have to be measured, those that are not there."""
        wanted = [self.weights, self.bin, self.param, self.input(1), self.output(1)]
        for batch in batches:
            wanted += [self.onnx(batch), self.input(batch), self.output(batch)]
        return [path for path in wanted if not path.exists()]


def _suffix(batch: int) -> str:
    return "" if batch == 1 else f"_b{batch}"
