"""Random graphs of everything passes act on: views, permutations, arithmetic, constants, sizes, lists, weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from engine import EngineError, RuntimeGraph, TensorSpec
from engine.pnnx import Graph, Operator
from tests.engine.graph.build import F32, op

Make = Callable[["Growing"], list[Operator]]


class Growing:
    """A graph that grows by operators that fit.

    Args:
        seed: decides everything.
        open_batch: whether the inputs' first dimension is dynamic.
    """

    def __init__(self, seed: int, open_batch: bool) -> None:
        self.random = np.random.default_rng(seed)
        specs = [TensorSpec((None if open_batch else 2, 4, 3), F32), TensorSpec((None if open_batch else 2, 4, 3), F32)]
        self.annotations = {"0": specs[0], "1": specs[1]}
        self.operators = [op("pnnx.Input", f"pnnx_input_{k}", "", str(k)) for k in range(2)]
        self.specs: dict[str, TensorSpec] = dict(self.annotations)
        self._count = 2

    def name(self) -> str:
        self._count += 1
        return str(self._count - 1)

    def pick(self) -> str:
        """An operand, a late one rather than an early one."""
        names = list(self.specs)
        return names[-1 - int(self.random.integers(0, min(4, len(names))))]

    def one_of(self, *items: Any) -> Any:
        return items[int(self.random.integers(len(items)))]

    def grow(self, make: Make) -> None:
        """Add what a maker makes, if the graph takes it."""
        new = make(self)
        used = {name for each in [*self.operators, *new] for name in each.inputs}
        ends = [name for each in [*self.operators, *new] for name in each.outputs if name not in used]
        outputs = [op("pnnx.Output", f"out_{k}", name) for k, name in enumerate(ends)]
        graph = RuntimeGraph.from_source(Graph([*self.operators, *new, *outputs], self.annotations))
        try:
            graph.build()
        except EngineError:
            return
        made = {name: graph.operands[name].spec for each in new for name in each.outputs}
        self.operators += new
        self.specs |= {name: spec for name, spec in made.items() if spec is not None}

    def finished(self) -> RuntimeGraph:
        """The graph, built, with the last few tensors for outputs; the rest may be dead."""
        names = list(self.specs)[-2:]
        outputs = [op("pnnx.Output", f"out_{k}", name) for k, name in enumerate(names)]
        graph = RuntimeGraph.from_source(Graph([*self.operators, *outputs], self.annotations))
        graph.build()
        return graph


def _step(type: str, *choices: dict[str, Any], inputs: int = 1) -> Make:
    def make(g: Growing) -> list[Operator]:
        name = g.name()
        params = g.one_of(*choices) if choices else {}
        return [op(type, f"{type}_{name}", " ".join(g.pick() for _ in range(inputs)), name, **params)]

    return make


def _constant(g: Growing) -> list[Operator]:
    name, shape = g.name(), g.one_of((3,), (4, 1), (1,), (2, 4, 3), (1, 1, 3))
    data = g.random.integers(-2, 3, shape).astype(F32)
    return [op("pnnx.Attribute", f"c{name}", "", name, data=data)]


def _pieces(g: Growing) -> list[Operator]:
    list_, first, second, both = (g.name() for _ in range(4))
    return [
        op("torch.chunk", f"chunk_{list_}", g.pick(), list_, chunks=2, dim=1),
        op("prim::ListUnpack", f"unpack_{first}", list_, f"{first} {second}"),
        op("prim::ListConstruct", f"pack_{both}", f"{second} {first}", both),
        op("torch.cat", f"cat_{both}", both, g.name(), dim=1),
    ]


def _view_by_size(g: Growing) -> list[Operator]:
    size, shape, name, x = g.name(), g.name(), g.name(), g.pick()
    return [
        op("Tensor.size", f"size_{size}", x, size, dim=0),
        op("pnnx.Expression", f"shape_{shape}", size, shape, expr=g.one_of("[@0,-1]", "[@0,mul(2,2),-1]")),
        op("Tensor.reshape", f"view_{name}", f"{x} {shape}", name, labels=("input", "shape")),
    ]


def _linear(g: Growing) -> list[Operator]:
    name, x = g.name(), g.pick()
    width = g.specs[x].shape[-1] if g.specs[x].shape else None
    weight = g.random.standard_normal((width or 3, width or 3)).astype(F32) / 2
    return [op("nn.Linear", f"fc_{name}", x, name, bias=False, weight=weight)]


def _norm(g: Growing) -> list[Operator]:
    name, x = g.name(), g.pick()
    channels = g.specs[x].shape[1] if g.specs[x].rank > 1 else None
    given = {key: g.random.uniform(0.5, 1.5, channels or 4).astype(F32) for key in ("running_mean", "running_var")}
    return [op("nn.BatchNorm1d", f"bn_{name}", x, name, affine=False, eps=1e-5, **given)]


EXACT: tuple[Make, ...] = (
    _step("nn.ReLU"),
    _step("nn.Dropout"),
    _step("Tensor.clone"),
    _step("torch.transpose", {"dim0": 0, "dim1": 1}, {"dim0": -1, "dim1": -2}, {"dim0": 1, "dim1": 1}),
    _step("Tensor.permute", {"dims": (2, 0, 1)}, {"dims": (0, 2, 1)}, {"dims": (1, 0)}, {"dims": (0, 1, 2)}),
    _step("Tensor.reshape", {"shape": (-1,)}, {"shape": (-1, 3)}, {"shape": (-1, 4, 3)}, {"shape": (-1, 12)}),
    _step("torch.flatten", {"start_dim": 1, "end_dim": -1}, {"start_dim": 0, "end_dim": 1}),
    _step("torch.unsqueeze", {"dim": 0}, {"dim": 1}, {"dim": -1}),
    _step("torch.squeeze", {"dim": 0}, {"dim": 1}, {"dim": -1}),
    _step("Tensor.slice", {"dim": 1, "start": 0, "end": 2147483647, "step": 1}, {"dim": 1, "start": 1, "end": 3}),
    _step("pnnx.Expression", {"expr": "mul(@0,0.5)"}, {"expr": "div(@0,1)"}, {"expr": "neg(neg(@0))"}),
    _step("pnnx.Expression", {"expr": "add(@0,@1)"}, {"expr": "maximum(@0,mul(@1,0.25))"}, inputs=2),
    _step("torch.add", {}, {"alpha": -1}, inputs=2),
    _step("torch.cat", {"dim": 0}, {"dim": -1}, inputs=2),
    _step("torch.cat", {"dim": 0}),
    _step("torch.stack", {"dim": 1}),
    _step("F.pad", {"pad": (0, 0), "mode": "constant"}, {"pad": (1, 0), "mode": "constant"}),
    _constant,
    _pieces,
    _view_by_size,
)

WEIGHTED: tuple[Make, ...] = (
    _linear,
    _norm,
    _norm,
    _step("pnnx.Expression", {"expr": "mul(@0,0.5)"}, {"expr": "add(@0,3)"}),
    _step("nn.ReLU"),
    _step("torch.transpose", {"dim0": 1, "dim1": 2}),
    _step("torch.flatten", {"start_dim": 0, "end_dim": 1}),
)


def random_graph(seed: int, makers: tuple[Make, ...], open_batch: bool = False, steps: int = 14) -> RuntimeGraph:
    growing = Growing(seed, open_batch)
    for _ in range(steps):
        growing.grow(growing.one_of(*makers))
    return growing.finished()
