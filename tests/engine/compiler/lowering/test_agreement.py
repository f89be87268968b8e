"""Arrangements in which a rule could easily go wrong: each agrees with the reference."""

from __future__ import annotations

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from tests.combining import together
from tests.engine.graph.build import F32, INPUT, built, conv, op

RANDOM = np.random.default_rng(3)


def check(net: RuntimeGraph, *shapes: tuple[int, ...]) -> None:
    inputs = [RANDOM.standard_normal(shape).astype(F32) for shape in shapes]
    wanted = Session(net, backend="reference").run(inputs)
    found = Session(net, backend="compiled", cache=None).run(inputs)
    assert [(a.shape, a.dtype) for a in found] == [(a.shape, a.dtype) for a in wanted]
    for mine, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_concatenation_is_not_read_before_its_last_part_is_there() -> None:
    net = built(
        INPUT,
        conv("conv_a", "0", "a", (3, 4), (1, 1)),
        conv("conv_e", "0", "e", (3, 8), (1, 1)),
        conv("conv_b", "0", "b", (3, 4), (1, 1)),
        op("torch.cat", "cat", "a b", "c", dim=1),
        op("pnnx.Expression", "sum", "e c", "d", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "d"),
        _0=(1, 3, 5, 5),
    )
    check(net, (1, 3, 5, 5))


@pytest.mark.parametrize("order", ["1 2", "2 1", "1 1 0", "0 1 1", "2 0 2 1"])
def test_outputs_come_in_the_files_order_and_each_by_itself(order: str) -> None:
    net = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("torch.flatten", "flat", "1", "2", start_dim=1, end_dim=-1),
        *(op("pnnx.Output", f"out_{k}", name) for k, name in enumerate(order.split())),
        _0=(1, 3, 5, 5),
    )
    check(net, (1, 3, 5, 5))


def test_inputs_are_counted_by_their_numbers() -> None:
    net = built(
        op("pnnx.Input", "pnnx_input_1", "", "b"),
        op("pnnx.Input", "pnnx_input_0", "", "a"),
        op("pnnx.Expression", "difference", "a b", "c", expr="sub(@0,mul(@1,2))"),
        op("pnnx.Output", "out", "c"),
        _a=(2, 3),
        _b=(2, 3),
    )
    check(net, (2, 3), (2, 3))


@pytest.mark.parametrize(("count", "text"), [(1000, "tanh(@0)"), (30, "add(@0,mul(@0,@0))")], ids=["deep", "wide"])
def test_long_chains_of_functions_become_several_kernels(count: int, text: str) -> None:
    chain = [op("pnnx.Expression", f"e{k}", str(k), str(k + 1), expr=text) for k in range(count)]
    check(built(INPUT, *chain, op("pnnx.Output", "out", str(count)), _0=(1, 3)), (1, 3))


@pytest.mark.parametrize("dims", [(3, 2, 1, 0), (3, 0, 2, 1), (1, 0, 3, 2), (2, 3, 0, 1)])
@pytest.mark.parametrize("dim", [0, 1, 2, 3])
def test_rows_of_a_permuted_tensor_stay_where_they_belong(dims: tuple[int, ...], dim: int) -> None:
    net = built(
        INPUT,
        op("Tensor.permute", "permute", "0", "1", dims=dims),
        op("F.log_softmax", "softmax", "1", "2", dim=dim),
        op("pnnx.Output", "out", "2"),
        _0=(2, 3, 4, 5),
    )
    check(net, (2, 3, 4, 5))


def test_a_residual_of_one_channel_may_lie_anywhere() -> None:
    net = built(
        INPUT,
        conv("conv_a", "0", "a", (3, 1), (1, 1)),
        op("Tensor.slice", "slice", "0", "b", dim=1, start=1, end=2, step=1),
        op("Tensor.permute", "turn", "b", "c", dims=(0, 1, 3, 2)),
        op("pnnx.Expression", "sum", "a c", "d", expr="add(@0,@1)"),
        op("pnnx.Output", "out", "d"),
        _0=(1, 3, 5, 5),
    )
    check(net, (1, 3, 5, 5))


def test_an_operand_an_expression_does_not_read_may_have_any_shape() -> None:
    net = built(
        INPUT,
        op("Tensor.slice", "slice", "0", "1", dim=1, start=0, end=2, step=1),
        op("pnnx.Expression", "half", "0 1", "2", expr="mul(@1,0.5)"),
        op("pnnx.Output", "out", "2"),
        _0=(2, 3),
    )
    check(net, (2, 3))


@together(
    ("type", ["torch.mean", "torch.sum"]),
    ("keepdim", [True, False]),
    ("dim", [(0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)]),
    ("dims", [(0, 1, 2, 3), (3, 1, 0, 2), (0, 2, 3, 1)]),
)
def test_dimensions_that_others_follow_are_summed(
    type: str, keepdim: bool, dim: tuple[int, ...], dims: tuple[int, ...]
) -> None:
    net = built(
        INPUT,
        op("Tensor.permute", "permute", "0", "1", dims=dims),
        op(type, "reduce", "1", "2", dim=dim, keepdim=keepdim),
        op("pnnx.Expression", "half", "2", "3", expr="mul(@0,0.5)"),
        op("pnnx.Output", "out", "3"),
        _0=(2, 3, 7, 19),
    )
    check(net, (2, 3, 7, 19))
    session = Session(net, backend="compiled", cache=None)
    session.run([np.zeros((2, 3, 7, 19), F32)])
    assert {row["name"]: row for row in session.describe()["operators"]}["reduce"]["kernel"] != "reference"


@pytest.mark.parametrize("dims", [(0, 1, 2, 3), (0, 2, 3, 1)])
@pytest.mark.parametrize(
    ("shifts", "dim"),
    [((1,), (1,)), ((-2, 3), (2, 3)), ((0, 7), (1, -2)), ((100, -100), (-1, 0)), ((1, 1, 1), (1, 2, 3))],
)
def test_a_roll_is_copies_of_parts(shifts: tuple[int, ...], dim: tuple[int, ...], dims: tuple[int, ...]) -> None:
    net = built(
        INPUT,
        op("Tensor.permute", "permute", "0", "1", dims=dims),
        op("torch.roll", "roll", "1", "2", shifts=shifts, dims=dim),
        op("pnnx.Output", "out", "2"),
        _0=(2, 3, 7, 19),
    )
    check(net, (2, 3, 7, 19))
    session = Session(net, backend="compiled", cache=None)
    session.run([np.zeros((2, 3, 7, 19), F32)])
    assert {row["name"]: row for row in session.describe()["operators"]}["roll"]["kernel"] != "reference"
