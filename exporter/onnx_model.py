"""An ONNX file as a model to export: the converter reads it as it is, onnxruntime gives the answers it is held to."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any

import torch

from exporter.errors import SourceError, describe


class OnnxModel(torch.nn.Module):  # type: ignore[misc]  # torch is not seen by the type checker
    """Runs an ONNX file on tensors.

    Args:
        path: the file; weights that it keeps in other files lie beside it.

    Raises:
        SourceError: there is no onnxruntime, or it does not take the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        try:
            runtime = importlib.import_module("onnxruntime")
        except ImportError:
            raise SourceError(
                "an ONNX model is held against onnxruntime, which is missing",
                where=path.name,
                expected="pip install onnxruntime, or the PyTorch model itself",
            ) from None
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        try:
            self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as exc:
            raise SourceError("no ONNX model that can be run", where=path.name, found=describe(exc)) from exc

    def forward(self, *tensors: Any) -> Any:
        """The outputs of the file, in its order."""
        names = [each.name for each in self._session.get_inputs()]
        if len(names) != len(tensors):
            raise ValueError(f"the model has {len(names)} inputs ({', '.join(names)}), given are {len(tensors)}")
        arrays = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return tuple(torch.from_numpy(array) for array in self._session.run(None, arrays))


def copy(model: OnnxModel, target: Path) -> None:
    """Put the file where the converter is to read it, and beside it what it may keep its weights in."""
    shutil.copyfile(model.path, target)
    for beside in model.path.parent.glob(f"{_escaped(model.path.stem)}*"):
        if beside.is_file() and beside != model.path and beside.suffix in (".data", ".bin", ".weights"):
            shutil.copyfile(beside, target.parent / beside.name)


def _escaped(text: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)
