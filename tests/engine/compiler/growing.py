"""Graphs that grow by random operators that fit, with all that is needed to run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

import numpy as np

from engine import EngineError, RuntimeGraph, TensorSpec
from engine.pnnx import Graph, Operator
from engine.tensor import Array
from tests.engine.graph.build import F32, op

T = TypeVar("T")

I64 = np.dtype(np.int64)
CHANNELS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 17, 24, 29, 32, 33, 48)
SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17)
# Elements beyond which nothing grows.
LARGEST = 60_000


@dataclass(frozen=True)
class Tensor:
    """Result of an operator.

    Args:
        is_exact: whether machine code must give the very bits of the reference.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    is_exact: bool

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype == F32

    @property
    def is_image(self) -> bool:
        return self.is_float and self.rank == 4


@dataclass(frozen=True)
class Maker:
    """A way to grow.

    Args:
        make: operators to add, None where nothing fits.
        is_exact: whether its results are the very bits of the reference where its operands are.
        is_discrete: whether a small change of an operand may change its results much.
    """

    make: Callable[[Growing], list[Operator] | None]
    is_exact: bool = False
    is_discrete: bool = False


class Growing:
    """A graph that grows.

    Args:
        random: decides everything.
    """

    def __init__(self, random: Random, inputs: Sequence[TensorSpec]) -> None:
        self.random = random
        self.operators: list[Operator] = []
        self.annotations: dict[str, TensorSpec] = {}
        self.tensors: list[Tensor] = []
        self.is_discrete = False
        self._count = 0
        for spec in inputs:
            name = self.name()
            self.operators.append(op("pnnx.Input", f"pnnx_input_{name}", "", name))
            self.annotations[name] = spec
            self.tensors.append(Tensor(name, tuple(dim or 0 for dim in spec.shape), spec.dtype, True))
        self.inputs = list(self.tensors)

    def name(self) -> str:
        self._count += 1
        return str(self._count - 1)

    def one_of(self, items: Sequence[T]) -> T:
        return items[self.random.randrange(len(items))]

    def chance(self, share: float) -> bool:
        return self.random.randrange(100) < 100 * share

    def between(self, low: int, high: int) -> int:
        """Return a random number, both ends included."""
        return self.random.randint(low, max(low, high))

    def numbers(self, *shape: int) -> Array:
        """Small float32 numbers."""
        return np.random.default_rng(self._count).standard_normal(shape).astype(F32)

    def pick(self, fits: Callable[[Tensor], bool] = lambda tensor: tensor.is_float) -> Tensor | None:
        """Return a random tensor, more likely a recent one."""
        found = [each for each in self.tensors if fits(each) and (each.is_exact or not self.is_discrete)]
        if not found:
            return None
        return self.one_of(found[-4:]) if self.chance(0.75) else self.one_of(found)

    def grow(self, maker: Maker) -> bool:
        """Add what a maker makes; whether the graph took it."""
        self.is_discrete = maker.is_discrete
        new = maker.make(self)
        made = None if new is None else self._infer(new)
        if new is None or made is None:
            return False
        used = {name for each in new for name in each.inputs}
        is_exact = maker.is_exact and all(each.is_exact for each in self.tensors if each.name in used)
        for name, spec in made:
            self.tensors.append(Tensor(name, tuple(dim or 0 for dim in spec.shape), spec.dtype, is_exact))
        self.operators += new
        return True

    def _infer(self, new: list[Operator]) -> list[tuple[str, TensorSpec]] | None:
        """Return the results of new operators; None if they are refused, or too large."""
        known = {each.name: TensorSpec(each.shape, each.dtype) for each in self.tensors}
        outside = dict.fromkeys(name for each in new for name in each.inputs if name in known)
        inputs = [op("pnnx.Input", f"pnnx_input_{k}", "", name) for k, name in enumerate(outside)]
        names = [name for each in new for name in each.outputs]
        ends = [op("pnnx.Output", f"out_{name}", name) for name in names]
        part = Graph([*inputs, *new, *ends], {name: known[name] for name in outside})
        graph = RuntimeGraph.from_source(part)
        try:
            graph.build()
        except EngineError:
            return None
        specs = [graph.operands[name].spec for name in names]
        if any(spec is None or not spec.is_static or not 0 < (spec.size or 0) <= LARGEST for spec in specs):
            return None
        return [(name, spec) for name, spec in zip(names, specs, strict=True) if spec is not None]

    def finished(self, outputs: Sequence[Tensor], is_tuple: bool = False) -> RuntimeGraph:
        """Return the graph, built, with these outputs."""
        ends = [op("pnnx.Output", f"pnnx_output_{k}", each.name) for k, each in enumerate(outputs)]
        if is_tuple:
            name = self.name()
            ends = [
                op("prim::TupleConstruct", "tuple", " ".join(each.name for each in outputs), name),
                op("pnnx.Output", "pnnx_output_0", name),
            ]
        graph = RuntimeGraph.from_source(Graph([*self.operators, *ends], self.annotations))
        graph.build()
        return graph

    def feed(self, special: Iterable[float] = ()) -> list[Array]:
        """Inputs for a run, some of their elements ``special``."""
        source = np.random.default_rng(self._count)
        return [_values(source, each, list(special)) for each in self.inputs]


def _values(source: np.random.Generator, tensor: Tensor, special: list[float]) -> Array:
    if tensor.dtype == I64:
        return source.integers(0, 5, tensor.shape)
    if tensor.dtype == np.bool_:
        return source.integers(0, 2, tensor.shape).astype(np.bool_)
    values = source.standard_normal(tensor.shape).astype(tensor.dtype)
    if special:
        chosen = source.integers(0, 4, tensor.shape) == 0
        values = np.where(chosen, source.choice(np.array(special, tensor.dtype), tensor.shape), values)
    return values


def random_inputs(random: Random) -> list[TensorSpec]:
    """Return one to three inputs: images or volumes first, now and then rows, signals, integers or booleans."""
    batch = random.choice((1, 1, 1, 2, 3))
    planes = (random.randint(1, 6),) if random.randrange(8) == 0 else ()
    image = (batch, random.choice(CHANNELS), *planes, random.choice(SIZES), random.choice(SIZES))
    specs = [TensorSpec(image, F32)]
    for _ in range(random.randrange(3)):
        kind = random.randrange(7)
        if kind < 2:
            specs.append(TensorSpec(image, F32))
        elif kind == 2:
            specs.append(TensorSpec((batch, random.choice(CHANNELS), random.choice(SIZES)), F32))
        elif kind == 3:
            specs.append(TensorSpec((batch, random.choice(CHANNELS)), F32))
        elif kind == 4:
            specs.append(TensorSpec((batch, random.choice(SIZES)), I64))
        elif kind == 5:
            specs.append(TensorSpec(image, np.dtype(np.bool_)))
        else:
            specs.append(TensorSpec((batch, random.choice(SIZES), random.choice(CHANNELS)), np.dtype(np.float64)))
    random.shuffle(specs)
    return specs
