"""A graph that is lowered for one shape after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import engine
from engine.compiler.assembly.generation import make_blueprint
from engine.compiler.assembly.objects import Made as Code
from engine.compiler.blueprint import Blueprint
from engine.compiler.codegen.host import Host, detect
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.choosing import TakingMade, Wanted, take_first
from engine.compiler.lowering.endings import Endings
from engine.compiler.lowering.recipes import Recipes
from engine.compiler.lowering.remembered import Remembered
from engine.compiler.lowering.steps import Made
from engine.compiler.weights import Weights
from engine.graph.operator import RuntimeOperator
from engine.graph.waists import waists_of
from engine.passes import optimise
from engine.tensor import TensorSpec


class Counting(Recipes):
    """Counts the rules that are asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def made(self, lowering: Lowering, op: RuntimeOperator, make: Callable[[], Made]) -> Made:
        def counted() -> Made:
            self.asked.append(op.name)
            return make()

        return super().made(lowering, op, counted)


class Lowered:
    """A graph, and what was found out about it in lowerings so far.

    Args:
        host: that it is lowered for; None for this one.

    Attributes:
        lowering: the last.
        code: what there is.
    """

    def __init__(self, graph: engine.RuntimeGraph, host: Host | None = None) -> None:
        self._graph = optimise(graph)[0]
        self._weights, self._remembered, self._host = Weights(), Remembered(), host or detect()
        self._inputs, self._outputs = (
            [port.operand for port in ports] for ports in (self._graph.inputs, self._graph.outputs)
        )
        self.recipes = Counting()
        self.endings = Endings(waists_of(self._graph.operators, self._outputs))
        self.code = Code(self._host)
        self.settle()

    def settle(self, known: object = None, others: Mapping[str, Wanted] | None = None) -> None:
        """From now on so much is known."""
        self._known, self._others = known, others or {}

    def blueprint(
        self, specs: Sequence[TensorSpec], *, recalls: bool = False, ends: bool = False, is_known: bool = True
    ) -> Blueprint:
        """The blueprint for some shapes.

        Args:
            recalls: whether what was made of operators before is made again.
            ends: whether what follows a waist is.
            is_known: whether all code was made before.
        """
        self.recipes.settle(self._known, self.code, self._others)
        self.endings.settle(self._known, self.code, self._others)
        self.lowering = Lowering(
            self._graph.operators,
            self._graph.infer(specs),
            self._inputs,
            self._outputs,
            self._host,
            choose=TakingMade(self.code) if is_known else take_first,
            is_open=True,
            weights=self._weights,
            remembered=self._remembered,
            recipes=self.recipes if recalls else None,
            endings=self.endings if ends else None,
        )
        lower(self.lowering)
        return make_blueprint(self.lowering, weights=self._weights, is_open=True, is_known=is_known)
