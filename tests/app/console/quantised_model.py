"""The model digits with its first layer in bf16 and the others in int8, and a report of how it was quantised."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import engine
from engine.pnnx import Operator
from engine.quantisation.histogram import Affine
from engine.quantisation.layers import find_layers, quantise_operators

ROOT = Path(__file__).parents[3]


def write_quantised(store: Path, name: str = "digits8") -> dict[str, Any]:
    """Write the model to a store, and return its report."""
    shutil.copytree(ROOT / "model_store" / "digits", store / name)
    folder = store / name / "1"
    graph = engine.load(folder / "model.pnnx.param")
    layers = find_layers(graph)
    in_int8 = {layer.name: layer for layer in layers[1:]}
    operators: list[Operator] = []
    for operator in graph.source.operators:
        if (layer := in_int8.get(operator.name)) is None:
            more = {"precision": "bf16"} if operator.name == layers[0].name else {}
            operators.append(replace(operator, params={**operator.params, **more}))
            continue
        operators += quantise_operators(f"{layer.input}/quantised", layer.input, Affine(np.float32(0.05), np.uint8(0)))
        operators += layer.in_int8(layer.name, f"{layer.input}/quantised", layer.output, np.float32(0.05))
    quantised = engine.RuntimeGraph.from_source(replace(graph.source, operators=operators), name)
    quantised.build()
    quantised.save(folder / "model.pnnx.param", folder / "model.pnnx.bin")
    rows = [_row(layer.name, at > 0, 1 / len(layers)) for at, layer in enumerate(layers)]
    accuracy = {"samples": 200, "before": 0.98, "after": 0.975, "lost": 2, "gained": 1, "change": -0.005,
                "interval": [-0.023, 0.013]}  # fmt: skip
    report = {
        "kept": 0.9991,
        "float_ms": 0.06,
        "int8_ms": 0.04,
        "saved_bytes": 60_000,
        "samples": 20,
        "layers": rows,
        "accuracy": accuracy,
    }
    (folder / "quantisation.json").write_text(json.dumps(report))
    return report


def _row(name: str, is_int8: bool, share: float) -> dict[str, Any]:
    return {
        "name": name, "type": "nn.Conv2d", "precision": "int8" if is_int8 else "bf16", "float_us": 10.0,
        "bf16_us": 7.0, "int8_us": 4.0, "sqnr_db": 40.0, "share": share, "restore_us": 6.0 if is_int8 else 3.0,
        "restore_share": share, "saved_bytes": 10_000, "reason": "" if is_int8 else "error",
    }  # fmt: skip
