"""What depends on no input of the graph, computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

import numpy as np

from engine.errors import RunCancelledError
from engine.expression import List, Literal, Node, format
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.graph.building.inference import computed_outputs
from engine.layers.creation.container import Expression
from engine.passes.support.budget import Budget, work_of
from engine.passes.support.constant_subtrees import folded_subtrees
from engine.passes.support.facts import Facts, is_pure, stored_tensor
from engine.passes.support.rewriting import Rewriter
from engine.passes.support.static_arguments import with_known_arguments
from engine.passes.support.storage import bytes_of, is_small_enough, tensor
from engine.pnnx import Graph, Operator
from engine.stopping import wanted_quick
from engine.tensor import CODES, UNKNOWN, spec_of

_MOST_SOURCES: Final = 64


def constant_folding(graph: RuntimeGraph, before_each: Callable[[], None] | None = None) -> Graph:
    """Compute what is known before a run through the reference layers.

    Tensors become stored ones, Python values parameters of the operators that take them. Random operators stay, and so
    does what would grow too large (support/storage.py) or cost too much (support/budget.py).

    Args:
        before_each: called before every operator; what it raises ends the pass.
    """
    folder = _Folder(graph, before_each)
    for op in wanted_quick(graph.operators):
        folder.follow(op)
    return folder.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constant:
    """A value that is the same in every run; sources are the largest tensors it is made from, name -> bytes."""

    value: object
    sources: dict[str, int]


class _Folder:
    """Follows constants from operator to operator, then stores those that others use."""

    def __init__(self, graph: RuntimeGraph, before_each: Callable[[], None] | None) -> None:
        self._graph = graph
        self._before_each = before_each
        self._facts = Facts(graph)
        self._rewriter = Rewriter(graph)
        self._constants: dict[str, _Constant] = {}
        self._computed: list[RuntimeOperator] = []
        self._rest: list[RuntimeOperator] = []
        stored = (stored_tensor(operand) for op in graph.operators for operand in op.outputs)
        self._budget = Budget(sum(tensor.nbytes for tensor in stored if tensor is not None))

    def follow(self, op: RuntimeOperator) -> None:
        """Compute an operator if all it takes is known."""
        if self._before_each is not None:
            self._before_each()
        known = [self._facts.value(operand) for operand in op.outputs]
        if op.layer is not None and not op.inputs and all(value is not UNKNOWN for value in known):
            self._keep(op, known, {op.name: bytes_of(known)})  # stored already, or a literal
            return
        results = self._results(op, known)
        if results is None:
            self._rest.append(op)
            return
        self._keep(op, results, self._sources(op))
        self._computed.append(op)

    def _keep(self, op: RuntimeOperator, values: list[object], sources: dict[str, int]) -> None:
        for operand, value in zip(op.outputs, values, strict=True):
            self._constants[operand.name] = _Constant(value=value, sources=sources)

    def _results(self, op: RuntimeOperator, known: list[object]) -> list[object] | None:
        """The values of an operator's outputs, None if they are not constant or too large."""
        if not is_pure(op) or any(operand.name in self._graph.source.complex32 for operand in op.outputs):
            return None
        if all(value is not UNKNOWN for value in known):
            return known
        found = [self._constants.get(operand.name) for operand in op.inputs]
        constants = [constant.value for constant in found if constant is not None]
        announced = [operand.value for operand in op.outputs]
        if len(constants) < len(found) or not self._fits(op, announced):
            return None
        work = work_of(op)
        if work is None or not self._budget.spend(work, bytes_of(announced)):
            return None
        results = _compute(op, constants)
        return results if results is not None and self._fits(op, [spec_of(result) for result in results]) else None

    def _fits(self, op: RuntimeOperator, specs: list[object]) -> bool:
        return is_small_enough(bytes_of(specs), sum(self._sources(op).values()))

    def _sources(self, op: RuntimeOperator) -> dict[str, int]:
        constants = (self._constants.get(operand.name) for operand in op.inputs)
        sources = {key: size for each in constants if each is not None for key, size in each.sources.items()}
        # A long sum of constants must not remember all of them at each of its terms.
        if len(sources) <= _MOST_SOURCES:
            return sources
        return dict(nlargest(_MOST_SOURCES, sources.items(), key=lambda item: item[1]))

    def result(self) -> Graph:
        """The graph with the constants that are used stored in it."""
        needed = {operand.name for op in self._rest for operand in self._rewritten(op)}
        for op in reversed(self._computed):
            stored_ones = [self._stored(operand) for operand in op.outputs if operand.name in needed]
            new = [each for each in stored_ones if each is not None]
            if len(new) == len(stored_ones):
                self._rewriter.replace(op, *new)
            else:  # a value no file can hold: the operator stays, and needs what it takes
                needed.update(operand.name for operand in op.inputs)
        return self._rewriter.result()

    def _rewritten(self, op: RuntimeOperator) -> list[RuntimeOperand]:
        """Rewrite an operator that is not constant itself; the operands it still takes."""
        new = with_known_arguments(op, self._facts)
        if new is op.source and isinstance(op.definition, Expression):
            values = {index: c.value for index, o in enumerate(op.inputs) if (c := self._constants.get(o.name))}
            new = folded_subtrees(op, op.definition, values, self._rewriter, self._budget)
        elif new is not op.source:
            self._rewriter.replace(op, new)
        taken = set(new.inputs)
        return [operand for operand in op.inputs if operand.name in taken]

    def _stored(self, operand: RuntimeOperand) -> Operator | None:
        """An operator that makes a constant."""
        value = self._constants[operand.name].value
        name = self._rewriter.fresh(f"pnnx_fold_{operand.name}")
        if isinstance(value, np.ndarray):
            is_storable = value.dtype in CODES and type(value) is np.ndarray  # a quantised one knows its scale
            return tensor(name, value, operand.name) if is_storable else None
        node = _literal(value)
        return None if node is None else Operator("pnnx.Expression", name, (), (operand.name,), {"expr": format(node)})


def _compute(op: RuntimeOperator, inputs: list[object]) -> list[object] | None:
    if op.layer is None:
        return None
    try:
        with np.errstate(all="ignore"):
            results = computed_outputs(op, op.layer.forward(inputs))
    except RunCancelledError:
        raise
    except Exception:  # whatever it is, a run shows it, at its place
        return None
    return [np.asarray(result) if isinstance(result, np.generic) else result for result in results]


def _literal(value: object) -> Node | None:
    """A Python value as an expression, None where the language cannot say it."""
    items = value if isinstance(value, list) else [value]
    nodes = tuple(Literal(item) for item in items if item is None or isinstance(item, (bool, int, float)))
    if len(nodes) < len(items):
        return None
    return List(nodes) if isinstance(value, list) else nodes[0]
