"""Templates with tensors that have no elements at any size."""

from __future__ import annotations

import numpy as np

import engine
from tests.engine.graph.build import built, op


def test_an_empty_output_beside_one_of_any_size() -> None:
    graph = built(
        op("pnnx.Input", "in", "", "0"),
        op("F.relu", "relu", "0", "1"),
        op("Tensor.slice", "none", "1", "2", dim=1, start=0, end=0, step=1),
        op("pnnx.Output", "out_0", "1"),
        op("pnnx.Output", "out_1", "2"),
        _0=(None, 3, None),
    )
    session = engine.Session(graph, backend="compiled", cache=None)
    session.prepare()
    for sizes in ((2, 3, 5), (1, 3, 7), (6, 3, 40)):
        all_, none = session.run([-np.ones(sizes, np.float32)])
        assert all_.tolist() == np.zeros(sizes).tolist()
        assert none.shape == (sizes[0], 0, sizes[2])
    builder = session._executor.find(session.graph).builder  # type: ignore[union-attr]
    assert builder._templates.has_room
    assert len(builder._templates._found) == 2


def test_a_batch_of_nothing_leaves_dynamic_sizes_to_later_requests() -> None:
    graph = built(
        op("pnnx.Input", "in", "", "0"), op("F.relu", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=(None, 3)
    )
    session = engine.Session(graph, backend="compiled", cache=None)
    assert session.run([np.ones((0, 3), np.float32)])[0].shape == (0, 3)
    for size in (5, 6):
        assert session.run([-np.ones((size, 3), np.float32)])[0].tolist() == np.zeros((size, 3)).tolist()
    assert len(session._executor.find(session.graph).builder._templates._found) == 1  # type: ignore[union-attr]
