"""Constant folding: operators, arguments and parts of expressions that depend on no input are computed once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as with_fields
from heapq import nlargest
from typing import Final

import numpy as np

from engine.cancellation import cancellable_quick
from engine.errors import EngineError, RunCancelledError
from engine.expression import Call, Input, List, Literal, Node, evaluate, format, infer, inputs, peak_bytes, postorder
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.graph.building.inference import computed_outputs
from engine.layers import Signature
from engine.layers.creation.container import Expression
from engine.passes.support.algebra import explicit, reading, rebuilt, replaced, simplified
from engine.passes.support.budget import SCRATCH, Budget, work_of, work_of_calls
from engine.passes.support.facts import Facts, is_pure, stored_tensor
from engine.passes.support.rewriting import Rewriter, bytes_of, is_small_enough, tensor
from engine.pnnx import Graph, Operator, Parameter
from engine.tensor import CODES, UNKNOWN, Array, TensorSpec, known_value, spec_of


def with_known_arguments(op: RuntimeOperator, facts: Facts) -> Operator:
    """Return the operator with known operands that are Python values as parameters; itself if there are none."""
    if op.layer is None or not is_pure(op):
        return op.source
    if isinstance(op.definition, Expression):
        return _shorter(op, op.definition, facts)
    found = {index: entry for index in range(len(op.inputs)) if (entry := _parameter(op, index, facts)) is not None}
    if not found:
        return op.source
    kept = [index for index in range(len(op.inputs)) if index not in found]
    return with_fields(
        op.source,
        inputs=tuple(op.source.inputs[index] for index in kept),
        labels=tuple(op.source.labels[index] for index in kept),
        params={**op.source.params, **dict(found.values())},
    )


def _parameter(op: RuntimeOperator, index: int, facts: Facts) -> tuple[str, Parameter] | None:
    """Return an input as a parameter, name and value; None if it is unknown or has to stay an operand."""
    value = _without_tensors(facts.known(op.inputs[index]))
    if op.layer is None or value is UNKNOWN or (index == 0 and _needs_first(op.layer.signature)):
        return None
    field = next((name for name, at in op.layer.dynamic.items() if at == index), None)
    if field is not None and _is_parameter(value):
        return field, tuple(value) if isinstance(value, list) else value  # type: ignore[return-value]
    if op.layer.signature.is_variadic:
        return None  # its inputs are identified by their position
    sources = zip(op.layer.signature.operands, op.layer.positional, strict=True)
    operand = next((name for name, source in sources if source.index == index), None)
    is_number = isinstance(value, (int, float))
    return (operand, value) if operand is not None and is_number else None  # type: ignore[return-value]


def _without_tensors(value: object) -> object:
    """Return a known list with its tensors of one element as numbers, as layers accept them."""
    if not isinstance(value, list):
        return value
    items = [known_value(item) for item in value]
    return [item.item() if isinstance(item, np.ndarray) and item.size == 1 else item for item in items]


def _needs_first(signature: Signature) -> bool:
    """Return whether the first input must stay: the tensor of a method, or one whose annotation is used."""
    return signature.type.startswith("Tensor.") or signature.annotations_field is not None


def _is_parameter(value: object) -> bool:
    """Return whether the file can hold a value as a parameter and restore it."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(item, (bool, int, float)) for item in value)
    return value is None or isinstance(value, (bool, int, float))


def _shorter(op: RuntimeOperator, layer: Expression, facts: Facts) -> Operator:
    """Return an expression with known values, sizes included, as literals; operands it does not read are dropped."""
    known = [facts.known(operand) for operand in op.inputs]
    tree = explicit(layer.tree, known, op.outputs[0].annotation)
    tree = simplified(_with_literals(tree, known), known, op.outputs[0].annotation, rules={})
    return op.source if tree == layer.tree else reading(op.source, tree, op.source.inputs)


def _with_literals(root: Node, known: list[object]) -> Node:
    done: dict[Node, Node] = {}
    for node in postorder(root):
        value = known[node.index] if isinstance(node, Input) else None
        is_number = isinstance(value, (bool, int, float))
        done[node] = Literal(value) if is_number else rebuilt(node, [done[child] for child in node.children])  # type: ignore[arg-type]
    return done[root]


def folded_subtrees(
    op: RuntimeOperator, layer: Expression, values: Mapping[int, object], rewriter: Rewriter, budget: Budget
) -> Operator:
    """Return the expression with the calls computed that read only constants; itself if there are none.

    Args:
        values: index of an input -> its value, for inputs that are the same in every run.
        rewriter: takes the new operators.
        budget: of the constants of the graph.
    """
    new: list[Operator] = []
    others: dict[Node, Node] = {}
    operands = [values.get(index) for index in range(max(values, default=-1) + 1)]
    for call in _constant_calls(layer.tree, values):
        value = _value(call, operands, budget)
        if value is not None:
            name = rewriter.fresh(f"pnnx_fold_{op.name}")
            rewriter.annotate(name, TensorSpec(value.shape, value.dtype))
            others[call] = Input(len(op.inputs) + len(new))
            new.append(tensor(name, value))
    if not new:
        return op.source
    names = (*op.source.inputs, *(each.name for each in new))
    shorter = reading(op.source, replaced(layer.tree, others), names)
    rewriter.replace(op, *new, shorter)
    return shorter


