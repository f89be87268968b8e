"""ONNX files with open axes, and PyTorch's answers at a few sizes. Needs torch and onnx."""

from __future__ import annotations

import contextlib
import io
import warnings
from pathlib import Path

import numpy as np
import torch

from benchmarks.export import write_once
from benchmarks.networks.weights import example
from benchmarks.random_sizes.networks import OpenNetwork

CHECKED_SIZES = 8
CHECKED_SEED = 1


def export(network: OpenNetwork, folder: Path) -> None:
    """Write `model.onnx` and `answers.npz` into a folder, where they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    module = network.network.build()
    write_once(folder / "model.onnx", lambda path: _write_onnx(network, module, path))
    write_once(folder / "answers.npz", lambda path: _write_answers(network, module, path))


def _write_answers(network: OpenNetwork, module: torch.nn.Module, path: Path) -> None:
    random = np.random.default_rng(CHECKED_SEED)
    shapes = [network.largest_shape(), *(network.draw_shape(random) for _ in range(CHECKED_SIZES - 1))]
    with torch.inference_mode():
        results = [module(torch.from_numpy(network.input_of(shape))).numpy() for shape in shapes]
    with open(path, "wb") as file:
        np.savez(file, shapes=np.array(shapes), **{f"answer{i}": each for i, each in enumerate(results)})


def _write_onnx(network: OpenNetwork, module: torch.nn.Module, path: Path) -> None:
    open_axes = {number: axis.name for number, axis in network.axes.items()}
    # The TorchScript exporter states no bounds of dynamic sizes; the newer one fixes the sizes of recurrent layers.
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example(network.network, 1),),
            str(path),
            dynamo=False,
            input_names=["input"],
            dynamic_axes={"input": open_axes},
            opset_version=17,
        )
