"""Operators after values of unknown rank, sequences without steps, and paddings that crop first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine
from tests.engine.onnx_files.models import INT64, model, node, onnx, save, value

RANDOM = np.random.default_rng(7)
INT32 = 6


def answers(folder: Path, proto: Any, feeds: dict[str, Any]) -> list[list[Any]]:
    graph = engine.load(save(folder, proto))
    return [engine.Session(graph, each, 1, cache=None).run(feeds) for each in ("reference", "auto")]  # type: ignore[arg-type]


@pytest.mark.parametrize("type", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_rows_of_a_squeezed_tensor_are_normalised(tmp_path: Path, type: str, axis: int) -> None:
    nodes = [node("Squeeze", ["x"], ["s"]), node(type, ["s"], ["y"], axis=axis)]
    proto = model(nodes, [value("x", ["n", 1, "m", 3])], [value("y", None)], opset=11)
    x = RANDOM.standard_normal((2, 1, 4, 3)).astype(np.float32)
    rows = x.reshape(int(np.prod((2, 4, 3)[:axis])), -1)
    exponentials = np.exp(rows) / np.exp(rows).sum(1, keepdims=True)
    largest = (rows == rows.max(1, keepdims=True)).astype(np.float32)
    wanted = {"Softmax": exponentials, "LogSoftmax": np.log(exponentials), "Hardmax": largest}[type]
    for (found,) in answers(tmp_path, proto, {"x": x}):
        np.testing.assert_allclose(found, wanted.reshape(2, 4, 3), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_rank_of_stacked_results_of_a_scan_is_known(tmp_path: Path, axis: int) -> None:
    body = onnx.helper.make_graph([node("Exp", ["row"], ["out"])], "body", [value("row", [3])], [value("out", None)])
    scan = node("Scan", ["x"], ["all"], body=body, num_scan_inputs=1, scan_output_axes=[axis])
    proto = model([scan, node("Softmax", ["all"], ["y"], axis=-1)], [value("x", [4, 3])], [value("y", None)], opset=11)
    x = RANDOM.standard_normal((4, 3)).astype(np.float32)
    rows = np.exp(np.exp(x if axis == 0 else x.T))
    for (found,) in answers(tmp_path, proto, {"x": x}):
        np.testing.assert_allclose(found, rows / rows.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("pads", [[0, -1, 0, 2], [0, 3, 0, -1], [0, -1, 0, 7], [0, 2, 0, -3], [0, -2, 0, -1]])
@pytest.mark.parametrize("is_stored", [False, True])
def test_wrapped_paddings_crop_first(tmp_path: Path, pads: list[int], is_stored: bool) -> None:
    ports = [value("x", [2, 4]), *([] if is_stored else [value("p", [4], INT64)])]
    stored = {"p": np.array(pads)} if is_stored else {}
    proto = model([node("Pad", ["x", "p"], ["y"], mode="wrap")], ports, [value("y", None)], stored, opset=19)
    feeds = {"x": RANDOM.standard_normal((2, 4)).astype(np.float32), "p": np.array(pads)}
    kept = feeds["x"][:, max(-pads[1], 0) : 4 - max(-pads[3], 0)]
    wanted = np.pad(kept, [(0, 0), (max(pads[1], 0), max(pads[3], 0))], mode="wrap")
    for (found,) in answers(tmp_path, proto, {name: feeds[name] for name in (port.name for port in ports)}):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("layout", [0, 1])
def test_last_states_of_sequences_without_steps_are_0(tmp_path: Path, layout: int) -> None:
    weights = {"w": RANDOM.standard_normal((1, 16, 3)), "r": RANDOM.standard_normal((1, 16, 4))}
    names = ["x", "w", "r", "", "n", "h", "c"]
    shapes = {"x": [5, 2, 3], "h": [1, 2, 4], "c": [1, 2, 4]}
    if layout:
        shapes = {name: [shape[1], shape[0], *shape[2:]] for name, shape in shapes.items()}
    ports = [value("n", [2], INT32), *(value(name, shape) for name, shape in shapes.items())]
    lstm = node("LSTM", names, ["y", "h2", "c2"], hidden_size=4, layout=layout)
    stored = {name: each.astype(np.float32) for name, each in weights.items()}
    proto = model([lstm], ports, [value(name, None) for name in ("y", "h2", "c2")], stored, opset=14)
    feeds = {name: RANDOM.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    for found in answers(tmp_path, proto, {**feeds, "n": np.array([0, 5], np.int32)}):
        for state in found[1:]:
            by_sequence = np.moveaxis(state, 0 if layout else 1, 0)
            assert not by_sequence[0].any() and by_sequence[1].all()
