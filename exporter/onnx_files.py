"""ONNX files: as models to export, compared with onnxruntime, and as exports of modules that cannot become a pair."""

from __future__ import annotations

import importlib
import io
import logging
import mmap
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from exporter.errors import SourceError, TracingError, describe
from exporter.inputs import InputSpec

NEEDED: Final = ("onnx", "onnxscript")


def missing_packages() -> list[str]:
    """Return the packages that torch.onnx.export needs and that are not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def dynamic_dimensions(first: Sequence[InputSpec], second: Sequence[InputSpec]) -> list[list[int]]:
    """Return the dimensions of each input that differ; none without second shapes."""
    if not second:
        return [[] for _ in first]
    pairs = (zip(a.shape, b.shape, strict=True) for a, b in zip(first, second, strict=True))
    return [[dim for dim, (size, other) in enumerate(each) if size != other] for each in pairs]


def write_onnx(model: Any, tensors: Sequence[Any], dims: Sequence[Sequence[int]], path: Path, *, dynamo: bool) -> None:
    """Export a module with torch.onnx.export.

    Args:
        tensors: its inputs; sizes of dynamic dimensions must not be 1.
        dims: the dynamic dimensions of each input.
        dynamo: whether to use torch.export instead of tracing.

    Raises:
        TracingError: PyTorch refuses the module.
    """
    names = [f"in{k}" for k in range(len(tensors))]
    if dynamo:
        dynamic = tuple(dict.fromkeys(each, torch.export.Dim.DYNAMIC) for each in dims)
        options: dict[str, Any] = {"dynamic_shapes": dynamic if any(dims) else None, "verbose": False}
    else:
        axes = {name: {dim: f"{name}_{dim}" for dim in each} for name, each in zip(names, dims, strict=True)}
        options = {"dynamic_axes": axes if any(dims) else None}
    try:
        with _quiet():
            torch.onnx.export(model, tuple(tensors), str(path), input_names=names, dynamo=dynamo, **options)
    except Exception as exc:
        raise TracingError("torch.onnx.export refuses the model", found=describe(exc)) from exc


@contextmanager
def _quiet() -> Iterator[None]:
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with torch.no_grad(), warnings.catch_warnings(), redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class OnnxModel(torch.nn.Module):  # type: ignore[misc]  # torch is not seen by the type checker
    """Model that runs an ONNX file on tensors.

    Args:
        path: the file; its external weights are in the same folder.

    Raises:
        SourceError: there is no onnxruntime, or it cannot load the file.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        try:
            runtime = importlib.import_module("onnxruntime")
        except ImportError:
            raise SourceError(
                "an ONNX model is compared with onnxruntime, which is missing",
                where=path.name,
                expected="pip install onnxruntime, or the PyTorch model itself",
            ) from None
        options = runtime.SessionOptions()
        options.log_severity_level = 4
        try:
            self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as exc:
            raise SourceError("not an ONNX model that can be run", where=path.name, found=describe(exc)) from exc

    @property
    def input_names(self) -> list[str]:
        """Names of the file's inputs, in its order."""
        return [each.name for each in self._session.get_inputs()]

    @property
    def output_names(self) -> list[str]:
        """Names of the file's outputs, in its order."""
        return [each.name for each in self._session.get_outputs()]

    def forward(self, *tensors: Any) -> Any:
        """Return the outputs of the file, in its order."""
        names = self.input_names
        if len(names) != len(tensors):
            raise ValueError(f"the model has {len(names)} inputs ({', '.join(names)}), given are {len(tensors)}")
        arrays = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
        return tuple(torch.from_numpy(array) for array in self._session.run(None, arrays))


def copy(model: OnnxModel, target: Path) -> None:
    """Copy the file for the converter, with external weights included.

    The converter reads only the file itself: external weights would become uninitialised memory.

    Raises:
        SourceError: there are external weights and no onnx to include them, or they are too large for one file.
    """
    if not _keeps_weights_elsewhere(model.path):
        shutil.copyfile(model.path, target)
        return
    advice = "a file with its weights inside: onnx.save(onnx.load('x.onnx'), 'whole.onnx')"
    try:
        onnx = importlib.import_module("onnx")
    except ImportError:
        problem = "the weights are in other files, and the package onnx, which could merge them, is missing"
        raise SourceError(problem, where=model.path.name, expected=f"pip install onnx, or {advice}") from None
    try:
        onnx.save_model(onnx.load_model(str(model.path)), str(target), save_as_external_data=False)
    except Exception as exc:
        problem = "the weights in other files cannot be merged into one file"
        raise SourceError(problem, where=model.path.name, found=describe(exc), expected=advice) from exc


def _keeps_weights_elsewhere(path: Path) -> bool:
    """Return whether the file has external weights: an entry of external_data with the key "location"."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return content.find(b"\x0a\x08location") >= 0
