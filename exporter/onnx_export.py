"""A PyTorch module as an ONNX file, where it cannot be had as a pair."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import torch

from exporter.errors import TracingError, describe
from exporter.inputs import InputSpec

NEEDED: Final = ("onnx", "onnxscript")


def missing_packages() -> list[str]:
    """Return what torch.onnx.export needs and is not installed."""
    return [name for name in NEEDED if find_spec(name) is None]


def open_dimensions(first: Sequence[InputSpec], second: Sequence[InputSpec]) -> list[list[int]]:
    """Return the dimensions of each input that differ; none without second shapes."""
    if not second:
        return [[] for _ in first]
    pairs = (zip(a.shape, b.shape, strict=True) for a, b in zip(first, second, strict=True))
    return [[dim for dim, (size, other) in enumerate(each) if size != other] for each in pairs]


def write_onnx(model: Any, tensors: Sequence[Any], dims: Sequence[Sequence[int]], path: Path, *, dynamo: bool) -> None:
    """Export a module with torch.onnx.export.

    Args:
        tensors: its inputs; sizes of open dimensions must not be 1.
        dims: the open dimensions of each input.
        dynamo: whether by torch.export or by tracing.

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
