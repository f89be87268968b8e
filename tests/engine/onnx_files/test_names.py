"""Names of a file's inputs and outputs: each keeps its own where a pair can write it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine import RuntimeGraph, Session, load
from tests.engine.onnx_files.models import model, node, save, value

X, Y = np.float32([[1, 2]]), np.float32([[10, 20]])


def graph(folder: Path, inputs: list[str], outputs: list[str]) -> RuntimeGraph:
    """A difference and a product of two inputs."""
    nodes = [node(type, inputs, [name]) for type, name in zip(("Sub", "Mul"), outputs, strict=True)]
    declared = [[value(name, ["n", 2]) for name in names] for names in (inputs, outputs)]
    return load(save(folder, model(nodes, *declared)))


@pytest.mark.parametrize(
    ("inputs", "outputs", "named"),
    [
        (["a b", "a_b"], ["c", "d"], ["a_b_1", "a_b", "c", "d"]),
        (["a_b", "a b"], ["c", "d"], ["a_b", "a_b_1", "c", "d"]),
        (["a b", "a?b"], ["c", "d"], ["a_b", "a_b_1", "c", "d"]),
        (["a", "b"], ["c d", "c_d"], ["a", "b", "c_d_1", "c_d"]),
        (["a", "b"], ["c_d", "c d"], ["a", "b", "c_d", "c_d_1"]),
        (["c d", "b"], ["c_d", "e"], ["c_d_1", "b", "c_d", "e"]),
        (["c_d", "b"], ["c d", "e"], ["c_d", "b", "c_d_1", "e"]),
        (
            ["pnnx_input_1", "pnnx_input_0"],
            ["pnnx_output_9", "e"],
            ["pnnx_input_1", "pnnx_input_0", "pnnx_output_9", "e"],
        ),
        (["12", "13"], ["14", "15"], ["in0", "in1", "out0", "out1"]),
    ],
)
def test_a_name_that_needs_no_change_is_kept(
    inputs: list[str], outputs: list[str], named: list[str], tmp_path: Path
) -> None:
    net = graph(tmp_path, inputs, outputs)
    assert [port.name for port in (*net.inputs, *net.outputs)] == named
    found = Session(net, backend="reference").run({named[1]: Y, named[0]: X}).asdict()
    np.testing.assert_equal(found, {named[2]: X - Y, named[3]: X * Y})
