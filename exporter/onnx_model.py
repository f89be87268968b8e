"""An ONNX file as a model to export: the converter reads it as it is, onnxruntime gives the answers it is held to."""

from __future__ import annotations

import importlib
import mmap
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

    @property
    def input_names(self) -> list[str]:
        """The names of the file's inputs, in its order."""
        return [each.name for each in self._session.get_inputs()]

    @property
    def output_names(self) -> list[str]:
        """The names of the file's outputs, in its order."""
        return [each.name for each in self._session.get_outputs()]

    def forward(self, *tensors: Any) -> Any:
        """The outputs of the file, in its order."""
        names = self.input_names
        if len(names) != len(tensors):
            raise ValueError(f"the model has {len(names)} inputs ({', '.join(names)}), given are {len(tensors)}")
        arrays = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return tuple(torch.from_numpy(array) for array in self._session.run(None, arrays))


def copy(model: OnnxModel, target: Path) -> None:
    """Put the file where the converter is to read it, with the weights that it keeps in other files inside.

    The converter reads nothing but the file itself: weights beside it become whatever memory holds.

    Raises:
        SourceError: the weights lie elsewhere and there is no onnx to put them in, or they are too large for one file.
    """
    if not _keeps_weights_elsewhere(model.path):
        shutil.copyfile(model.path, target)
        return
    advice = "a file with its weights inside: onnx.save(onnx.load('x.onnx'), 'whole.onnx')"
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        problem = "the weights lie in other files, and onnx, which could put them in, is missing"
        raise SourceError(problem, where=model.path.name, expected=f"pip install onnx, or {advice}") from None
    try:
        onnx.save_model(onnx.load_model(str(model.path)), str(target), save_as_external_data=False)
    except Exception as exc:
        problem = "the weights in other files cannot be put into one"
        raise SourceError(problem, where=model.path.name, found=describe(exc), expected=advice) from exc


def _keeps_weights_elsewhere(path: Path) -> bool:
    """Whether a tensor of the file says where its data are: an entry of external_data with the key "location"."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"\x0a\x08location") >= 0
