"""Rows of a table, pooled bag by bag: the reference's answers, and its refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import EngineError, Session, TensorSpec
from engine.compiler.codegen.host import describe
from engine.compiler.kernels.indexing.embedding_bag import BagPooling
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.graph.build import built, op

RANDOM = np.random.default_rng(47)


def bag(indices: list[int], offsets: list[int], width: int = 5, **given: Any) -> str:
    """Return the kernel of bags whose answers are the reference's."""
    table = RANDOM.standard_normal((4, width)).astype(np.float32)
    given = {"mode": 0, "include_last_offset": False, "padding_idx": None} | given
    inputs = [table, np.array(indices), np.array(offsets)]
    it = op("aten::embedding_bag", "it", "0 1 2", "y bag sizes most", **given)
    ports = [op("pnnx.Input", f"in_{k}", "", str(k)) for k, _ in enumerate(inputs)]
    specs = {f"_{k}": TensorSpec(each.shape, each.dtype) for k, each in enumerate(inputs)}
    net = built(*ports, it, op("pnnx.Output", "out", "y"), **specs)
    session = Session(net, cache=None)
    try:
        (wanted,) = Session(net, backend="reference").run(inputs)
    except EngineError as refusal:
        with pytest.raises(EngineError) as raised:
            session.run(inputs)
        assert str(raised.value) == str(refusal)
        return "refused"
    np.testing.assert_allclose(session.run(inputs)[0], wanted, rtol=1e-5, atol=1e-6)
    (row,) = (row for row in session.describe()["operators"] if row["name"] == "it")
    return "reference" if session.compile_failure else str(row["kernel"])


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("padding", [None, 2, -1])
def test_bags_are_the_references(mode: int, padding: int | None) -> None:
    for width in (1, 16, 17):
        for offsets in ([0], [0, 0, 3], [0, 2, 6, 6]):
            given = {"mode": mode, "padding_idx": padding, "include_last_offset": len(offsets) > 3}
            assert bag([3, 2, 0, 2, 1, 1], offsets, width, **given) == "bags"


@pytest.mark.parametrize("indices", [[0, 4], [0, -1], [2**40, 0]])
def test_a_row_there_is_not_is_refused(indices: list[int]) -> None:
    assert bag(indices, [0, 1]) == "refused"


@pytest.mark.parametrize("offsets", [[1], [0, 3], [0, 2, 1], [-1, 1]])
def test_bags_that_do_not_follow_each_other_are_refused(offsets: list[int]) -> None:
    assert bag([0, 1], offsets) == "refused"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("wrong", [4, -1, 2**62])
def test_nothing_outside_is_read_or_written(level: str, wrong: int) -> None:
    for columns in (1, 5, 16, 17):
        table = guarded_array(RANDOM.standard_normal((4, columns)).astype(np.float32))
        target, fault_flag = guarded_array(np.zeros((2, columns), np.float32)), np.zeros(1, np.int32)
        kernel = BagPooling(
            mode="sum", rows=4, columns=columns, source=columns, count=3, offsets=2, bags=2, bits=(64, 64),
            padding=None, is_weighted=False, host=describe(level),
        )  # fmt: skip
        run(kernel, level, [table, np.array([1, 3, wrong]), np.array([0, 2]), table, target, fault_flag])
        assert fault_flag[0] == 2
        np.testing.assert_allclose(target[0], table[1] + table[3], rtol=1e-6)
