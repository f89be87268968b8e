"""Networks as files: PNNX and ncnn pairs, ONNX, inputs, and PyTorch's answers. Needs torch, pnnx and onnx.

Only missing files are made, and a file gets its name when it is complete.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.converter import ConverterError, convert
from benchmarks.files import Files
from benchmarks.networks import Network
from benchmarks.networks.weights import example
from exporter.inputs import InputSpec
from exporter.tracing.script import trace


def export(network: Network, files: Files, batches: Sequence[int]) -> list[str]:
    """Write the missing files of a network's folder.

    Args:
        batches: sizes for which inputs, answers and ONNX files are made; the PNNX pair is of batch 1.

    Returns:
        Remarks: what could not be made, and why.
    """
    files.folder.mkdir(parents=True, exist_ok=True)
    if not files.missing(batches):
        return []
    # It names every operator of packages that are not installed and that no network here uses.
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    remarks: list[str] = []
    module = network.build()
    write_once(files.weights, lambda path: torch.save(module.state_dict(), path))
    for batch in dict.fromkeys((1, *batches)):
        _write_answers(module, network, files, batch)
    if not files.param.exists():
        remarks += _write_pnnx(module, network, files)
    for batch in batches:
        remarks += _write_onnx(module, network, files, batch)
    return remarks


def _write_answers(module: Any, network: Network, files: Files, batch: int) -> None:
    x = example(network, batch)
    write_once(files.input(batch), lambda path: _save(path, x))
    if not files.output(batch).exists():
        with torch.inference_mode():
            answer = module(x.clone())
        write_once(files.output(batch), lambda path: _save(path, answer))


def _write_pnnx(module: Any, network: Network, files: Files) -> list[str]:
    x = example(network, 1)
    script = files.folder / "model.traced.pt"
    with torch.no_grad():
        result = module(x)
    trace(module, (x,), result, script)
    spec = InputSpec(shape=network.shape, dtype="i64" if network.vocabulary else "f32")
    try:
        is_for_ncnn = convert(script, (spec,), files)
    except ConverterError as error:
        return [f"no PNNX pair: {error}"]
    finally:
        script.unlink(missing_ok=True)
    return [] if is_for_ncnn else ["no ncnn pair: the converter wrote none"]


def _write_onnx(module: Any, network: Network, files: Files, batch: int) -> list[str]:
    x = example(network, batch)

    def write(path: Path) -> None:
        # The exporter prints its steps, and warns of things that are its own.
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (x,), str(path), dynamo=True, external_data=False)

    try:
        write_once(files.onnx(batch), write)
    except Exception as error:
        return [f"no ONNX file of batch {batch}: {type(error).__name__}: {error}"]
    return []


def _save(path: Path, tensor: Any) -> None:
    with open(path, "wb") as file:
        np.save(file, tensor.numpy())


def write_once(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file if it is missing; it gets its name when it is complete."""
    if path.exists():
        return
    partial = path.with_name(f".{path.name}.partial")
    write(partial)
    os.replace(partial, path)
