"""Attention as graphs have it: one kernel, which agrees with the reference wherever its operands lie."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session, TensorSpec
from engine.tensor import Array
from tests.engine.compiler.lowering.rules.products.turning import without_key_copies
from tests.engine.graph.build import F32, built, op

RANDOM = np.random.default_rng(5)
BOOL = np.dtype(np.bool_)


@pytest.fixture(autouse=True)
def the_same_numbers_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "RANDOM", np.random.default_rng(5))


def check(net: RuntimeGraph, *inputs: Array, name: str = "attend", is_one: bool = True) -> None:
    session = Session(net, backend="compiled", cache=None, threads=2)
    found = session.run(list(inputs))
    rows = {row["name"]: row for row in session.describe()["operators"]}
    kernel = rows[name].get("kernel")
    assert kernel is not None and (kernel == "attention") == is_one, rows[name]
    for mine, theirs in zip(found, Session(net, backend="reference").run(list(inputs)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


def random(*shape: int) -> Array:
    return RANDOM.standard_normal(shape).astype(F32)


def attention(*shapes: tuple[int, ...], mask: TensorSpec | None = None, **given: Any) -> RuntimeGraph:
    names = [f"in{k}" for k in range(3 + (mask is not None))]
    specs: dict[str, Any] = {f"_{name}": shape for name, shape in zip(names, shapes, strict=False)}
    if mask is not None:
        specs["_in3"] = mask
    labels = {} if mask is None else {"labels": ("query", "key", "value", "attn_mask")}
    return built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(names)),
        op("F.scaled_dot_product_attention", "attend", " ".join(names), "y", **labels, **given),
        op("pnnx.Output", "out", "y"),
        **specs,
    )


@pytest.mark.parametrize("width", [1, 2, 3, 17, 65])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 65), (2, 3), (17, 2), (65, 17), (130, 1100)])
def test_any_sizes(queries: int, keys: int, width: int) -> None:
    shapes = (2, 3, queries, width), (2, 3, keys, width), (2, 3, keys, width + 2)
    check(attention(*shapes), *(random(*shape) for shape in shapes))


@pytest.mark.parametrize(
    ("queries", "keys", "width", "copies"),
    [(49, 49, 32, 0), (64, 49, 32, 0), (16, 3, 5, 0), (7, 1300, 9, 0), (90, 1300, 64, 1), (300, 49, 32, 1)],
)
def test_keys_are_copied_only_where_several_chunks_would_pack_the_same_or_one_of_them_much(
    queries: int, keys: int, width: int, copies: int
) -> None:
    shapes = (16, 3, queries, width), (16, 3, keys, width), (16, 3, keys, width)
    net, inputs = attention(*shapes), [random(*shape) for shape in shapes]
    check(net, *inputs)
    kernels = Session(net, backend="compiled", cache=None).run(inputs, profile=True).kernels
    assert [row["kernel"] for row in kernels] == copies * ["transpose"] + ["attention"]


@pytest.mark.parametrize(("heads", "width", "values"), [(1, 1400, 1400), (2, 1100, 1203)])
def test_heads_too_wide_for_one_kernel_are_products_with_a_softmax_between(heads: int, width: int, values: int) -> None:
    shapes = (heads, 150, width), (heads, 600, width), (heads, 600, values)
    query, key, value = (random(*shape) * F32.type(0.2) for shape in shapes)
    query[0, 7], key[0, :, 0], query[0, 7, 0] = 0, 1, -np.inf
    check(attention(*shapes), query, key, value, is_one=False)
    check(attention(*shapes, is_causal=True), query, key, value)
    few = (heads, 1, width), *shapes[1:]
    check(attention(*few), query[:, :1], key, value)


@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (5, 5), (3, 40), (40, 3), (70, 1200)])
def test_causal(queries: int, keys: int) -> None:
    shapes = (3, queries, 8), (3, keys, 8), (3, keys, 8)
    check(attention(*shapes, is_causal=True), *(random(*shape) for shape in shapes))


@pytest.mark.parametrize("shape", [(9, 21), (9, 1), (1, 21), (21,), (2, 1, 1, 21), (2, 4, 9, 21), (4, 1, 1), (1, 1)])
@pytest.mark.parametrize("is_bool", [False, True])
def test_a_mask_of_any_shape(shape: tuple[int, ...], is_bool: bool) -> None:
    shapes = (2, 4, 9, 16), (2, 4, 21, 16), (2, 4, 21, 16)
    mask = (
        RANDOM.random(shape) < 0.6
        if is_bool
        else np.where(RANDOM.random(shape) < 0.6, random(*shape), F32.type(-np.inf))
    )
    net = attention(*shapes, mask=TensorSpec(shape, BOOL if is_bool else F32))
    check(net, *(random(*each) for each in shapes), mask)


def test_a_query_whose_every_key_is_left_out_gives_zeros() -> None:
    shapes = (1, 2, 5, 8), (1, 2, 7, 8), (1, 2, 7, 8)
    mask = np.ones((5, 7), bool)
    mask[1] = False
    net = attention(*shapes, mask=TensorSpec((5, 7), BOOL))
    inputs = [*(random(*shape) for shape in shapes), mask]
    check(net, *inputs)
    assert not Session(net, backend="compiled", cache=None).run(inputs)[0][:, :, 1].any()


def test_a_query_whose_keys_all_have_the_lowest_number_sees_all_of_them() -> None:
    shapes = (1, 2, 5, 8), (1, 2, 37, 8), (1, 2, 37, 8)
    mask = np.zeros((5, 37), F32)
    mask[1], mask[2, 4:] = np.finfo(F32).min, np.finfo(F32).min
    net = attention(*shapes, mask=TensorSpec((5, 37), F32))
    check(net, *(random(*shape) for shape in shapes), mask)


@pytest.mark.parametrize("keys", [40, 130, 1200])
@pytest.mark.parametrize("number", [-np.inf, np.finfo(F32).min, -10000.0, -20.0])
def test_keys_that_a_mask_leaves_no_weight(keys: int, number: float) -> None:
    shapes = (2, 3, keys, 8), (2, 3, keys, 8), (2, 3, keys, 8)
    padded, causal = np.zeros((2, 1, 1, keys), F32), np.triu(np.full((keys, keys), number, F32), 1)
    padded[0, ..., keys // 2 :], padded[1, ..., 3:] = number, number
    for mask in (padded, causal):
        inputs = [*(random(*shape) for shape in shapes), mask]
        check(attention(*shapes, mask=TensorSpec(mask.shape, F32)), *inputs)
        inputs[2][0, 1, keys - 1, 5] = np.inf
        check(attention(*shapes, mask=TensorSpec(mask.shape, F32)), *inputs)


@pytest.mark.parametrize("scale", [1e-30, -2.0, 1e3, 1e30])
def test_any_scale(scale: float) -> None:
    shapes = (2, 6, 8), (2, 40, 8), (2, 40, 8)
    check(attention(*shapes, scale=scale), *(random(*shape) for shape in shapes))


@pytest.mark.parametrize(("groups", "others"), [(1, 1), (2, 2), (4, 2), (2, 1), (1, 2)])
def test_heads_may_share_keys_and_values(groups: int, others: int) -> None:
    shapes = (2, 4, 6, 8), (2, groups, 11, 8), (2, others, 11, 8)
    mask = TensorSpec((2, 4, 6, 11), F32)
    inputs = [*(random(*shape) for shape in shapes), random(2, 4, 6, 11)]
    check(attention(*shapes, mask=mask, enable_gqa=True), *inputs)


def test_operands_broadcast() -> None:
    shapes = (1, 3, 6, 8), (2, 1, 11, 8), (11, 5)
    check(attention(*shapes, scale=0.3), *(random(*shape) for shape in shapes))


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("keys", [12, 1100])
def test_what_is_not_finite_goes_where_the_reference_has_it(number: float, place: int, keys: int) -> None:
    shapes = (2, 20, 8), (2, keys, 8), (2, keys, 8)
    inputs = [random(*shape) for shape in shapes]
    inputs[place][1, 3, 5] = number
    check(attention(*shapes), *inputs)


@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (70, 70), (5, 70), (70, 5), (65, 1200), (1200, 1200)])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_values_that_are_not_finite_reach_earlier_queries(queries: int, keys: int, is_dynamic: bool) -> None:
    shapes = (2, queries, 8), (2, keys, 8), (2, keys, 8)
    net = attention(*([(2, None, 8)] * 3 if is_dynamic else shapes), is_causal=True)
    sessions = [Session(net, backend=each, cache=None, threads=2) for each in ("compiled", "reference")]
    sound = [random(*shape) for shape in shapes]
    for place, number, part in product(range(3), (np.nan, np.inf, -np.inf), (1, 2)):
        inputs = [each.copy() for each in sound]
        inputs[place][1, len(inputs[place][1]) // part - 1, 5] = number
        (mine,), (theirs,) = (session.run(inputs) for session in sessions)
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("keys", [12, 1100])
@pytest.mark.parametrize("is_whole", [False, True])
def test_scores_that_are_not_finite_stay_so_where_booleans_leave_them_out(
    number: float, place: int, keys: int, is_whole: bool
) -> None:
    shapes = (2, 20, 8), (2, keys, 8), (2, keys, 8)
    inputs = [*(random(*shape) for shape in shapes), np.ones((20, keys), bool)]
    inputs[place][1, 3, 5] = number
    inputs[3][:, 3] = inputs[3][5] = False
    if is_whole:
        inputs[3][:, keys // 2 :] = False
    check(attention(*shapes, mask=TensorSpec((20, keys), BOOL)), *inputs)


def test_heads_of_one_linear_layer_are_not_moved() -> None:
    """Chunks and views around attention cost nothing: two linear layers and it."""
    weight, back = random(96, 32) / 6, random(32, 32) / 6
    chunks = "q k v"
    net = built(
        op("pnnx.Input", "pnnx_input_0", "", "x"),
        op("nn.Linear", "qkv", "x", "y", in_features=32, out_features=96, bias=False, weight=weight),
        op("torch.chunk", "chunk", "y", chunks, chunks=3, dim=-1),
        *(op("Tensor.view", f"view_{n}", n, f"{n}1", shape=(2, 20, 4, 8)) for n in chunks.split()),
        *(op("torch.transpose", f"turn_{n}", f"{n}1", f"{n}2", dim0=1, dim1=2) for n in chunks.split()),
        op("F.scaled_dot_product_attention", "attend", "q2 k2 v2", "z"),
        op("torch.transpose", "back", "z", "z1", dim0=1, dim1=2),
        op("Tensor.reshape", "join", "z1", "z2", shape=(2, 20, 32)),
        op("nn.Linear", "proj", "z2", "out", in_features=32, out_features=32, bias=False, weight=back),
        op("pnnx.Output", "out", "out"),
        _x=(2, 20, 32),
    )
    x = random(2, 20, 32)
    check(net, x)
    session = Session(net, backend="compiled", cache=None)
    session.run([x])
    found = without_key_copies(row["kernel"] for row in session.run(x, profile=True).kernels)
    assert found == ["conv", "attention", "conv"]


@pytest.mark.parametrize("dims", [(0, 1, 3, 2), (3, 2, 1, 0), (1, 0, 2, 3)])
def test_operands_may_lie_in_any_order(dims: tuple[int, ...]) -> None:
    shapes = [tuple(np.array(shape)[np.argsort(dims)]) for shape in ((2, 3, 9, 5), (2, 3, 21, 5), (2, 3, 21, 7))]
    net = built(
        *(op("pnnx.Input", f"pnnx_input_{k}", "", f"in{k}") for k in range(3)),
        *(op("Tensor.permute", f"turn_{k}", f"in{k}", f"t{k}", dims=dims) for k in range(3)),
        op("F.scaled_dot_product_attention", "attend", "t0 t1 t2", "y"),
        op("Tensor.permute", "back", "y", "z", dims=dims),
        op("pnnx.Output", "out", "z"),
        **{f"_in{k}": shape for k, shape in enumerate(shapes)},
    )
    check(net, *(random(*shape) for shape in shapes))
