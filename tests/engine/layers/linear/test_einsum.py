"""Einsum: what it refuses, and any equation against numpy's evaluation."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import engine
from engine import TensorSpec
from engine.tensor import Shape
from tests.engine.graph.build import INPUT, built, op
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
        ("bii->bi", [tensor(3, 1, 5)], "sizes under repeated label 'i' differ: found [3, 1, 5]"),
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


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("equation", "dynamic", "fixed"),
    [
        ("bij,bjk->bik", (5, 2, None), (5, 3, 4)),
        ("ij,bjk->bik", (2, None), (5, 3, 4)),
        ("ia,ib,ab->a", (None, 4), (3, 2)),
        ("...ij,...jk->...ik", (5, 2, None), (5, 3, 4)),
    ],
)
def test_a_dynamic_size_may_be_1_where_another_operand_has_more(
    equation: str, dynamic: Shape, fixed: Shape, size: int
) -> None:
    operands = [op("pnnx.Input", f"in{k}", "", str(k)) for k in range(equation.count(",") + 1)]
    names = " ".join(str(k) for k in range(len(operands)))
    shapes = [dynamic, fixed, (4, 2)][: len(operands)]
    graph = built(
        *operands, op("torch.einsum", "einsum", names, "y", equation=equation), op("F.relu", "relu", "y", "z"),
        op("pnnx.Output", "out", "z"), **{f"_{k}": shape for k, shape in enumerate(shapes)},
    )  # fmt: skip
    given = [np.ones([size if each is None else each for each in shape], np.float32) for shape in shapes]
    (found,) = engine.Session(graph, cache=None, threads=1).run(given)
    np.testing.assert_allclose(found, np.einsum(equation, *given), rtol=1e-6)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_a_repeated_label_of_another_dynamic_size_is_refused(backend: Literal["reference", "auto"]) -> None:
    graph = built(
        INPUT, op("torch.einsum", "einsum", "0", "y", equation="bii->bi"), op("F.relu", "relu", "y", "z"),
        op("pnnx.Output", "out", "z"), _0=(3, None, 5),
    )  # fmt: skip
    session = engine.Session(graph, backend=backend, cache=None, threads=1)
    assert session.run([np.ones((3, 5, 5), np.float32)])[0].shape == (3, 5)
    for size in (1, 7):
        with pytest.raises(engine.EngineError, match="sizes under repeated label 'i' differ"):
            session.run([np.ones((3, size, 5), np.float32)])
