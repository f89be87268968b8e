"""Groups of rows, each times a matrix of its own: the reference's answers, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

from engine import EngineError, Session, TensorSpec
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.products.grouped_product import GroupedProduct
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.graph.build import F32, INPUT, built, op

RANDOM = np.random.default_rng(53)


def drawn(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(F32)


def experts(matrices: Array, rows: int | None, dtype: type = np.int32, *, turned: bool = False) -> Session:
    """Return a session of input @ matrices[group], whose ends are the second input."""
    groups, terms, columns = matrices.shape
    made = [op("torch.transpose", "t", "0", "x", dim0=0, dim1=1)] if turned else []
    net = built(
        INPUT,
        op("pnnx.Input", "ends", "", "1"),
        op("pnnx.Attribute", "w", "", "2", data=matrices),
        *made,
        op("aten::_grouped_mm", "it", "x 2 1" if turned else "0 2 1", "3"),
        op("pnnx.Output", "out", "3"),
        _0=(terms, rows) if turned else (rows, terms),
        _1=TensorSpec((groups,), np.dtype(dtype)),
        _2=matrices.shape,
        _3=(rows, columns),
    )
    return Session(net, cache=None, threads=2)


def expected(x: Array, matrices: Array, ends: list[int]) -> Array:
    """Return the result of the formula."""
    result, first = np.zeros((len(x), matrices.shape[2])), 0
    for matrix, last in zip(matrices, ends, strict=True):
        result[first:last], first = x[first:last].astype(np.float64) @ matrix, last
    return result


def kernel_of(session: Session) -> object:
    (row,) = (row for row in session.describe()["operators"] if row["name"] == "it")
    return row["kernel"]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("columns", [1, 5, 16, 33, 130])
def test_groups_of_any_length_are_the_references(columns: int, dtype: type) -> None:
    matrices = drawn(4, 19, columns)
    session = experts(matrices, 70, dtype)
    for ends in ([0, 0, 0, 0], [70, 70, 70, 70], [1, 3, 8, 37], [0, 15, 29, 70], [14, 28, 42, 70]):
        x = drawn(70, 19)
        found = session.run([x, np.array(ends, dtype)])[0]
        np.testing.assert_allclose(found, expected(x, matrices, ends), rtol=1e-4, atol=1e-5)
    assert (kernel_of(session), session.compile_failure) == ("grouped_product", None)


def test_rows_may_lie_in_columns() -> None:
    matrices, x = drawn(2, 8, 3), drawn(8, 9)
    session = experts(matrices, 9, turned=True)
    found = session.run([x, np.array([4, 9], np.int32)])[0]
    np.testing.assert_allclose(found, expected(x.T, matrices, [4, 9]), rtol=1e-4, atol=1e-5)
    assert kernel_of(session) == "grouped_product"


def test_any_number_of_rows() -> None:
    matrices = drawn(3, 8, 20)
    session = experts(matrices, None)
    for rows in (1, 2, 9, 40, 9, 64):
        x, ends = drawn(rows, 8), sorted(RANDOM.integers(0, rows + 1, 3).tolist())
        found = session.run([x, np.array(ends, np.int32)])[0]
        np.testing.assert_allclose(found, expected(x, matrices, ends), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ends", [[3, 2, 9], [3, 5, 10], [-1, 5, 9], [0, 2**31 - 1, 9]])
def test_ends_that_fall_or_lie_beyond_the_rows_are_refused(ends: list[int]) -> None:
    session = experts(drawn(3, 8, 20), 9)
    with pytest.raises(EngineError, match="the ends of groups do not ascend: found"):
        session.run([drawn(9, 8), np.array(ends, np.int32)])
    assert kernel_of(session) == "grouped_product"
    assert session.run([drawn(9, 8), np.array([3, 3, 9], np.int32)])[0].shape == (9, 20)


def test_without_ends_it_is_a_stack_of_products() -> None:
    x, other = drawn(3, 7, 4), drawn(3, 4, 5)
    it = op("aten::_grouped_mm", "it", "0 1", "2")
    net = built(INPUT, op("pnnx.Input", "b", "", "1"), it, op("pnnx.Output", "out", "2"), _0=(3, 7, 4), _1=(3, 4, 5))
    session = Session(net, cache=None)
    np.testing.assert_allclose(session.run([x, other])[0], x @ other, rtol=1e-4, atol=1e-5)
    assert kernel_of(session) == "product"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("tile", [(1, 1), (2, 2), (3, 1), (5, 2), (14, 2)], ids=str)
def test_nothing_outside_is_read_or_written(level: str, tile: tuple[int, int]) -> None:
    for columns in (1, 17, 40):
        matrices, x = drawn(3, 6, columns), drawn(31, 6)
        kernel = GroupedProduct(
            groups=3, rows=31, columns=columns, terms=6, source=6, target=columns, bits=64, tile_rows=tile[0],
            vectors=tile[1], host=describe(level),
        )  # fmt: skip
        for ends in ([0, 1, 31], [5, 5, 19], [29, 31, 31], [31, 0, 31], [0, 32, 31], [-(2**62), 2**62, 31]):
            is_wrong = sorted(ends) != ends or ends[0] < 0
            target, fault_flag = guarded_array(np.full((31, columns), np.nan, F32)), np.zeros(1, np.int32)
            given = [
                guarded_array(x),
                guarded_array(kernel.pack(matrices)),
                guarded_array(np.array(ends), dtype="int64"),
            ]
            run(kernel, level, [*given, target, fault_flag])
            assert bool(fault_flag[0]) == is_wrong
            if not is_wrong:
                np.testing.assert_allclose(target, expected(x, matrices, ends), rtol=1e-4, atol=1e-5)
