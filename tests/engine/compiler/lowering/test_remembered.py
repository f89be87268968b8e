"""What lowerings for several shapes share does not depend on their sizes."""

from __future__ import annotations

import numpy as np

import engine
from engine.compiler.lowering.remembered import kinds_of
from engine.tensor import UNKNOWN, TensorSpec
from tests.engine.graph.build import F32, INPUT, built, op


def test_sizes_do_not_tell_kinds_apart_but_ranks_dtypes_and_single_elements_do() -> None:
    def kind(*shape: int, dtype: type = np.float32) -> object:
        return kinds_of([TensorSpec(shape, np.dtype(dtype))])

    assert kind(2, 3) == kind(7, 9) != kind(2, 3, 1)
    assert len({kind(2, 3), kind(1, 1), kind(2, 3, dtype=np.float64)}) == 3


def test_what_may_have_been_computed_from_sizes_has_no_kind() -> None:
    known = TensorSpec((1,), np.dtype(np.int64), np.array([224]))
    assert all(kinds_of([TensorSpec((2, 3), F32), each]) is None for each in (224, known, UNKNOWN, [1, 2]))


def test_an_expression_with_a_number_of_the_size_has_that_of_each_size() -> None:
    graph = built(
        INPUT,
        op("Tensor.size", "width", "0", "1", dim=3),
        op("pnnx.Expression", "scaled", "0 1", "2", expr="mul(@0,@1)"),
        op("nn.PReLU", "bent", "2", "3", num_parameters=3, weight=np.array([0.5, -1, 2], np.float32)),
        op("pnnx.Output", "out", "3"),
        _0=(1, 3, None, None),
    )
    session = engine.Session(graph, backend="compiled", cache=None, threads=1)
    for height, width in ((4, 5), (1, 1), (6, 11), (4, 5), (2, 1)):
        x = np.random.default_rng(width).standard_normal((1, 3, height, width)).astype(np.float32)
        y = x * np.float32(width)
        expected = np.where(y > 0, y, y * np.array([0.5, -1, 2], np.float32).reshape(3, 1, 1))
        np.testing.assert_allclose(session.run([x])[0], expected, rtol=1e-6)
