"""Places in sorted rows, as PyTorch finds them."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Session
from tests.engine.graph.build import INPUT, built, op

NAN = np.nan
AMONG = np.array([[NAN, 1, 1, 1], [1, 2, NAN, NAN], [3, 1, 2, 0], [1, 1, 2, 5]], np.float32)
SOUGHT = np.array([[0, 1, NAN], [0, 1.5, NAN], [1, 2, 4], [1, 3, 9]], np.float32)
# torch.searchsorted of PyTorch 2.13, right=False and True
FOUND = {False: [[1, 1, 4], [4, 4, 4], [0, 2, 4], [0, 3, 4]], True: [[1, 4, 4], [4, 4, 4], [2, 4, 4], [2, 3, 4]]}


@pytest.mark.parametrize("is_right", [False, True])
def test_rows_with_nan_or_without_order_are_searched_as_pytorch_does(is_right: bool) -> None:
    graph = built(
        INPUT,
        op("pnnx.Input", "values", "", "1"),
        op("pnnx.Expression", "no", "", "2", expr="False"),
        op("pnnx.Expression", "right", "", "3", expr=str(is_right)),
        op("pnnx.Expression", "none", "", "4", expr="None"),
        op("aten::searchsorted", "it", "0 1 2 3 4 4", "5"),
        op("pnnx.Output", "out", "5"),
    )
    (found,) = Session(graph, backend="reference").run([AMONG, SOUGHT])
    assert found.tolist() == FOUND[is_right]
