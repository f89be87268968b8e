"""Running extremes, and places in sorted rows: the reference's answers, NaN and ties included."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.ordering.binary_search import BinarySearch
from engine.compiler.kernels.ordering.scan import RunningExtreme
from engine.layers.reduction.scan import RunningExtreme as RunningExtremeLayer
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.compiler.lowering.rules.indexing.test_gather import kernel_of
from tests.engine.compiler.lowering.rules.rows.test_sorting import awkward
from tests.engine.graph.build import INPUT, built, op


@pytest.mark.parametrize("level", LEVELS)
def test_running_extremes_keep_nan_and_the_last_place(level: str) -> None:
    for outer, size, inner in [(1, 1, 1), (3, 9, 1), (2, 17, 3), (2, 3, 65)]:
        x = guarded_array(awkward(outer, size, inner))
        for is_largest in (True, False):
            elements, places = guarded_array(np.zeros_like(x)), np.zeros(x.shape, np.int64)
            kernel = RunningExtreme(is_largest=is_largest, outer=outer, size=size, inner=inner, host=describe(level))
            run(kernel, level, [x, elements, places])
            values, indices = RunningExtremeLayer(is_largest=is_largest, dim=1).forward(x)
            np.testing.assert_array_equal(elements, values)
            np.testing.assert_array_equal(places, indices)


@pytest.mark.parametrize("type_", ["torch.cummax", "torch.cummin"])
def test_running_extremes_along_every_dimension(type_: str) -> None:
    for dim in (-1, 0, 1):
        assert kernel_of(type_, [awkward(4, 5, 6)], 2, dim=dim) == "scan"


NAN = np.nan
AMONG = np.array([[NAN, 1, 1, 1], [1, 2, NAN, NAN], [3, 1, 2, 0], [1, 1, 2, 5]], np.float32)
SOUGHT = np.array([[0, 1, NAN], [0, 1.5, NAN], [1, 2, 4], [1, 3, 9]], np.float32)
# torch.searchsorted of PyTorch 2.13, right=False and True
FOUND = {False: [[1, 1, 4], [4, 4, 4], [0, 2, 4], [0, 3, 4]], True: [[1, 4, 4], [4, 4, 4], [2, 4, 4], [2, 3, 4]]}


@pytest.mark.parametrize("backend", ["reference", "compiled"])
@pytest.mark.parametrize("is_right", [False, True])
def test_rows_with_nan_or_without_order_are_searched_as_pytorch_does(is_right: bool, backend: str) -> None:
    graph = built(
        INPUT,
        op("pnnx.Input", "values", "", "1"),
        op("pnnx.Expression", "no", "", "2", expr="False"),
        op("pnnx.Expression", "right", "", "3", expr=str(is_right)),
        op("pnnx.Expression", "none", "", "4", expr="None"),
        op("aten::searchsorted", "it", "0 1 2 3 4 4", "5"),
        op("pnnx.Output", "out", "5"),
    )
    (found,) = Session(graph, backend=backend, cache=None).run([AMONG, SOUGHT])
    assert found.tolist() == FOUND[is_right]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("is_right", [False, True])
def test_values_are_found_in_sorted_rows(level: str, is_right: bool) -> None:
    for length in (1, 2, 3, 8, 9, 100):
        rows = awkward(length)
        rows = np.sort(np.where(np.isnan(rows), 0, rows))
        values = np.concatenate([awkward(7), rows[:3]])
        kernel = BinarySearch(
            dtype="float32", result="int64", rows=1, count=len(values), length=length, step=0, is_right=is_right,
            host=describe(level),
        )  # fmt: skip
        found = np.zeros(len(values), np.int64)
        run(kernel, level, [guarded_array(rows), guarded_array(values), found])
        np.testing.assert_array_equal(found, np.searchsorted(rows, values, "right" if is_right else "left"))
