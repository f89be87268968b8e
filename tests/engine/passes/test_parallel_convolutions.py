"""Convolutions of one tensor whose results are added become one where it sees what they all see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph
from engine.passes import optimise
from engine.passes.parallel_convolutions import parallel_convolutions
from engine.pnnx import Operator
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.passes.applying import FOLDED, applied, assert_untouched, expressions, types

RANDOM = np.random.default_rng(5)
OUT = op("pnnx.Output", "out", "9")
SHAPE = (2, 4, 7, 6)


def array(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(F32)


def conv(name: str, target: str, kernel: Sequence[int], source: str = "0", **params: Any) -> Operator:
    """A convolution of 4 channels to 4 of its own unless the parameters say so, padded to the size of its input."""
    groups = params.get("groups", 1)
    given = {"padding": tuple(size // 2 for size in kernel), "bias": array(4), **params}
    given = {key: value for key, value in given.items() if value is not None}
    return op(f"nn.Conv{len(kernel)}d", name, source, target, weight=array(4, 4 // groups, *kernel), **given)


def norm(target: str, source: str = "0", type: str = "nn.BatchNorm2d") -> Operator:
    given = {"running_mean": array(4), "running_var": array(4) ** 2 + 0.5, "weight": array(4), "bias": array(4)}
    return op(type, "norm", source, target, affine=True, eps=1e-3, num_features=4, **given)


def added(text: str, inputs: str, target: str = "9") -> Operator:
    return op("pnnx.Expression", "sum", inputs, target, expr=text)


def network(*operators: Operator, shape: tuple[int | None, ...] = SHAPE) -> RuntimeGraph:
    return built(INPUT, *operators, OUT, _0=shape)


ALIKE: list[tuple[tuple[int | None, ...], list[Operator]]] = [
    (SHAPE, [conv("a", "1", (3, 3)), conv("b", "2", (3, 3))]),
    (SHAPE, [conv("a", "1", (1, 1)), conv("b", "2", (3, 3), bias=None)]),
    (SHAPE, [conv("a", "1", (1, 1)), conv("b", "2", (5, 3))]),
    (SHAPE, [conv("a", "1", (3, 1)), conv("b", "2", (3, 5))]),
    (SHAPE, [conv("a", "1", (1, 1), stride=(2, 2)), conv("b", "2", (3, 3), stride=(2, 2))]),
    (SHAPE, [conv("a", "1", (3, 3), groups=4), conv("b", "2", (1, 1), groups=4)]),
    (SHAPE, [conv("a", "1", (3, 3), groups=2), norm("2")]),
    (SHAPE, [conv("a", "1", (3, 3), groups=4), norm("2")]),
    (SHAPE, [conv("a", "1", (1, 1)), norm("2")]),
    (SHAPE, [conv("a", "1", (3, 3), dilation=(2, 2), padding=(2, 2)), conv("b", "2", (5, 5))]),
    (SHAPE, [conv("a", "1", (3, 3), padding="same"), conv("b", "2", (2, 2), padding="same")]),
    (SHAPE, [conv("a", "1", (3, 3), padding=(0, 0)), conv("b", "2", (5, 5), padding=(1, 1))]),
    ((2, 4, 9), [conv("a", "1", (3,)), norm("2", type="nn.BatchNorm1d")]),
    ((1, 4, 3, 4, 5), [conv("a", "1", (3, 3, 3)), conv("b", "2", (1, 3, 1))]),
    ((None, 4, None, None), [conv("a", "1", (1, 1)), conv("b", "2", (3, 3))]),
]


@pytest.mark.parametrize(("shape", "branches"), ALIKE, ids=range(len(ALIKE)))
def test_two_branches_become_one(shape: tuple[int | None, ...], branches: list[Operator]) -> None:
    for text in ("add(@0,@1)", "add(@1,@0)"):
        made = applied(parallel_convolutions, network(*branches, added(text, "1 2"), shape=shape), close=FOLDED)
        assert types(made) == [branches[0].type]


def test_all_branches_and_the_normalisation_become_one_as_training_leaves_them() -> None:
    branches = [conv("a", "1", (1, 1)), conv("b", "2", (3, 3)), conv("c", "3", (3, 3)), norm("4")]
    graph = network(*branches, added("add(add(add(@0,@1),@2),@3)", "1 2 3 4", "5"), op("nn.ReLU", "relu", "5", "9"))
    made = applied(parallel_convolutions, graph, close=FOLDED)
    assert types(made) == ["nn.Conv2d", "nn.ReLU"]
    assert [each.outputs for each in made.source.operators if each.type == "nn.Conv2d"] == [("5",)]


def test_what_else_is_added_is_added_to_the_one() -> None:
    branches = [conv("a", "1", (1, 1)), op("nn.Tanh", "t", "0", "3"), conv("b", "2", (3, 3))]
    graph = network(*branches, added("add(add(@0,mul(@1,2)),add(@2,@3))", "1 3 2 0"))
    made = applied(parallel_convolutions, graph, close=FOLDED)
    assert sorted(types(made)) == ["nn.Conv2d", "nn.Tanh", "pnnx.Expression"]
    assert expressions(made) == ["add(add(mul(@0,2),@1),@2)"]


def test_branches_of_two_tensors_become_one_each() -> None:
    branches = [
        conv("a", "1", (1, 1)), conv("b", "2", (3, 3)), op("nn.Tanh", "t", "0", "3"), conv("c", "4", (3, 3), "3"),
        conv("d", "5", (1, 1), "3"),
    ]  # fmt: skip
    graph = network(*branches, added("add(add(@0,@1),add(@2,@3))", "1 4 2 5"))
    made = optimise(graph)[0]
    assert sorted(types(made)) == ["nn.Conv2d", "nn.Conv2d", "nn.Tanh", "pnnx.Expression"]


APART = [
    [conv("a", "1", (3, 3)), conv("b", "2", (3, 3), groups=2)],
    [conv("a", "1", (3, 3), padding_mode="reflect"), conv("b", "2", (3, 3))],
    [conv("a", "1", (3, 3)), conv("b", "2", (3, 3), padding=(2, 2), dilation=(2, 2))],
    [conv("a", "1", (3, 3), dilation=(3, 3), padding=(3, 3)), conv("b", "2", (5, 5))],
    [conv("a", "1", (5, 1)), conv("b", "2", (1, 5))],
    [norm("1"), op("nn.Tanh", "t", "0", "2")],
]


@pytest.mark.parametrize("branches", APART, ids=range(len(APART)))
def test_what_sees_other_pixels_or_channels_stays(branches: list[Operator]) -> None:
    assert_untouched(parallel_convolutions, network(*branches, added("add(@0,@1)", "1 2")))


def test_results_of_other_sizes_stay_which_broadcast_by_chance() -> None:
    branches = [conv("a", "1", (3, 3), padding=(0, 0)), conv("b", "2", (3, 3))]
    assert_untouched(parallel_convolutions, network(*branches, added("add(@0,@1)", "1 2"), shape=(1, 4, 3, 3)))


def test_what_others_see_or_is_no_sum_stays() -> None:
    branches = [conv("a", "1", (3, 3)), conv("b", "2", (3, 3))]
    for text in ("mul(@0,@1)", "sub(@0,@1)", "add(@0,add(@1,@1))", "add(mul(@0,2),@1)"):
        assert_untouched(parallel_convolutions, network(*branches, added(text, "1 2")))
    other = op("pnnx.Output", "other", "1")
    assert_untouched(parallel_convolutions, built(INPUT, *branches, added("add(@0,@1)", "1 2"), OUT, other, _0=SHAPE))


def test_weights_that_are_not_finite_stay() -> None:
    wrong = array(4, 4, 3, 3)
    wrong[0, 0, 0, 0] = np.inf
    broken = op("nn.Conv2d", "a", "0", "1", padding=(1, 1), weight=wrong)
    assert_untouched(parallel_convolutions, network(broken, conv("b", "2", (3, 3)), added("add(@0,@1)", "1 2")))