def _constant_calls(root: Node, values: Mapping[int, object]) -> list[Node]:
    """Return the largest calls below the root that read only constants."""
    found: dict[Node, None] = {}
    reads, is_constant = dict[Node, bool](), dict[Node, bool]()
    for node in postorder(root):
        reads[node] = isinstance(node, Input) or any(reads[child] for child in node.children)
        below = all(is_constant[child] for child in node.children)
        is_constant[node] = node.index in values if isinstance(node, Input) else below
    pending = list(root.children)
    while pending:
        node = pending.pop()
        if isinstance(node, Call) and reads[node] and is_constant[node]:
            found[node] = None
        else:
            pending.extend(node.children)
    return list(found)


def _value(call: Node, operands: Sequence[object], budget: Budget) -> Array | None:
    """Return the value of a call if it is a tensor that can be stored and is not too expensive."""
    made_from = bytes_of([operands[index] for index in inputs(call)])
    try:
        made = bytes_of(infer(call, operands))
        if not is_small_enough(made, made_from) or peak_bytes(call, operands) > SCRATCH + made:
            return None
        if not budget.spend(work_of_calls(call, made_from + made), made):
            return None
        value = evaluate(call, operands)
    except EngineError:  # the run will report it
        return None
    return value if isinstance(value, np.ndarray) and value.dtype in CODES else None


_MOST_SOURCES: Final = 64


def constant_folding(graph: RuntimeGraph, before_each: Callable[[], None] | None = None) -> Graph:
    """Compute values that are known before a run through the reference layers.

    Tensors become stored ones, Python values parameters of their users. Random operators stay, and so do values that
    would become too large (support/rewriting.py) or too expensive (support/budget.py).

    Args:
        before_each: called before every operator; an exception of it ends the pass.
    """
    folder = _Folder(graph, before_each)
    for op in cancellable_quick(graph.operators):
        folder.follow(op)
    return folder.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Constant:
    """A value that is the same in every run; sources are the largest tensors it is made from, name -> bytes."""

    value: object
    sources: dict[str, int]


class _Folder:
    """Visitor that follows constants from operator to operator, then stores those with users."""

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
        """Compute an operator if all its operands are known."""
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
        """Return the values of an operator's outputs; None if they are not constant or too large."""
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
        # A long sum of constants must not keep all of them for each of its terms.
        if len(sources) <= _MOST_SOURCES:
            return sources
        return dict(nlargest(_MOST_SOURCES, sources.items(), key=lambda item: item[1]))

    def result(self) -> Graph:
        """Return the graph with the used constants stored in it."""
        needed = {operand.name for op in self._rest for operand in self._rewritten(op)}
        for op in reversed(self._computed):
            stored_ones = [self._stored(operand) for operand in op.outputs if operand.name in needed]
            new = [each for each in stored_ones if each is not None]
            if len(new) == len(stored_ones):
                self._rewriter.replace(op, *new)
            else:  # a value that no file can hold: the operator and its operands stay
                needed.update(operand.name for operand in op.inputs)
        return self._rewriter.result()

    def _rewritten(self, op: RuntimeOperator) -> list[RuntimeOperand]:
        """Rewrite an operator that is not constant itself; return its remaining operands."""
        new = with_known_arguments(op, self._facts)
        if new is op.source and isinstance(op.definition, Expression):
            values = {index: c.value for index, o in enumerate(op.inputs) if (c := self._constants.get(o.name))}
            new = folded_subtrees(op, op.definition, values, self._rewriter, self._budget)
        elif new is not op.source:
            self._rewriter.replace(op, new)
        taken = set(new.inputs)
        return [operand for operand in op.inputs if operand.name in taken]

    def _stored(self, operand: RuntimeOperand) -> Operator | None:
        """Return an operator that makes a constant."""
        value = self._constants[operand.name].value
        name = self._rewriter.fresh(f"pnnx_fold_{operand.name}")
        if isinstance(value, np.ndarray):
            is_storable = value.dtype in CODES and type(value) is np.ndarray  # a quantised array has a scale
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
    except Exception:  # whatever it is, a run reports it at the operator
        return None
    return [np.asarray(result) if isinstance(result, np.generic) else result for result in results]


def _literal(value: object) -> Node | None:
    """Return a Python value as an expression; None if the language cannot express it."""
    items = value if isinstance(value, list) else [value]
    nodes = tuple(Literal(item) for item in items if item is None or isinstance(item, (bool, int, float)))
    if len(nodes) < len(items):
        return None
    return List(nodes) if isinstance(value, list) else nodes[0]
