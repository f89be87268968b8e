"""Slices and indices: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Annotations, TensorSpec, registry
from engine.errors import EngineError, ParameterError, ShapeError
from engine.layers import bind
from tests.engine.layers.refusals import build, refusal, tensor

X = tensor(2, 3, 4)
V = tensor(5)
S = tensor()
INTS = tensor(2, 3, dtype="int64")
M = tensor(3, 4)
B = tensor(2, 3, dtype="bool")

BROADCAST = ", expected each dimension equal or 1, counted from the last"

REFUSALS: list[tuple[str, tuple[object, ...], dict[str, Any], str]] = [
    (
        "Tensor.slice",
        (X,),
        {"dim": 3, "start": 0, "end": 1, "step": 1},
        "dim is out of range: found 3, expected -3 to 2",
    ),
    ("Tensor.slice", (X,), {"dim": 1, "start": 0, "end": 1, "step": 0}, "step must be positive: found 0"),
    (
        "Tensor.slice",
        (X,),
        {"dims": (0, 0), "starts": (0, 0), "ends": (1, 1), "steps": (1, 1), "selects": (1, 0)},
        "a dim is given twice: found [0, 0]",
    ),
    (
        "Tensor.slice",
        (X,),
        {"dims": (0, 1), "starts": (0,), "ends": (1, 1), "steps": (1, 1)},
        "starts and dims differ in length: found 1, expected 2",
    ),
    ("Tensor.select", (X,), {"dim": 1, "index": 3}, "index is out of range: found 3, expected -3 to 2"),
    ("Tensor.select", (X,), {"dim": 1, "index": -4}, "index is out of range: found -4, expected -3 to 2"),
    (
        "Tensor.slice_copy",
        (X, V),
        {"dim": 1, "start": 0, "end": 2, "step": 1},
        "shapes do not broadcast: found [5] and [2, 2, 4]" + BROADCAST,
    ),
    (
        "Tensor.slice_copy",
        (X, tensor(1, 2, 2, 4)),
        {"dim": 1, "start": 0, "end": 2, "step": 1},
        "source does not fit the slice: found [1, 2, 2, 4], expected [2, 2, 4]",
    ),
    (
        "torch.narrow",
        (X,),
        {"dim": 1, "start": 2, "length": 2},
        "the slices are out of range: found start 2 and length 2, expected within 3",
    ),
    (
        "torch.narrow",
        (X,),
        {"dim": 1, "start": -4, "length": 1},
        "the slices are out of range: found start -4 and length 1, expected within 3",
    ),
    (
        "torch.narrow",
        (S,),
        {"dim": 0, "start": 0, "length": 0},
        "narrow takes one start and one length of one axis: found []",
    ),
    ("aten::unfold", (X, 1, 4, 1), {}, "window is longer than the axis: found 4, expected at most 3"),
    ("aten::unfold", (X, 1, 2, 0), {}, "size and step must be positive: found 2 and 0"),
    ("aten::unfold", (S, 0, 1, 1), {}, "a 0-dim tensor has no axis for windows"),
    (
        "Tensor.index",
        (X,),
        {"expr": "[[0,1"},
        "not an index: found [[0,1, expected a list such as [[2,1],None,[True,False]]",
    ),
    (
        "Tensor.index",
        (X,),
        {"expr": "[[0,1],[[0],[1,2]]]"},
        "not an index: found [[0,1],[[0],[1,2]]], expected a list such as [[2,1],None,[True,False]]",
    ),
    ("Tensor.index", (X,), {"expr": "[[0],[0],[0],[0]]"}, "too many indices: found 4, expected at most 3"),
    ("Tensor.index", (X,), {"expr": "[[True,False,True]]"}, "mask does not fit: found [3], expected [2]"),
    (
        "Tensor.index",
        (X,),
        {"expr": "[[0,1],[0,1,2]]"},
        "shapes do not broadcast: found [2] and [3]" + BROADCAST,
    ),
    ("Tensor.index", (X,), {"expr": "7"}, "not an index: found 7, expected a list such as [[2,1],None,[True,False]]"),
    ("torch.gather", (X, INTS), {"dim": 1}, "index does not fit: found [2, 3], expected within [2, 3, 4]"),
    (
        "torch.gather",
        (M, tensor(4, 2, dtype="int64")),
        {"dim": 1},
        "index does not fit: found [4, 2], expected within [3, 4]",
    ),
    (
        "torch.index_select",
        (X, INTS),
        {"dim": 0},
        "index must be a vector, of one element for a 0-dim input: found [2, 3]",
    ),
    ("torch.index_select", (X, tensor(2, dtype="int64")), {"dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("aten::take_along_dim", (X, INTS, 1), {}, "indices need as many dimensions: found 2, expected 3"),
    (
        "torch.masked_select",
        (X, B),
        {},
        "shapes do not broadcast: found [2, 3, 4] and [2, 3]" + BROADCAST,
    ),
    ("aten::diagonal", (V, 0, 0, 1), {}, "a matrix is needed: found 1 dimensions, expected at least 2"),
    ("aten::diagonal", (X, 0, 1, 1), {}, "a dim is given twice: found [1, 1]"),
    ("torch.diag", (X,), {}, "only vectors and matrices have a diagonal: found 3 dimensions, expected 1 or 2"),
    ("aten::diag_embed", (S,), {}, "a 0-dim tensor has no diagonal"),
    ("aten::trace", (X,), {}, "a matrix is needed: found [2, 3, 4], expected 2 dimensions"),
    ("aten::tril", (V, 0), {}, "a matrix is needed: found [5], expected at least 2 dimensions"),
    ("aten::diagonal_scatter", (M, V, 0, 0, 1), {}, "source does not fit: found [5], expected [3]"),
    ("aten::fill_diagonal", (V, 1, False), {}, "a matrix is needed: found [5], expected at least 2 dimensions"),
    ("aten::fill_diagonal", (X, 1, False), {}, "all dimensions must be equal: found [2, 3, 4]"),
]


@pytest.mark.parametrize(("type", "operands", "params", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    assert refusal(type, *operands, **params) == message


TABLE = np.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize(
    ("type", "operands", "params", "message"),
    [
        ("torch.gather", (TABLE, np.array([[0, 4]])), {"dim": 1}, "index is out of range: found 4, expected 0 to 3"),
        ("torch.gather", (TABLE, np.array([[-1]])), {"dim": 1}, "index is out of range: found -1, expected 0 to 3"),
        ("torch.gather", (TABLE, np.array([[0.5]])), {"dim": 1}, "an index must be of integers: found float64"),
        ("torch.index_select", (TABLE, np.array([3])), {"dim": 0}, "index is out of range: found 3, expected 0 to 2"),
        ("aten::take", (TABLE, np.array([12])), {}, "index is out of range: found 12, expected -12 to 11"),
        (
            "Tensor.index",
            (TABLE, [np.array([3])]),
            {},
            "index does not fit shape [3, 4]: index 3 is out of bounds for axis 0 with size 3",
        ),
        (
            "Tensor.index",
            (TABLE, [None, np.array([0.0])]),
            {},
            "only integers, bools and bytes can be indices: found float64",
        ),
        (
            "Tensor.index",
            (TABLE, [np.array([True, False])]),
            {},
            "mask does not fit: found [2], expected [3]",
        ),
        (
            "Tensor.index_put",
            (TABLE, [np.array([0, 1])], np.zeros(3)),
            {},
            "shapes do not broadcast: found [3] and [2, 4], expected each dimension equal or 1, counted from the last",
        ),
    ],
)
def test_indices_outside_are_refused_when_they_arrive(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ShapeError) as caught:
        build(type, len(operands), **params).forward(operands)
    assert str(caught.value) == message


def test_a_constant_index_of_which_only_the_first_row_was_kept_is_refused() -> None:
    spec = TensorSpec((2, 2, 4), np.dtype(np.float64))
    layer = bind(
        registry["Tensor.index"],
        n_inputs=1,
        params={"expr": "[[0,1]]"},
        attributes={},
        annotations=Annotations(outputs=(spec,)),
    )
    with pytest.raises(ParameterError) as caught:
        layer.infer([tensor(3, 4, dtype="float64")])
    assert str(caught.value) == (
        "expr has only the first row of a multidimensional constant index: "
        "found a result of shape [2, 4], expected [2, 2, 4]"
    )


@given(st.text("[]0123456789,- NoneTrueFals", max_size=30))
def test_any_text_is_an_index_or_refused(text: str) -> None:
    layer = build("Tensor.index", 1, expr=text)
    try:
        inferred = layer.infer([tensor(3, 4, dtype="float64")])
        assert layer.forward([TABLE]).shape == inferred.shape
    except EngineError:
        pass


def test_a_dynamic_bound_leaves_only_its_axis_dynamic() -> None:
    layer = build("Tensor.slice", 3, dim=1)
    assert layer.infer([tensor(3, 4), 1, TensorSpec((), np.dtype(np.int64))]).shape == (3, None)


def test_writing_leaves_the_operand_alone() -> None:
    table = TABLE.copy()
    build("Tensor.slice_copy", 2, dim=0, start=0, end=1, step=1).forward([table, np.zeros(4)])
    np.testing.assert_array_equal(table, TABLE)


def test_an_index_that_picks_more_dimensions_than_numpy_can_add_in_is_refused() -> None:
    """Refuse what would make numpy crash the process."""
    layer = build("Tensor.index_put", 3, accumulate=True)
    index = np.zeros((1,) * 33, np.int64)
    with pytest.raises(
        ShapeError, match="too many dimensions for an addition at indices: found 33, expected at most 32"
    ):
        layer.forward([np.zeros(3), [index], np.array(1.0)])


@pytest.mark.parametrize(("mask", "hits"), [(True, 1), (False, 0)])
def test_a_mask_of_no_dimensions_adds_an_axis(mask: bool, hits: int) -> None:
    """torch.zeros(4, 5)[:, torch.tensor(True)] has the shape (4, 1, 5)."""
    layer = build("Tensor.index", 2)
    x, slots = np.zeros((4, 5), np.float32), [None, np.array(mask)]
    assert layer.forward([x, slots]).shape == (4, hits, 5)
    announced = layer.infer([tensor(4, 5), [None, tensor(dtype="bool")]])
    assert announced == TensorSpec((4, None, 5), np.dtype(np.float32))
