"""Table lookup: what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import ShapeError
from tests.engine.layers.refusals import build, refusal, tensor

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ([tensor(2), tensor(4, 3)], "indices must be integers: found float32"),
        ([tensor(2, dtype="int64"), tensor(4)], "weight must be a table: found [4], expected [rows, width]"),
    ],
)
def test_operands_that_do_not_fit_are_refused(operands: list[Any], message: str) -> None:
    assert refusal("F.embedding", *operands) == message


@pytest.mark.parametrize("index", [4, -1])
def test_an_index_outside_of_the_table_is_refused(index: int) -> None:
    with pytest.raises(ShapeError) as caught:
        build("F.embedding", 2).forward([np.array([[0, index]]), TABLE])
    assert str(caught.value) == f"index is outside of the table: found {index}, expected 0 to 3"


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ([tensor(4, 3), tensor(2, 1, dtype="int64"), tensor(1, dtype="int64")],
         "indices and offsets must be vectors: found [2, 1] and [1]"),
        ([tensor(4, 3), tensor(2), tensor(1, dtype="int64")], "indices must be integers: found float32"),
    ],
)  # fmt: skip
def test_bags_that_do_not_fit_are_refused(operands: list[Any], message: str) -> None:
    assert refusal("aten::embedding_bag", *operands) == message


def test_an_unknown_mode_is_refused() -> None:
    message = refusal("aten::embedding_bag", tensor(4, 3), mode=3)
    assert message == "unknown mode: found 3, expected 0 (sum), 1 (mean) or 2 (max)"


@pytest.mark.parametrize("offsets", [[1, 2], [0, 3, 2], [0, 9]])
def test_offsets_that_do_not_ascend_are_refused(offsets: list[int]) -> None:
    with pytest.raises(ShapeError) as caught:
        build("aten::embedding_bag", 3).forward([TABLE, np.array([0, 1, 2]), np.array(offsets)])
    assert str(caught.value) == f"offsets must ascend from 0: found {offsets}, expected 0 to 3"


def test_a_bag_reports_where_its_rows_went() -> None:
    _, bags, sizes, _ = build("aten::embedding_bag", 3).forward([TABLE, np.array([0, 1, 2]), np.array([0, 2, 2])])
    assert bags.tolist() == [0, 0, 2]
    assert sizes.tolist() == [2, 0, 1]


def test_weights_of_samples_that_are_not_as_many_as_indices_are_refused() -> None:
    operands = tensor(5, 3), tensor(6, dtype="int64"), tensor(2, dtype="int64"), False, 0, False, tensor(3)
    with pytest.raises(ShapeError, match=r"^per_sample_weights do not fit: found \[3\], expected \[6\]$"):
        build("aten::embedding_bag", 7).infer(operands)
