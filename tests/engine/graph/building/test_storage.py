"""Strides count in the memory that a view shares with what it is a view of; numpy's views say where that is."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.graph.build import INPUT, built, op

OUTPUT = op("pnnx.Output", "out", "9")


def inputs_of(graph: RuntimeGraph) -> list[str]:
    (strided,) = (each for each in graph.operators if each.type == "torch.as_strided")
    return [each.name for each in strided.inputs]


def strided(source: str, size: tuple[int, ...], stride: tuple[int, ...]) -> Operator:
    return op("torch.as_strided", "s", source, "9", size=size, stride=stride)


def test_a_transposed_tensor_lies_as_before_it_was_transposed() -> None:
    turned = op("torch.transpose", "t", "0", "1", dim0=0, dim1=1)
    net = built(INPUT, turned, strided("1", (2, 2), (3, 1)), OUTPUT, _0=(2, 3), _1=(3, 2), _9=(2, 2))
    assert inputs_of(net) == ["0"]
    (found,) = Session(net, backend="reference").run([np.arange(6, dtype=np.float32).reshape(2, 3)])
    np.testing.assert_array_equal(found, [[0, 1], [3, 4]])


def test_what_is_in_order_is_read_as_the_file_says() -> None:
    flat = op("torch.flatten", "f", "0", "1", start_dim=0, end_dim=-1)
    net = built(INPUT, flat, strided("1", (2, 2), (3, 1)), OUTPUT, _0=(2, 3), _1=(6,), _9=(2, 2))
    assert inputs_of(net) == ["1"]


@pytest.mark.parametrize(
    ("turned", "shapes"),
    [
        (op("torch.transpose", "t", "0", "1", dim0=0, dim1=1), {"_0": (None, 3), "_1": (3, None)}),
        (op("Tensor.permute", "t", "0", "1", dims=(1, 0)), {"_0": (2, 3)}),  # its shape is not announced
        (op("Tensor.permute", "t", "0", "1", dims=(1, 0)), {"_0": (2, 3), "_1": (2, 3)}),  # nor is that its shape
    ],
    ids=["a dynamic size", "an unknown shape", "a different shape"],
)
def test_where_a_view_lies_that_nothing_tells_the_operator_reads_what_it_is_given(
    turned: Operator, shapes: dict[str, tuple[int | None, ...]]
) -> None:
    net = built(INPUT, turned, strided("1", (2, 2), (1, 1)), OUTPUT, **shapes)
    assert inputs_of(net) == ["1"]


@pytest.mark.parametrize("seed", range(60))
def test_any_chain_of_views_is_followed_to_the_memory_they_share(seed: int) -> None:
    chance = random.Random(seed)
    x = np.arange(120, dtype=np.float32).reshape(chance.choice([(2, 3, 4, 5), (8, 15), (4, 1, 30), (2, 2, 30)]))
    view, storage, operators, shapes = x, x, [INPUT], {"_0": x.shape}
    for k in range(chance.randint(1, 5)):
        new, made = _viewed(view, f"{k}" if k else "0", f"{k + 1}", chance)
        storage = storage if np.shares_memory(new, view) else new
        view, shapes[f"_{k + 1}"] = new, new.shape
        operators.append(made)
    size = tuple(chance.randint(1, 3) for _ in range(3))
    stride = tuple(chance.choice([0, 1, 2, 5, 20, 30]) for _ in range(3))
    net = built(*operators, strided(operators[-1].outputs[0], size, stride), OUTPUT, **shapes, _9=size)
    flat = storage.reshape(-1)
    expected = [flat[sum(i * step for i, step in zip(at, stride, strict=True))] for at in np.ndindex(size)]
    for backend in ("reference", "compiled"):
        (found,) = Session(net, backend=backend).run([x])
        np.testing.assert_array_equal(found, np.reshape(expected, size))


def _viewed(array: Array, source: str, target: str, chance: random.Random) -> tuple[Array, Operator]:
    """A view of an array, or a copy where there is none, and the operator that makes it."""
    rank = array.ndim
    kind = chance.choice(["permute", "transpose", "reshape", "reshape", "unsqueeze"])
    if kind == "permute":
        dims = chance.sample(range(rank), rank)
        return array.transpose(dims), op("Tensor.permute", f"v{target}", source, target, dims=tuple(dims))
    if kind == "transpose":
        dim0, dim1 = chance.randrange(-rank, rank), chance.randrange(-rank, rank)
        turned = op("torch.transpose", f"v{target}", source, target, dim0=dim0, dim1=dim1)
        return array.swapaxes(dim0, dim1), turned
    if kind == "unsqueeze":
        dim = chance.randrange(rank)
        return np.expand_dims(array, dim), op("torch.unsqueeze", f"v{target}", source, target, dim=dim)
    shape = chance.choice([(6, 20), (120,), (2, 3, 20), (4, 30), (2, 60), (24, 5), (8, 3, 5), (2, 2, 2, 15)])
    return array.reshape(shape), op("Tensor.reshape", f"v{target}", source, target, shape=shape)
