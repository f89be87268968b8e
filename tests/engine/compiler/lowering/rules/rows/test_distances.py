"""Distances, contractions, tensors full of one number: the reference's answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.engine.compiler.lowering.rules.indexing.test_gather import kernel_of
from tests.engine.compiler.lowering.rules.movement.test_copies import kernels_of, values
from tests.engine.graph.build import op

NORMS: list[tuple[str, list[tuple[int, ...]], dict[str, Any]]] = [
    ("F.pairwise_distance", [(3, 17), (3, 17)], {"p": 2.0, "eps": 1e-6, "keepdim": True}),
    ("F.pairwise_distance", [(5, 7), (7,)], {"p": np.inf, "eps": 1e-6, "keepdim": False}),
    ("aten::cosine_similarity", [(3, 17, 2), (3, 17, 2)], {"dim": 1, "eps": 1e-8}),
    ("aten::cosine_similarity", [(3, 1, 5), (4, 5)], {"dim": -1, "eps": 1e-8}),
    ("aten::cdist", [(2, 3, 5), (2, 4, 5)], {"p": 1.0, "compute_mode": None}),
    ("aten::cdist", [(30, 5), (4, 5)], {"p": 2.0, "compute_mode": None}),
    ("aten::dist", [(3, 5), (5,)], {"p": 2}),
    ("aten::linalg_norm", [(3, 5, 7)], {"ord": None, "dim": (1,), "keepdim": True, "dtype": None}),
    ("aten::linalg_norm", [(3, 5, 7)], {"ord": 1, "dim": (0, 2), "keepdim": False, "dtype": None}),
    ("aten::linalg_norm", [(3, 5)], {"ord": -np.inf, "dim": None, "keepdim": False, "dtype": None}),
    ("aten::nansum", [(3, 5)], {"dim": (1,), "keepdim": False, "dtype": None}),
    ("aten::nanmean", [(3, 5)], {"dim": (0,), "keepdim": True, "dtype": None}),
    ("torch.trace", [(3, 5)], {}),
    ("torch.diff", [(3, 5)], {"n": 2, "dim": 1}),
    ("F.softmin", [(3, 5)], {"dim": 0}),
    ("aten::dot", [(17,), (17,)], {}),
    ("aten::outer", [(3,), (17,)], {}),
    ("aten::kron", [(2, 3), (4, 1, 2)], {}),
    ("aten::inner", [(2, 3, 5), (4, 5)], {}),
    ("aten::tensordot", [(2, 3, 5), (5, 3, 4)], {"dims_self": (1, 2), "dims_other": (1, 0)}),
    ("aten::addr", [(3, 4), (3,), (4,)], {"beta": 2, "alpha": 0.5}),
]


@pytest.mark.parametrize(("type_", "shapes", "given"), NORMS, ids=[f"{k}-{row[0]}" for k, row in enumerate(NORMS)])
def test_answers_are_the_references(type_: str, shapes: list[tuple[int, ...]], given: dict[str, Any]) -> None:
    assert kernel_of(type_, [values(*shape) for shape in shapes], **given) != "reference"


@pytest.mark.parametrize("type_", ["aten::var_mean", "aten::std_mean"])
def test_spreads_come_with_means(type_: str) -> None:
    operators = [
        *(op("pnnx.Expression", f"e{k}", "", f"c{k}", expr=text) for k, text in enumerate(("[1]", "True", "False"))),
        op(type_, "both", "0 c0 c1 c2", "spread mean"),
    ]
    assert kernels_of(operators, [values(3, 5)], "spread", "mean")["both"] != "reference"


def test_tensors_full_of_one_number() -> None:
    x = values(3, 5)
    assert kernel_of("torch.zeros_like", [x], dtype=None) == "view"
    assert kernel_of("torch.full_like", [x], fill_value=2.5, dtype=None) == "view"
    classes = np.array([[0, 2], [1, 0]])
    assert kernel_of("F.one_hot", [classes], num_classes=3) == "scatter"
    assert kernel_of("F.one_hot", [classes], num_classes=2) == "refused"
