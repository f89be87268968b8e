"""Einsum: what it refuses, and any equation against numpy's evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import TensorSpec
from tests.engine.layers.refusals import build, refusal, tensor

SIZES = {"i": 2, "j": 3, "k": 4, "l": 1, "m": 5}


@pytest.mark.parametrize(
    ("equation", "operands", "message"),
    [
        ("ij,jk->ik", [tensor(2, 3)], "equation 'ij,jk->ik' does not fit: found 1 operands, expected 2"),
        ("ijk->ik", [tensor(2, 3)], "equation 'ijk->ik' does not fit: found 2 axes, expected 'ijk'"),
        (
            "ij...,j->i...",
            [tensor(2, 3), tensor(3, 1)],
            "equation 'ij...,j->i...' does not fit: found 2 axes, expected 'j'",
        ),
        ("ij->ik", [tensor(2, 3)], "equation 'ij->ik' has a wrong output part: found ik"),
        ("ij->ii", [tensor(2, 3)], "equation 'ij->ii' has a wrong output part: found ii"),
        ("i.j->ij", [tensor(2, 3)], "equation 'i.j->ij' is malformed: found i.j"),
        ("ij,jk->ik", [tensor(2, 3), tensor(4, 5)], "sizes under label 'j' differ: found 3 and 4 in [2, 3], [4, 5]"),
    ],
)
def test_what_does_not_fit_is_refused(equation: str, operands: list[Any], message: str) -> None:
    assert refusal("torch.einsum", *operands, equation=equation) == message


@st.composite
def equations(draw: st.DrawFn) -> str:
    terms = draw(st.lists(st.text("ijklm", min_size=0, max_size=4), min_size=1, max_size=3))
    labels = sorted({*"".join(terms)})
    output = draw(st.permutations(labels).flatmap(lambda order: st.integers(0, len(order)).map(lambda n: order[:n])))
    return ",".join(terms) + "->" + "".join(output)


@given(equations())
def test_any_equation_gives_numpys_answer(equation: str) -> None:
    generator = np.random.default_rng(0)
    terms = equation.partition("->")[0].split(",")
    operands = [generator.normal(size=[SIZES[label] for label in term]) for term in terms]
    found = build("torch.einsum", len(terms), equation=equation).forward(operands)
    np.testing.assert_allclose(found, np.einsum(equation, *operands), rtol=1e-9, atol=1e-9)


@given(equations())
def test_inference_predicts_the_shape_of_any_equation(equation: str) -> None:
    terms = equation.partition("->")[0].split(",")
    operands = [np.zeros([SIZES[label] for label in term], np.float32) for term in terms]
    layer = build("torch.einsum", len(terms), equation=equation)
    spec = layer.infer([TensorSpec(operand.shape, operand.dtype) for operand in operands])
    assert spec.shape == layer.forward(operands).shape


def test_operations_are_counted_as_two_a_multiply_add() -> None:
    operands = [tensor(7, 2, 3), tensor(7, 3, 5)]
    layer = build("torch.einsum", 2, equation="bij,bjk->bik")
    assert layer.flops(layer.infer(operands), operands) == 2 * 7 * 2 * 3 * 5
