"""Pages of model files are given back when a graph is compiled, and come back when somebody reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

import engine
from engine.compiler.pages import release

MODEL = Path(__file__).parents[2] / "model_store" / "shapes" / "1"


def resident_bytes(part: str) -> int:
    """Bytes of a mapped file that this process holds."""
    held, is_part = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split()[0] and ":" not in line.split()[0]:
            is_part = part in line
        elif is_part and line.startswith("Rss:"):
            held += int(line.split()[1]) << 10
    return held


def test_weights_are_given_back_and_can_be_read_again(tmp_path: Path) -> None:
    own = shutil.copytree(MODEL, tmp_path / "own")  # other tests have the store's file mapped
    graph = engine.load(own / "model.pnnx.param")
    weights = [each.data for op in graph.operators for each in op.attributes.values()]
    sums = [float(np.abs(each).sum()) for each in weights]
    assert resident_bytes(str(own / "model.pnnx.bin")) > 0
    release(graph)
    assert resident_bytes(str(own / "model.pnnx.bin")) == 0
    assert [float(np.abs(each).sum()) for each in weights] == sums


def test_weights_in_memory_are_left_alone() -> None:
    spec = engine.TensorSpec((1, 2), np.dtype(np.float32))
    operators = (
        engine.pnnx.Operator("pnnx.Input", "in", (), ("0",)),
        engine.pnnx.Operator("nn.PReLU", "prelu", ("0",), ("1",), {"num_parameters": 1}, {"weight": attribute()}),
        engine.pnnx.Operator("pnnx.Output", "out", ("1",), ()),
    )
    graph = engine.RuntimeGraph.from_source(engine.pnnx.Graph(operators=operators, annotations={"0": spec}))
    graph.build()
    release(graph)
    assert float(engine.Session(graph, backend="reference").run([[[-4.0, 2.0]]])[0].sum()) == 1.0


def attribute() -> engine.pnnx.Attribute:
    return engine.pnnx.Attribute(shape=(1,), dtype=np.dtype(np.float32), data=np.array([0.25], np.float32), code="f32")
