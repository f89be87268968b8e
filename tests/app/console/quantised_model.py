"""The model digits with its layers but the first in int8, and a report of how it was quantised."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

import engine
from engine.quantisation.calibration import Calibration
from engine.quantisation.histogram import Affine
from engine.quantisation.layers import find_layers
from engine.quantisation.measurement import LayerCost
from engine.quantisation.selection import _Search

ROOT = Path(__file__).parents[3]


def write_quantised(store: Path, name: str = "digits8") -> dict[str, Any]:
    """Write the model to a store, and return its report."""
    shutil.copytree(ROOT / "model_store" / "digits", store / name)
    folder = store / name / "1"
    graph = engine.load(folder / "model.pnnx.param")
    layers = find_layers(graph)
    affines = {layer.input: Affine(np.float32(0.05), np.uint8(0)) for layer in layers}
    costs = [LayerCost(10.0, 4.0, 1e-4, np.zeros(len(layer.weight), np.float32)) for layer in layers]
    calibration = Calibration(affines=affines, operands=(), outputs=())
    search = _Search(graph, layers, costs, calibration, [], 1, lambda *_: None)
    search.assembled(range(1, len(layers))).save(folder / "model.pnnx.param", folder / "model.pnnx.bin")
    rows = [_row(layer.name, at > 0, 1 / len(layers)) for at, layer in enumerate(layers)]
    accuracy = {"samples": 200, "before": 0.98, "after": 0.975, "lost": 2, "gained": 1, "change": -0.005,
                "interval": [-0.023, 0.013]}  # fmt: skip
    report = {"kept": 0.9991, "float_ms": 0.06, "int8_ms": 0.04, "samples": 20, "layers": rows, "accuracy": accuracy}
    (folder / "quantisation.json").write_text(json.dumps(report))
    return report


def _row(name: str, is_int8: bool, share: float) -> dict[str, Any]:
    return {
        "name": name, "type": "nn.Conv2d", "precision": "int8" if is_int8 else "float32", "float_us": 10.0,
        "int8_us": 4.0, "sqnr_db": 40.0, "share": share, "restore_us": 6.0 if is_int8 else 0.0,
        "restore_share": share if is_int8 else 0.0, "reason": "" if is_int8 else "error",
    }  # fmt: skip
