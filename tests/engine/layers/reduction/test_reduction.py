"""Reductions, scans and sorting: what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from engine import Annotations, TensorSpec, registry
from engine.errors import EngineError, ParameterError
from engine.layers import bind
from tests.engine.layers.refusals import build, refusal, tensor

X = tensor(2, 3, 4)
V = tensor(5)
S = tensor()
INTS = tensor(2, 3, dtype="int64")
M = tensor(3, 4)

REFUSALS: list[tuple[str, tuple[object, ...], dict[str, Any], str]] = [
    # reduction
    ("torch.sum", (X,), {"dim": (3,)}, "dim is out of range: found 3, expected -3 to 2"),
    ("torch.sum", (X,), {"dim": (1, -2)}, "a dim is given twice: found [1, 1]"),
    ("torch.mean", (INTS,), {}, "integers have no mean: found int64, expected a floating or complex dtype"),
    ("torch.amax", (tensor(2, 0),), {"dim": (1,)}, "an empty tensor has no extreme: found [2, 0]"),
    ("torch.argmax", (tensor(0),), {}, "an empty tensor has no extreme: found [0]"),
    ("torch.max", (tensor(2, 0),), {"dim": 1}, "an empty tensor has no extreme: found [2, 0]"),
    ("torch.var", (INTS,), {"dim": (0,)}, "integers have no deviation: found int64, expected a floating dtype"),
    ("torch.norm", (INTS,), {"p": 2}, "integers have no norm: found int64, expected a floating or complex dtype"),
    ("torch.norm", (X,), {"p": "nuc"}, "unknown norm: found nuc, expected a number or fro"),
    ("torch.std", (X,), {"dim": (4,)}, "dim is out of range: found 4, expected -3 to 2"),
    ("aten::mode", (tensor(2, 0), -1, False), {}, "the axis is empty: found [2, 0]"),
    (
        "aten::quantile",
        (X, 0.5, 0, False, "cubic"),
        {},
        "unknown interpolation: found cubic, expected linear, lower, higher, nearest, midpoint",
    ),
    ("aten::quantile", (INTS, 0.5, 0, False, "linear"), {}, "only floating tensors have quantiles: found int64"),
    ("aten::norm_except_dim", (X, 2, 3), {}, "dim is out of range: found 3, expected -1 to 2"),
    (
        "aten::linalg_norm",
        (X, "nuc", None, False, None),
        {},
        "a norm of that order takes one or two dims: found 3 dims",
    ),
    (
        "aten::linalg_norm",
        (M, 3, None, False, None),
        {},
        "unknown matrix norm: found 3, expected fro, nuc, 1, 2 or inf, or a negative one",
    ),
    (
        "aten::linalg_norm",
        (tensor(3, 4, dtype="int32"), "nuc"),
        {},
        "integers have no norm: found int32, expected a floating or complex dtype",
    ),
    ("aten::linalg_norm", (X, 2, None, False, None), {}, "a norm of that order takes one or two dims: found 3 dims"),
    # scan
    ("torch.cumsum", (X,), {"dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    ("aten::cummax", (X, -4), {}, "dim is out of range: found -4, expected -3 to 2"),
    ("aten::diff", (S, 1, 0, None, None), {}, "a 0-dim tensor has no neighbours"),
    ("aten::diff", (X, -1, 0, None, None), {}, "n must not be negative: found -1"),
    (
        "aten::diff",
        (X, 1, 0, M, None),
        {},
        "shapes cannot be joined: found [3, 4] and [2, 3, 4], expected equal dimensions except dim 0",
    ),
    # sorting
    ("torch.topk", (X,), {"k": 5}, "k is out of range: found 5, expected 0 to 4"),
    ("torch.topk", (X,), {"k": -1}, "k is out of range: found -1, expected 0 to 4"),
    ("torch.topk", (X,), {"k": (1, 2)}, "k must be a number: found [1, 2]"),
    ("aten::kthvalue", (X, 0, -1, False), {}, "k is out of range: found 0, expected 1 to 4"),
    ("aten::kthvalue", (X, 5, -1, False), {}, "k is out of range: found 5, expected 1 to 4"),
    ("torch.sort", (X,), {"dim": 3}, "dim is out of range: found 3, expected -3 to 2"),
    (
        "aten::searchsorted",
        (M, V, False, False, None, None),
        {},
        "values do not fit the rows: found [5] among [3, 4], expected dimensions equal except the last",
    ),
    (
        "aten::searchsorted",
        (V, M, False, False, "middle", None),
        {},
        "unknown side: found middle, expected left or right",
    ),
    ("aten::bucketize", (X, M, False, False), {}, "boundaries must be a vector: found [3, 4]"),
    # losses
    (
        "aten::binary_cross_entropy",
        (X, X, tensor(1, 2, 3, 4), 1),
        {},
        "the pairs and their weights do not fit: found [1, 2, 3, 4], expected [2, 3, 4]",
    ),
    (
        "aten::binary_cross_entropy_with_logits",
        (X, X, None, V, 1),
        {},
        "shapes do not broadcast: found [5] and [2, 3, 4], expected each dimension equal or 1, counted from the last",
    ),
    ("aten::bincount", (INTS, None, 0), {}, "a vector is needed: found [2, 3]"),
    ("aten::histc", (V, 0, 0, 1), {}, "invalid bins: found 0 from 0.0 to 1.0"),
    ("aten::unique_dim", (X, 3, True, False, False), {}, "dim is out of range: found 3, expected -3 to 2"),
]


@pytest.mark.parametrize(("type", "operands", "params", "message"), REFUSALS)
def test_what_does_not_fit_is_refused(
    type: str, operands: tuple[object, ...], params: dict[str, Any], message: str
) -> None:
    assert refusal(type, *operands, **params) == message


@pytest.mark.parametrize(
    ("type", "operands", "message"),
    [
        (
            "aten::quantile",
            (np.ones(3), 1.5, None, False, "linear"),
            "q is out of range or there are no elements: found q 1.5 of 3 elements",
        ),
        ("aten::bincount", (np.array([1, -1]), None, 0), "only integers from 0 on can be counted: found int64"),
        ("aten::bincount", (np.array([1, 1]), np.ones(3), 0), "weights do not fit: found [3], expected [2]"),
    ],
)
def test_values_out_of_range_are_refused_when_they_arrive(
    type: str, operands: tuple[object, ...], message: str
) -> None:
    with pytest.raises(EngineError) as caught:
        build(type, len(operands)).forward(operands)
    assert str(caught.value) == message


def annotated(type: str, n_inputs: int, source: str, *results: str) -> Any:
    specs = tuple(TensorSpec((2,), np.dtype(result)) for result in results)
    inputs = (TensorSpec((2, 3), np.dtype(source)),) + (None,) * (n_inputs - 1)
    return bind(
        registry[type],
        n_inputs=n_inputs,
        params={"dim": 1} if n_inputs == 1 else {},
        attributes={},
        annotations=Annotations(inputs=inputs, outputs=specs),
    )


def test_the_annotated_dtype_of_a_sum_is_computed_in() -> None:
    total = annotated("torch.sum", 1, "float32", "float64").forward([np.full((2, 3), 0.1, np.float32)])
    assert total.dtype == np.float64
    np.testing.assert_array_equal(total, np.float64(np.float32(0.1)) * 3)


def test_a_half_model_annotated_as_single_stays_half() -> None:
    layer = annotated("torch.sum", 1, "float32", "float32")
    assert layer.forward([np.ones((2, 3), np.float16)]).dtype == np.float16


def test_an_extreme_alone_has_no_place() -> None:
    table = np.array([[1.0, 3.0, 2.0], [5.0, 4.0, 6.0]], np.float32)
    np.testing.assert_array_equal(annotated("torch.max", 1, "float32", "float32").forward([table]), [3, 6])
    _, places = annotated("torch.max", 1, "float32", "float32", "int64").forward([table])
    np.testing.assert_array_equal(places, [1, 2])


def test_a_number_of_operands_no_schema_has_is_refused() -> None:
    with pytest.raises(ParameterError) as caught:
        annotated("aten::prod", 3, "float32", "float32")
    assert str(caught.value) == "no schema has this number of operands: found 3, expected 2 or 4"
