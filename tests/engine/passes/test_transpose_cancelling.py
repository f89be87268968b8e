"""Chains of permutations and of views become one operator or none; what changes elements in between stops them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import RuntimeGraph, TensorSpec
from engine.passes.transpose_cancelling import transpose_cancelling
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import applied, assert_untouched, names, types


def chain(*operators: Operator, shape: tuple[int | None, ...] = (2, 3, 4)) -> RuntimeGraph:
    """Operators in a row, each fed by the one before, between two that are no views."""
    count = len(operators)
    fed = [op(each.type, f"{each.type}_{k}", str(k + 1), str(k + 2), **each.params) for k, each in enumerate(operators)]
    return built(
        INPUT,
        op("nn.ReLU", "before", "0", "1"),
        *fed,
        op("nn.ReLU", "after", str(count + 1), str(count + 2)),
        op("pnnx.Output", "out", str(count + 2)),
        _0=shape,
    )


def permute(*dims: int) -> Operator:
    return op("Tensor.permute", "p", dims=dims)


def transpose(a: int, b: int) -> Operator:
    return op("torch.transpose", "t", dim0=a, dim1=b)


def reshape(*shape: int) -> Operator:
    return op("Tensor.reshape", "r", shape=shape)


UNDONE = [
    [transpose(1, 2), transpose(-1, -2)],
    [permute(2, 0, 1), permute(1, 2, 0)],
    [permute(1, 2, 0), permute(1, 2, 0), permute(1, 2, 0)],
    [transpose(0, 1), permute(1, 0, 2)],
    [op("aten::numpy_T", "n"), op("aten::numpy_T", "n")],
    [reshape(6, 4), reshape(2, 3, 4)],
    [op("torch.flatten", "f", start_dim=0, end_dim=1), op("Tensor.unflatten", "u", dim=0, sizes=(2, 3))],
    [op("torch.unsqueeze", "u", dim=1), op("torch.squeeze", "s", dim=1)],
    [op("torch.unsqueeze", "u", dim=0), reshape(-1), reshape(2, 12), reshape(2, 3, 4)],
]


@pytest.mark.parametrize("operators", UNDONE, ids=lambda each: "-".join(op.type for op in each))
def test_what_undoes_itself_goes(operators: list[Operator]) -> None:
    made = applied(transpose_cancelling, chain(*operators))
    assert made.operators[-2].source.inputs == ("1",)
    assert made.operators[-2].name == "after"


def test_several_permutations_become_one() -> None:
    made = applied(transpose_cancelling, chain(permute(1, 2, 0), transpose(0, 1), op("aten::mT", "m")))
    assert types(made) == ["nn.ReLU", "Tensor.permute", "nn.ReLU"]
    assert names(made)[1] == "aten::mT_2"


def test_several_views_become_one_reshape() -> None:
    views = [op("torch.unsqueeze", "u", dim=1), op("torch.flatten", "f", start_dim=2), reshape(2, 2, 6)]
    made = applied(transpose_cancelling, chain(*views))
    assert types(made) == ["nn.ReLU", "Tensor.reshape", "nn.ReLU"]
    assert made.source.operators[2].params == {"shape": (2, 2, 6)}


def test_one_dynamic_dimension_is_worked_out_in_the_run() -> None:
    views = [op("torch.unsqueeze", "u", dim=1), op("torch.flatten", "f", start_dim=1)]
    made = applied(transpose_cancelling, chain(*views, shape=(None, 3, 4)))
    assert made.source.operators[2].params == {"shape": (-1, 12)}


def test_two_dynamic_dimensions_are_left_alone() -> None:
    views = [op("torch.unsqueeze", "u", dim=1), op("torch.unsqueeze", "v", dim=1)]
    assert_untouched(transpose_cancelling, chain(*views, shape=(None, None, 4)))


def test_two_dynamic_dimensions_are_not_taken_for_equal() -> None:
    graph = chain(reshape(-1), reshape(4, -1), shape=(None, None))
    made = applied(transpose_cancelling, graph, np.arange(8, dtype=F32).reshape(2, 4))
    assert types(made) == ["nn.ReLU", "Tensor.reshape", "nn.ReLU"]


@pytest.mark.parametrize(
    "operators",
    [
        [transpose(1, 2), op("nn.ReLU", "relu"), transpose(1, 2)],
        [transpose(1, 2), reshape(2, 4, 3), transpose(1, 2)],
        [transpose(1, 2)],
        [reshape(2, 12)],
    ],
    ids=lambda each: "-".join(op.type for op in each),
)
def test_other_operators_in_between_stop_a_chain(operators: list[Operator]) -> None:
    assert_untouched(transpose_cancelling, chain(*operators))


def test_a_transpose_with_another_consumer_stays() -> None:
    graph = built(
        INPUT,
        op("torch.transpose", "first", "0", "1", dim0=0, dim1=1),
        op("torch.transpose", "second", "1", "2", dim0=1, dim1=2),
        op("nn.ReLU", "relu", "1", "3"),
        op("pnnx.Output", "out", "2"),
        op("pnnx.Output", "out_1", "3"),
        _0=(2, 3, 4),
    )
    assert_untouched(transpose_cancelling, graph)


def test_a_cancelled_transpose_is_bypassed_though_it_has_another_consumer() -> None:
    graph = built(
        INPUT,
        op("torch.transpose", "first", "0", "1", dim0=0, dim1=1),
        op("torch.transpose", "second", "1", "2", dim0=0, dim1=1),
        op("nn.Tanh", "tanh", "2", "4"),
        op("nn.ReLU", "relu", "1", "3"),
        op("pnnx.Output", "out", "4"),
        op("pnnx.Output", "out_1", "3"),
        _0=(2, 3, 4),
    )
    assert names(applied(transpose_cancelling, graph)) == ["first", "tanh", "relu"]


def test_a_maker_that_got_new_users_is_not_taken_away() -> None:
    graph = chain(transpose(0, 1), transpose(1, 2), transpose(1, 2))
    made = applied(transpose_cancelling, graph)
    assert made.operators[-2].source.inputs == ("2",)


def test_the_conjugate_transpose_of_complex_numbers_is_no_permutation() -> None:
    graph = built(
        INPUT,
        op("aten::mH", "first", "0", "1"),
        op("aten::mH", "second", "1", "2"),
        op("pnnx.Output", "out", "2"),
        _0=TensorSpec((2, 3), np.dtype(np.complex64)),
    )
    assert_untouched(transpose_cancelling, graph)


@given(st.lists(st.permutations([0, 1, 2]), min_size=2, max_size=4))
def test_any_permutations_in_a_row_give_the_same(orders: list[list[int]]) -> None:
    made = applied(transpose_cancelling, chain(*(permute(*order) for order in orders)))
    assert types(made).count("Tensor.permute") <= len(orders) - 1
