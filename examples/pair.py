"""Export of a trained network to PNNX files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pnnx
from torch import Tensor, nn


def write_pair(model: nn.Module, version: Path, example: Tensor, other: Tensor | None = None) -> nn.Module:
    """Write the files, and return the network as pnnx reads it back, so that the served model is measured.

    other: second example; sizes in which both differ stay open.
    """
    version.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        # pnnx leaves eight files beside this one; two of them are the model.
        read_back: nn.Module = pnnx.export(model, str(Path(scratch, "model.pt")), example, inputs2=other)
        for name in ("model.pnnx.param", "model.pnnx.bin"):
            version.joinpath(name).write_bytes(Path(scratch, name).read_bytes())
    return read_back.eval()
