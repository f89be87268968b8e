"""Embeddings: rows of a table with what joins them; an index there is not is an error as on the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session, ShapeError, TensorSpec
from engine.compiler.codegen.host import describe
from engine.compiler.executable import FaultFlag
from engine.compiler.kernels.indexing.gather import OUTSIDE, Gather
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.graph.build import F32, built, op


def table(rows: int, columns: int) -> Array:
    return np.random.default_rng(1).standard_normal((rows, columns)).astype(F32)


def net(shape: tuple[int, ...], weight: Array, dtype: Any = np.int64) -> RuntimeGraph:
    rows, columns = weight.shape
    return built(
        op("pnnx.Input", "pnnx_input_0", "", "x"),
        op("nn.Embedding", "look", "x", "y", num_embeddings=rows, embedding_dim=columns, sparse=False, weight=weight),
        op("pnnx.Expression", "scale", "y", "z", expr="mul(@0,2)"),
        op("pnnx.Output", "out", "z"),
        _x=TensorSpec(shape, np.dtype(dtype)),
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("columns", [1, 2, 3, 17, 64, 300])
@pytest.mark.parametrize("shape", [(), (1,), (2, 70), (3, 1, 2)])
def test_rows_of_any_width_for_indices_of_any_shape(shape: tuple[int, ...], columns: int, dtype: Any) -> None:
    weight = table(40, columns)
    indices = np.random.default_rng(2).integers(0, 40, shape).astype(dtype)
    session = Session(net(shape, weight, dtype), backend="compiled", cache=None, threads=2)
    np.testing.assert_array_equal(session.run([indices])[0], 2 * weight[indices])
    assert [row["kernel"] for row in session.run([indices], profile=True).kernels] == ["gather"]


@pytest.mark.parametrize("index", [-1, 40, 2**31 - 1, 2**62, -(2**63)])
@pytest.mark.parametrize("backend", ["auto", "compiled"])
def test_an_index_outside_of_the_table_is_refused_and_the_next_run_is_right(index: int, backend: Any) -> None:
    weight = table(40, 8)
    session = Session(net((5,), weight), backend=backend, cache=None)
    good = np.array([0, 39, 7, 7, 1])
    bad = np.array([0, 39, index, 7, 1])
    for _ in range(2):
        np.testing.assert_array_equal(session.run([good])[0], 2 * weight[good])
        with pytest.raises(ShapeError, match="outside of the table"):
            session.run([bad])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("columns", [1, 3, 16, 75])
def test_no_byte_beside_the_table_is_read(level: str, columns: int) -> None:
    weight = guarded_array(table(9, columns))
    indices = np.array([8, 0, 9, -1, 3, 2**40])
    target = guarded_array(np.full((len(indices), columns), 7, F32))
    fault_flag = np.zeros(1, np.int32)
    kernel = Gather(
        count=len(indices), bits=64, rows=9, columns=columns, source=columns, target=columns, host=describe(level)
    )
    run(kernel, level, [guarded_array(indices.view(F32)), weight, target, fault_flag])
    assert fault_flag[0] == OUTSIDE == FaultFlag.OUTSIDE
    np.testing.assert_array_equal(target[[0, 1, 4]], weight[[8, 0, 3]])
