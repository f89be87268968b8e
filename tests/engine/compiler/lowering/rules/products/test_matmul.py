"""Products of matrices as graphs have them: of any rank, however their operands lie, with what joins them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import RuntimeGraph, Session
from engine.tensor import Array
from tests.combining import together
from tests.engine.graph.build import F32, built, op

RANDOM = np.random.default_rng(5)
SIZES = (1, 2, 3, 17, 65)


@pytest.fixture(autouse=True)
def the_same_numbers_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(5))


def random(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(F32)


def check(net: RuntimeGraph, *inputs: Array, kernel: str = "product", name: str = "product") -> None:
    session = Session(net, backend="compiled", cache=None, threads=2)
    (found,) = session.run(list(inputs))
    rows = {row["name"]: row for row in session.describe()["operators"]}
    assert rows[name].get("kernel") == kernel, rows[name]
    (wanted,) = Session(net, backend="reference").run(list(inputs))
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=3e-5)


def net(
    type: str, *shapes: tuple[int, ...], orders: tuple[Any, ...] = (), tail: tuple[Any, ...] = (), **given: Any
) -> RuntimeGraph:
    """Return a product of inputs, each with its dimensions permuted first."""
    orders = orders or (None,) * len(shapes)
    stored = [
        shape if order is None else tuple(np.array(shape)[np.argsort(order)])
        for shape, order in zip(shapes, orders, strict=True)
    ]
    turns = [
        op("Tensor.permute", f"turn_{k}", f"in{k}", f"t{k}", dims=order)
        if order is not None
        else op("nn.Identity", f"turn_{k}", f"in{k}", f"t{k}")
        for k, order in enumerate(orders)
    ]
    return built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", f"in{k}") for k in range(len(shapes))),
        *turns,
        op(type, "product", " ".join(f"t{k}" for k in range(len(shapes))), "y", **given),
        *tail,
        op("pnnx.Output", "out", "z" if tail else "y"),
        **{f"_in{k}": shape for k, shape in enumerate(stored)},
    )


def stored(shapes: tuple[tuple[int, ...], ...], orders: tuple[Any, ...]) -> list[Array]:
    return [
        random(*(shape if order is None else np.array(shape)[np.argsort(order)]))
        for shape, order in zip(shapes, orders, strict=True)
    ]


@together(("rows", SIZES), ("columns", SIZES), ("terms", [1, 3, 65]))
def test_any_sizes(rows: int, columns: int, terms: int) -> None:
    shapes = (rows, terms), (terms, columns)
    check(net("torch.mm", *shapes), *(random(*shape) for shape in shapes))


@pytest.mark.parametrize(
    "shapes",
    [
        ((7,), (7,)), ((7,), (7, 5)), ((5, 7), (7,)), ((3, 5, 7), (7,)), ((7,), (3, 7, 5)), ((3, 5, 7), (7, 4)),
        ((5, 7), (3, 7, 4)), ((2, 3, 5, 7), (2, 3, 7, 4)), ((2, 1, 5, 7), (3, 7, 4)), ((1, 3, 5, 7), (2, 1, 7, 4)),
        ((2, 1, 3, 1, 5, 7), (1, 4, 1, 2, 7, 6)), ((2, 1, 1, 5, 1), (3, 1, 1, 1)), ((1, 1, 5, 7), (2, 3, 7, 1)),
        ((2, 3, 4, 5, 7), (2, 3, 4, 7, 9)),
    ],
)  # fmt: skip
def test_any_ranks_with_stacks_that_broadcast(shapes: tuple[tuple[int, ...], ...]) -> None:
    check(net("torch.matmul", *shapes), *(random(*shape) for shape in shapes))


@given(st.data())
def test_operands_may_lie_in_any_order(data: st.DataObject) -> None:
    size = st.sampled_from((1, 2, 3, 17, 40))
    n, h, rows, columns, terms = (data.draw(size) for _ in range(5))
    shapes = (n, h, rows, terms), (n, h, terms, columns)
    orders = tuple(tuple(data.draw(st.permutations(range(4)))) for _ in range(2))
    back = tuple(data.draw(st.permutations(range(4))))
    tail = (op("Tensor.permute", "back", "y", "z", dims=back),)
    check(net("torch.matmul", *shapes, orders=orders, tail=tail), *stored(shapes, orders))


@pytest.mark.parametrize("terms", [5000, 20_000])
@pytest.mark.parametrize("order", [None, (1, 0)])
def test_long_sums(terms: int, order: tuple[int, int] | None) -> None:
    shapes, orders = ((40, terms), (terms, 33)), (None, order)
    inputs = [each / np.float32(np.sqrt(terms)) for each in stored(shapes, orders)]
    check(net("torch.mm", *shapes, orders=orders), *(each * np.float32(terms**0.25) for each in inputs))


@pytest.mark.parametrize("expression", ["mul(@0,0.125)", "gelu(@0)", "add(div(@0,8),@1)", "tanh(add(@0,@1))"])
def test_what_follows_joins_the_product(expression: str) -> None:
    two = "@1" in expression
    graph = built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate("abm"[: 2 + two])),
        op("torch.matmul", "product", "a b", "y"),
        op("pnnx.Expression", "after", "y m" if two else "y", "z", expr=expression)
        if expression[0] != "g"
        else op("F.gelu", "after", "y", "z"),
        op("pnnx.Output", "out", "z"),
        _a=(2, 3, 20, 8),
        _b=(2, 3, 8, 21),
        **({"_m": (2, 1, 1, 21)} if two else {}),
    )
    inputs = [random(2, 3, 20, 8), random(2, 3, 8, 21), *([random(2, 1, 1, 21)] if two else [])]
    check(graph, *inputs)
    session = Session(graph, backend="compiled", cache=None)
    session.run(inputs)
    assert [row["kernel"] for row in session.run(inputs, profile=True).kernels] == ["product"]


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 1), (0.5, 2), (2, 0.25), (1, 0)])
@pytest.mark.parametrize("shape", [(3, 5, 9), (9,), (5, 1), (1, 1), (3, 1, 1)])
def test_baddbmm(shape: tuple[int, ...], beta: float, alpha: float) -> None:
    shapes = shape, (3, 5, 7), (3, 7, 9)
    check(net("torch.baddbmm", *shapes, beta=beta, alpha=alpha), *(random(*each) for each in shapes))


@pytest.mark.parametrize(("beta", "alpha"), [(1, 1), (0, 1), (0.5, 2)])
@pytest.mark.parametrize("shape", [(5, 9), (9,), (5, 1), (1,)])
def test_addmm_of_activations_and_of_weights(shape: tuple[int, ...], beta: float, alpha: float) -> None:
    shapes = shape, (5, 7), (7, 9)
    check(net("torch.addmm", *shapes, beta=beta, alpha=alpha), *(random(*each) for each in shapes))
    weighted = built(
        op("pnnx.Input", "pnnx_input_0", "", "x"),
        op("pnnx.Attribute", "w", "", "w", data=random(7, 9)),
        op("pnnx.Attribute", "b", "", "b", data=random(*shape)),
        op("torch.addmm", "product", "b x w", "y", beta=beta, alpha=alpha),
        op("pnnx.Output", "out", "y"),
        _x=(5, 7),
    )
    is_linear = beta == 0 or shape in ((9,), (1,))
    check(weighted, random(5, 7), kernel="conv" if is_linear else "product")


def test_what_is_multiplied_by_weights_is_a_linear_layer() -> None:
    graph = built(
        op("pnnx.Input", "pnnx_input_0", "", "x"),
        op("pnnx.Attribute", "w", "", "w", data=random(7, 9)),
        op("torch.matmul", "product", "x w", "y"),
        op("pnnx.Output", "out", "y"),
        _x=(2, 5, 7),
    )
    check(graph, random(2, 5, 7), kernel="conv")


@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True), (True, True)])
def test_gemm(transposed: tuple[bool, bool]) -> None:
    a, b = transposed
    shapes = (7, 5) if a else (5, 7), (9, 7) if b else (7, 9), (5, 1)
    graph = net("Gemm", *shapes, transA=int(a), transB=int(b), alpha=0.5, beta=2.0)
    check(graph, *(random(*shape) for shape in shapes), name=graph.operators[-2].name)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", ((5, 7), (7, 9))), ("ij,kj->ki", ((5, 7), (9, 7))), ("ij,jk->ki", ((5, 7), (7, 9))),
        ("bhqd,bhkd->bhqk", ((2, 3, 5, 7), (2, 3, 9, 7))), ("bqhd,bkhd->bhqk", ((2, 5, 3, 7), (2, 9, 3, 7))),
        ("bhqk,bkhd->bqhd", ((2, 3, 5, 9), (2, 9, 3, 7))), ("ibnd,jbnd->bnij", ((5, 2, 3, 7), (9, 2, 3, 7))),
        ("ibh,hnd->ibnd", ((5, 2, 12), (12, 3, 7))), ("ibnd,hnd->ibh", ((5, 2, 3, 7), (12, 3, 7))),
        ("bij,bjk->bik", ((1, 5, 7), (4, 7, 9))), ("i,i->", ((7,), (7,))),
        ("ij,j->i", ((5, 7), (7,))), ("bi,bi->b", ((5, 7), (5, 7))),
    ],
)  # fmt: skip
def test_einsum_of_two_operands(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    check(net("torch.einsum", *shapes, equation=equation), *(random(*shape) for shape in shapes))


def test_a_dimension_that_one_operand_repeats_is_summed_in_the_other() -> None:
    check(
        net("torch.einsum", (5, 1), (7, 9), equation="ij,jk->ik"), random(5, 1), random(7, 9), kernel="global_average"
    )


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_not_finite_spoils_what_it_is_multiplied_into(number: float, place: int) -> None:
    shapes = (2, 30, 12), (2, 12, 40)
    inputs = [random(*shape) for shape in shapes]
    inputs[place][1, 3, 5] = number
    check(net("torch.bmm", *shapes), *inputs)


def test_heads_that_are_joined_afterwards_keep_their_order() -> None:
    graph = built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate("ab")),
        op("torch.matmul", "product", "a b", "y"),
        op("torch.transpose", "turn", "y", "t", dim0=1, dim1=2),
        op("Tensor.reshape", "join", "t", "z", shape=(2, 20, 24)),
        op("pnnx.Output", "out", "z"),
        _a=(2, 3, 20, 9),
        _b=(2, 3, 9, 8),
    )
    inputs = [random(2, 3, 20, 9), random(2, 3, 9, 8)]
    check(graph, *inputs)
