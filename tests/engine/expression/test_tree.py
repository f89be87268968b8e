"""Nodes are values: equal, hashable, immutable."""

from __future__ import annotations

import math
import pickle
from dataclasses import FrozenInstanceError
from itertools import combinations

import pytest

from engine.errors import ExpressionError
from engine.expression import Call, Input, List, Literal, Node, evaluate, parse

DIFFERENT: list[Node] = [
    *(Literal(value) for value in (None, True, 1, 1.0, 1 + 0j, complex(1, -0.0), False, 0, 0.0, -0.0, "None", "1")),
    Literal(math.nan),
    Input(1),
    Input(10),
    Call("add", (Input(0), Input(1))),
    Call("add", (Input(1), Input(0))),
    Call("sub", (Input(0), Input(1))),
    Call("neg", (Call("neg", (Input(0),)),)),
    Call("neg", (Call("abs", (Input(0),)),)),
    List((Input(0), Input(1))),
    List((List((Input(0),)), Input(1))),
    List((List((Input(0), Input(1))),)),
    List(()),
]


@pytest.mark.parametrize(("one", "other"), list(combinations(DIFFERENT, 2)))
def test_trees_that_print_differently_are_not_equal(one: Node, other: Node) -> None:
    assert one != other


@pytest.mark.parametrize("tree", DIFFERENT, ids=repr)
def test_copies_are_equal_and_hash_alike(tree: Node) -> None:
    copy = pickle.loads(pickle.dumps(tree))
    assert copy == tree
    assert hash(copy) == hash(tree)


def test_nan_equals_nan() -> None:
    assert Literal(math.nan) == Literal(-float("nan"))


def test_nodes_equal_nothing_else() -> None:
    assert Literal(1) != 1


def test_nodes_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Input(0).index = 1  # type: ignore[misc]


def test_equal_texts_share_one_tree() -> None:
    assert parse("add(@0,1)") is parse("add(@0,1)")


@pytest.mark.parametrize("tree", [Call("flor", (Input(0),)), Call("add", (Input(0),))])
def test_calls_outside_the_language_are_refused_when_run(tree: Node) -> None:
    with pytest.raises(ExpressionError, match="unknown function"):
        evaluate(tree, [1])
