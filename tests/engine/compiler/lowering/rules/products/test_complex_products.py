"""Products of complex numbers: kernels of real ones, the reference's answers."""

from __future__ import annotations

import numpy as np
import pytest

from tests.engine.compiler.lowering.rules.elementwise.test_complex_numbers import complex_array, row, session_of

MATRICES = [
    ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((5, 3), (3,)), ((3,), (3, 4)), ((3,), (3,)), ((2, 5, 3), (2, 3, 4)),
    ((2, 1, 5, 3), (6, 3, 4)), ((2, 5, 3), (3, 4)), ((2, 5, 3), (3,)), ((1, 40, 33), (7, 33, 65)),
]  # fmt: skip
SUMS = [
    ("bix,iox->box", (2, 3, 4), (3, 5, 4)),
    ("bixy,ioxy->boxy", (1, 3, 4, 2), (3, 5, 4, 2)),
    ("bix,oix->xbo", (2, 3, 4), (5, 3, 4)),
    ("i,j->ij", (3,), (4,)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("bij,jk,kl->bil", (2, 3, 4), (4, 5), (5, 2)),
    ("ab,bc,cd,de->ae", (2, 3), (3, 4), (4, 5), (5, 2)),
]


@pytest.mark.parametrize("shapes", MATRICES, ids=str)
def test_matrices_of_any_rank(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    assert row(session_of("torch.matmul", [complex_array(*each) for each in shapes])).get("why") is None


@pytest.mark.parametrize("case", SUMS, ids=str)
def test_sums_of_products_of_two_operands_and_more(case: tuple[str, tuple[int, ...]]) -> None:
    equation, *shapes = case
    inputs = [complex_array(*each) for each in shapes]
    assert row(session_of("torch.einsum", inputs, equation=equation)).get("why") is None


@pytest.mark.parametrize(("equation", "is_summed"), [("ij,jj->i", False), ("ij,jk->k", True)])
def test_a_sum_of_one_operand_is_the_references(equation: str, is_summed: bool) -> None:
    session = session_of("torch.einsum", [complex_array(3, 4), complex_array(4, 4)], equation=equation)
    reasons = [each["why"] for each in session.describe()["operators"] if each.get("why")]
    assert len(reasons) == is_summed and all("complex64" in each for each in reasons)


def test_complex_numbers_times_real_ones_are_the_references() -> None:
    session = session_of("torch.matmul", [complex_array(3, 4), np.ones((4, 2), np.float32)])
    assert "complex64" in row(session)["why"]
