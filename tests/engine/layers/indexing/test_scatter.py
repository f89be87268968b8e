"""Writing at indices and under masks: what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine.errors import ShapeError
from tests.engine.layers.refusals import build, refusal, tensor

X = tensor(2, 3, 4)
V = tensor(5)
INTS = tensor(2, 3, dtype="int64")
M = tensor(3, 4)
B = tensor(2, 3, dtype="bool")

BROADCAST = ", expected each dimension equal or 1, counted from the last"

REFUSALS: list[tuple[str, tuple[object, ...], dict[str, Any], str]] = [
    (
        "Tensor.masked_fill",
        (X, B),
        {"value": 1},
        "shapes do not broadcast: found [2, 3, 4] and [2, 3]" + BROADCAST,
    ),
    ("Tensor.masked_fill", (M, M, V), {}, "the value must be a single number: found [5], expected []"),
    ("Tensor.fill", (M, V), {}, "the value must be a single number: found [5], expected []"),
    (
        "aten::masked_scatter",
        (X, B, V),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [2, 3]" + BROADCAST,
    ),
    (
        "torch.where",
        (B, X, M),
        {},
        "shapes do not broadcast: found [2, 3] and [2, 3, 4]" + BROADCAST,
    ),
    (
        "aten::copy",
        (V, M, False),
        {},
        "shapes do not broadcast: found [5] and [3, 4]" + BROADCAST,
    ),
    ("torch.scatter_add", (M, INTS, V), {"dim": 0}, "index does not fit: found [2, 3], expected within [5]"),
    (
        "torch.scatter_add",
        (M, tensor(2, 5, dtype="int64"), tensor(2, 5)),
        {"dim": 0},
        "index does not fit: found [2, 5], expected within [3, 4]",
    ),
    (
        "torch.scatter_add",
        (M, INTS, tensor(1, 3)),
        {"dim": 0},
        "index does not fit: found [2, 3], expected within [1, 3]",
    ),
    ("aten::scatter", (M, 0, INTS, 1.0, "mean"), {}, "unknown reduce: found mean, expected add or multiply"),
    (
        "aten::scatter_reduce",
        (M, 0, INTS, tensor(2, 3), "max", True),
        {},
        "unknown reduce: found max, expected sum, prod, mean, amax or amin",
    ),
    ("aten::index_add", (M, 0, INTS, M, 1), {}, "index must be a vector: found [2, 3]"),
    (
        "aten::index_add",
        (M, 0, tensor(2, dtype="int64"), tensor(3, 4), 1),
        {},
        "source does not fit: found [3, 4], expected [2, 4]",
    ),
    (
        "aten::put",
        (M, tensor(2, dtype="int64"), tensor(3), False),
        {},
        "index and source differ in size: found 2 and 3",
    ),
]


@pytest.mark.parametrize(("type", "operands", "params", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    assert refusal(type, *operands, **params) == message


TABLE = np.zeros((3, 4))
OUTSIDE = "index is out of range: found "


@pytest.mark.parametrize(
    ("type", "operands", "message"),
    [
        ("aten::scatter", (TABLE, 0, np.array([[3]]), 1.0), OUTSIDE + "3, expected 0 to 2"),
        (
            "aten::index_add",
            (TABLE, 1, np.array([4]), np.ones((3, 1)), 1),
            "index is out of range: found 4, expected 0 to 3",
        ),
        ("aten::index_fill", (TABLE, 0, np.array([-4]), 1.0), OUTSIDE + "-4, expected -3 to 2"),
        ("aten::index_copy", (TABLE, 0, np.array([-1]), TABLE[:1]), OUTSIDE + "-1, expected 0 to 2"),
        (
            "aten::put",
            (TABLE, np.array([-13]), np.ones(1), False),
            "index is out of range: found -13, expected -12 to 11",
        ),
        (
            "aten::masked_scatter",
            (TABLE, np.ones((3, 4), np.bool_), np.ones(5)),
            "source has too few elements: found 5, expected at least 12",
        ),
    ],
)
def test_places_outside_are_refused_when_they_arrive(type: str, operands: tuple[object, ...], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        build(type, len(operands)).forward(operands)
    assert str(caught.value) == message


def test_index_fill_alone_of_those_that_write_slices_counts_from_the_end_as_pytorch_does() -> None:
    filled = build("aten::index_fill", 4).forward([TABLE, 0, np.array([-1, -3]), 9.0])
    assert filled[:, 0].tolist() == [9, 0, 9]
    assert build("aten::index_fill", 4).forward([np.array(3.0), 0, np.array([-1]), 9.0]) == 9


def test_writing_leaves_the_operand_alone() -> None:
    table = np.zeros((2, 2))
    build("aten::scatter", 4).forward([table, 0, np.array([[1]]), 5.0])
    assert not table.any()
