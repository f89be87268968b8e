"""Random ONNX graphs whose tensors often have no elements: slices, splits and sums of nothing, joined again."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from tests.engine.onnx_files.models import model, node, value

Shape = tuple[int, ...]
Tensor = tuple[str, Shape]


@dataclass
class Growing:
    """A graph that grows by one operator at a time."""

    chance: random.Random
    tensors: list[Tensor] = field(default_factory=list)
    nodes: list[Any] = field(default_factory=list)
    weights: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def constant(self, *numbers: Any, dtype: type = np.int64) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.array(numbers, dtype)
        return name

    def filled(self, *shape: int) -> str:
        name = f"c{len(self.weights)}"
        self.weights[name] = np.random.default_rng(len(self.weights)).random(shape, np.float32) + np.float32(0.5)
        return name

    def add(self, type: str, inputs: list[str], *shapes: Shape, **attributes: Any) -> None:
        names = [f"{type}{len(self.nodes)}_{k}" for k in range(len(shapes))]
        self.nodes.append(node(type, inputs, names, **attributes))
        self.tensors.extend(zip(names, shapes, strict=True))


def _with(shape: Shape, axis: int, size: int) -> Shape:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _map(g: Growing, x: str, shape: Shape) -> None:
    g.add(g.chance.choice(("Relu", "Neg", "Identity", "Tanh")), [x], shape)


def _slice(g: Growing, x: str, shape: Shape) -> None:
    axis = g.chance.randrange(len(shape))
    size = shape[axis]
    first, end = g.chance.randint(0, size + 1), g.chance.randint(0, size + 1)
    left = len(range(*slice(first, end).indices(size)))
    g.add("Slice", [x, g.constant(first), g.constant(end), g.constant(axis)], _with(shape, axis, left))


def _split(g: Growing, x: str, shape: Shape) -> None:
    axis = g.chance.randrange(len(shape))
    first = g.chance.randint(0, shape[axis])
    second = g.chance.randint(0, shape[axis] - first)
    sizes = first, second, shape[axis] - first - second
    g.add("Split", [x, g.constant(*sizes)], *(_with(shape, axis, size) for size in sizes), axis=axis)


def _concat(g: Growing, x: str, shape: Shape) -> None:
    axis = g.chance.randrange(len(shape))
    others = [
        each for each in g.tensors if len(each[1]) == len(shape) and _with(each[1], axis, 0) == _with(shape, axis, 0)
    ]
    other, its = g.chance.choice(others)
    g.add("Concat", [x, other, x], _with(shape, axis, 2 * shape[axis] + its[axis]), axis=axis)


def _transpose(g: Growing, x: str, shape: Shape) -> None:
    order = g.chance.sample(range(len(shape)), len(shape))
    g.add("Transpose", [x], tuple(shape[k] for k in order), perm=order)


def _flatten(g: Growing, x: str, shape: Shape) -> None:
    axis = g.chance.randint(0, len(shape))
    if all(shape):  # the reference evaluator cannot flatten nothing
        g.add("Flatten", [x], (prod(shape[:axis]), prod(shape[axis:])), axis=axis)


def _reshape(g: Growing, x: str, shape: Shape) -> None:
    sizes = (prod(shape),) if prod(shape) else (3, 0, g.chance.choice((0, 2)))
    g.add("Reshape", [x, g.constant(*sizes)], sizes, allowzero=1)


def _pad(g: Growing, x: str, shape: Shape) -> None:
    pads = [g.chance.randint(0, 2) for _ in range(2 * len(shape))]
    sizes = tuple(size + pads[k] + pads[k + len(shape)] for k, size in enumerate(shape))
    g.add("Pad", [x, g.constant(*pads)], sizes)


def _sum(g: Growing, x: str, shape: Shape) -> None:
    axis = g.chance.randrange(len(shape))
    g.add(g.chance.choice(("ReduceSum", "ReduceProd")), [x, g.constant(axis)], _with(shape, axis, 1))


def _matmul(g: Growing, x: str, shape: Shape) -> None:
    if len(shape) > 1:
        columns = g.chance.choice((0, 1, 3))
        g.add("MatMul", [x, g.filled(shape[-1], columns)], (*shape[:-1], columns))


def _conv(g: Growing, x: str, shape: Shape) -> None:
    if len(shape) == 4 and all(shape[1:]):
        g.add("Conv", [x, g.filled(4, shape[1], 1, 1)], (shape[0], 4, *shape[2:]))


def _softmax(g: Growing, x: str, shape: Shape) -> None:
    if all(shape):  # the reference evaluator refuses to take the largest of nothing
        g.add("Softmax", [x], shape, axis=g.chance.randrange(len(shape)))


def _gather(g: Growing, x: str, shape: Shape) -> None:
    axis = g.chance.randrange(len(shape))
    rows = [g.chance.randrange(shape[axis]) for _ in range(g.chance.randint(0, 3))] if shape[axis] else []
    g.add("Gather", [x, g.constant(*rows)], _with(shape, axis, len(rows)), axis=axis)


def _tile(g: Growing, x: str, shape: Shape) -> None:
    times = [g.chance.choice((0, 1, 1, 2)) for _ in shape]
    g.add("Tile", [x, g.constant(*times)], tuple(a * b for a, b in zip(shape, times, strict=True)))


_OPERATORS: list[Callable[[Growing, str, Shape], None]] = [
    *(_map, _slice, _slice, _split, _split, _concat, _transpose, _flatten),
    *(_reshape, _pad, _sum, _matmul, _conv, _softmax, _gather, _tile),
]


def random_graph(seed: int) -> tuple[Any, dict[str, Any]]:
    """Return a model of up to eight operators that also returns inner tensors, and inputs for it."""
    chance = random.Random(seed)
    g = Growing(chance)
    for name in ("x", "z")[: chance.randint(1, 2)]:
        g.tensors.append((name, tuple(chance.choice((0, 1, 2, 3, 5)) for _ in range(chance.randint(1, 4)))))
    given = list(g.tensors)
    for _ in range(chance.randint(2, 8)):
        x, shape = chance.choice(g.tensors[-4:])
        if 1 <= len(shape) <= 4 and prod(shape) < 4000:
            chance.choice(_OPERATORS)(g, x, shape)
    made = g.tensors[len(given) :]
    if not made:
        g.add("Relu", [given[0][0]], given[0][1])
        made = g.tensors[-1:]
    returned = [made[-1], *chance.sample(made[:-1], min(len(made) - 1, 3))]
    is_dynamic = chance.random() < 0.4
    inputs = [value(name, [f"{name}{k}" if is_dynamic else n for k, n in enumerate(shape)]) for name, shape in given]
    proto = model(g.nodes, inputs, [value(name, None) for name, _ in returned], g.weights, opset=18)
    numbers = np.random.default_rng(seed)
    return proto, {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in given}
