"""Einsums of any equation as kernels: numpy's answers, whichever order their results have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine import Session
from engine.compiler import CompiledGraph
from engine.compiler.codegen.host import describe
from engine.options import Options
from engine.pnnx import Operator
from engine.tensor import Array, TensorSpec
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS
from tests.engine.graph.build import F32, built, op

SIZES = (1, 2, 3, 5, 8, 17, 33)
MOST_UNROLLED, MOST_ELEMENTS = 1_000_000, 20_000
IN_ANOTHER_ORDER: list[tuple[str, tuple[tuple[int, ...], ...]]] = [
    ("bhij,ik->bhkj", ((2, 3, 5, 7), (5, 9))),
    ("ij,kl->ikjl", ((2, 3), (5, 7))),
    ("td,edf->etf", ((6, 8), (4, 8, 20))),
    ("jl,ilk->ijk", ((5, 6), (3, 6, 17))),
    ("bqhd,bkhd->bqkh", ((2, 5, 3, 8), (2, 6, 3, 8))),
    ("tbi,bi->tb", ((5, 3, 4), (3, 4))),
    ("bid,bjd->ijb", ((2, 3, 4), (2, 5, 4))),
    ("abcd,ce->dbea", ((2, 3, 4, 5), (4, 6))),
    ("bi,bij->bij", ((3, 5), (3, 5, 7))),
    ("ij,->ji", ((3, 5), ())),
    ("i,j->", ((3,), (5,))),
    (",->", ((), ())),
]


def answer(equation: str, inputs: Sequence[Array]) -> Array:
    return np.asarray(np.einsum(equation, *(each.astype(np.float64) for each in inputs)))


def run(equation: str, inputs: Sequence[Array], *tail: Operator, known: Sequence[int] = (), level: str = "") -> Array:
    """Return the result of machine code for the einsum and what follows it.

    Args:
        tail: computes z from the einsum's y.
        known: numbers of the inputs that are stored in the graph.
    """
    names = [f"in{k}" for k, _ in enumerate(inputs)]
    sources = [
        op("pnnx.Attribute", f"stored_{k}", "", name, data=each) if k in known else op("pnnx.Input", f"p{k}", "", name)
        for k, (name, each) in enumerate(zip(names, inputs, strict=True))
    ]
    asked = [k for k, _ in enumerate(inputs) if k not in known]
    specs = {f"_{names[k]}": TensorSpec(inputs[k].shape, inputs[k].dtype) for k in asked}
    layer = op("torch.einsum", "einsum", " ".join(names), "y", equation=equation)
    net = built(*sources, layer, *tail, op("pnnx.Output", "out", "z" if tail else "y"), **specs)
    arrays = [inputs[k] for k in asked]
    if level:
        given_ = [guarded_array(each, at_end=True, dtype=each.dtype.name) for each in arrays]
        return CompiledGraph(net, Options(threads=1), describe(level)).run(given_)[0]
    session = Session(net, backend="compiled", cache=None, threads=2)
    (found,) = session.run(arrays)
    assert not [row["why"] for row in session.describe()["operators"] if row.get("why")]
    return found


def hold(found: Array, wanted: Array, terms: int = 1) -> None:
    assert found.shape == wanted.shape
    most = max(1.0, float(np.abs(wanted).max(initial=0)))
    epsilon = np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=0, atol=16 * most * epsilon * max(4.0, terms**0.5))


def random(shapes: Sequence[tuple[int, ...]], dtype: Any = F32) -> list[Array]:
    generator = np.random.default_rng(5)
    return [np.asarray(generator.standard_normal(shape)).astype(dtype) for shape in shapes]


@pytest.mark.parametrize(("equation", "shapes"), IN_ANOTHER_ORDER)
def test_results_lie_in_an_order_that_is_no_products(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    for dtype in (np.float32, np.float64):
        inputs = random(shapes, dtype)
        found = run(equation, inputs)
        assert found.dtype == dtype
        hold(found, answer(equation, inputs))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("equation", "shapes"), IN_ANOTHER_ORDER[:8])
def test_at_every_level(equation: str, shapes: tuple[tuple[int, ...], ...], level: str) -> None:
    inputs = random(shapes)
    hold(run(equation, inputs, level=level), answer(equation, inputs))


@given(st.data())
def test_any_equation_is_computed_by_kernels(data: st.DataObject) -> None:
    letters = "abcdef"
    sizes = {letter: data.draw(st.sampled_from(SIZES)) for letter in letters}
    terms = data.draw(st.lists(st.text(letters, max_size=4), min_size=1, max_size=3))
    used = sorted({*"".join(terms)})
    output = "".join(data.draw(st.lists(st.sampled_from(used), unique=True))) if used else ""
    shapes = [tuple(sizes[letter] for letter in term) for term in terms]
    assume(max(np.prod(shape) for shape in shapes) <= MOST_ELEMENTS)
    assume(np.prod([sizes[letter] for letter in used]) <= MOST_UNROLLED)
    equation = f"{','.join(terms)}->{output}"
    inputs = random(shapes, data.draw(st.sampled_from((np.float32, np.float64))))
    known = [data.draw(st.integers(0, len(terms) - 1))] if len(terms) > 1 and data.draw(st.booleans()) else []
    wanted, tail = answer(equation, inputs), data.draw(st.sampled_from(("", "join", "turn") if output else ("",)))
    operators: tuple[Operator, ...] = ()
    if tail == "join":
        axis = data.draw(st.integers(0, len(output) - 1))
        operators = (op("nn.ReLU", "relu", "y", "r"), op("torch.cat", "join", "r r", "z", dim=axis))
        wanted = np.concatenate([np.maximum(wanted, 0)] * 2, axis)
    elif tail == "turn":
        order = data.draw(st.permutations(range(len(output))))
        operators = (op("Tensor.permute", "turn", "y", "z", dims=tuple(order)),)
        wanted = wanted.transpose(order)
    hold(run(equation, inputs, *operators, known=known), wanted, terms=MOST_UNROLLED)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bld,dhk->blhk", ((2, 5, 8), (8, 3, 4))),
        ("bld,hkd->blhk", ((2, 5, 8), (3, 4, 8))),
        ("blhk,hkd->bld", ((2, 5, 3, 4), (3, 4, 8))),
    ],
)
def test_stored_weights_make_a_linear_layer(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    inputs = random(shapes)
    hold(run(equation, inputs, known=[1]), answer(equation, inputs))
    net = built(
        op("pnnx.Input", "in", "", "x"),
        op("pnnx.Attribute", "weight", "", "w", data=inputs[1]),
        op("torch.einsum", "einsum", "x w", "y", equation=equation),
        op("pnnx.Output", "out", "y"),
        _x=shapes[0],
    )
    session = Session(net, backend="compiled", cache=None)
    session.run(inputs[:1])
    assert [row["kernel"] for row in session.run(inputs[:1], profile=True).kernels] == ["conv"]


@pytest.mark.parametrize("equation", ["td,edf->etf", "bhij,ik->bhkj"])
def test_sizes_may_be_open_or_zero(equation: str) -> None:
    first, second = equation.partition("->")[0].split(",")
    net = built(
        op("pnnx.Input", "p0", "", "a"),
        op("pnnx.Input", "p1", "", "b"),
        op("torch.einsum", "einsum", "a b", "y", equation=equation),
        op("pnnx.Output", "out", "y"),
        _a=(None,) * len(first),
        _b=(None,) * len(second),
    )
    session = Session(net, backend="compiled", cache=None)
    for start in (1, 2, 0, 5):
        sizes = {letter: start and start + k for k, letter in enumerate(sorted({*first, *second}))}
        inputs = random([tuple(sizes[letter] for letter in term) for term in (first, second)])
        for _ in range(3):
            (found,) = session.run(inputs)
            hold(found, answer(equation, inputs))


def test_what_is_not_finite_spoils_no_more_than_what_it_is_multiplied_into() -> None:
    inputs = random(((6, 8), (4, 8, 20)))
    inputs[0][2, 3], inputs[1][1, 5, 7] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        wanted = answer("td,edf->etf", inputs)
    np.testing.assert_array_equal(np.isnan(run("td,edf->etf", inputs)), np.isnan(wanted))
