"""Explanation of how a graph became runnable, step by step: init, build, order, propagation, expressions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np

from engine import expression
from engine.errors import EngineError
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.graph.batch.batching import decide
from engine.graph.planning.execution_order import lifetimes, steps
from engine.layers.creation.container import Expression
from engine.session import Session
from engine.tensor import Array, TensorSpec, format_shape


def explain(graph: RuntimeGraph, limit: int = 12) -> str:
    """Return the steps that made a graph runnable, as text for learners.

    Args:
        graph: a built graph.
        limit: number of operators shown in each chapter, at most.

    Raises:
        GraphError: the graph is not built.
    """
    chapters = (_init, _linking, _order, _propagation, _expressions, _plan, _batches)
    return "\n".join(line for chapter in chapters for line in (*chapter(graph, limit), ""))


def _heading(text: str) -> str:
    return f"{text}\n{'─' * len(text)}"


def _cut(shown: int, total: int) -> Iterator[str]:
    if total > shown:
        yield f"  … and {total - shown} more"


def _init(graph: RuntimeGraph, limit: int) -> Iterator[str]:
    source = graph.source
    attributes = [attribute for op in source.operators for attribute in op.attributes.values()]
    yield _heading("init(): NEED_INIT → NEED_BUILD")
    yield f"{len(source.operators)} operators read from the text, {len(source.annotations)} shapes announced by it"
    total = sum(attribute.data.nbytes for attribute in attributes)
    yield f"{len(attributes)} attributes in the archive, {total:,} bytes"
    for op in source.operators[:limit]:
        operands = f"{' '.join(op.inputs) or '·'} → {' '.join(op.outputs) or '·'}"
        yield f"  line {op.line:<4} {op.type:<24} {op.name}  {operands}"
    yield from _cut(limit, len(source.operators))


def _linking(graph: RuntimeGraph, limit: int) -> Iterator[str]:
    yield _heading("build(): operators joined by their operands")
    for operand in list(graph.operands.values())[:limit]:
        users = ", ".join(op.name for op in operand.consumers) or "no operator"
        maker = operand.producer.name if operand.producer is not None else "no operator"
        yield f"  operand {operand.name}: made by {maker}, used by {users}"
    yield from _cut(limit, len(graph.operands))


def _order(graph: RuntimeGraph, limit: int) -> Iterator[str]:
    yield _heading("build(): the order (Kahn: run operators whose operands are all made)")
    for index, (op, ready) in enumerate(steps(graph.operators)):
        if index == limit:
            break
        waiting = ", ".join(each.name for each in islice(ready, 4)) + (" …" if len(ready) > 4 else "")
        yield f"  {index:>3}  {op.name:<28} then ready: {waiting or 'nothing'}"
    yield from _cut(limit, len(graph.operators))


def _propagation(graph: RuntimeGraph, limit: int) -> Iterator[str]:
    yield _heading("build(): shapes and dtypes, from operand to operand")
    for op in graph.operators[:limit]:
        if op.outputs:
            given = ", ".join(_known(operand) for operand in op.inputs) or "the file"
            made = ", ".join(_known(operand) for operand in op.outputs)
            yield f"  {op.type:<24} {given}  →  {made}"
    yield from _cut(limit, len(graph.operators))
    yield from (f"  warning: {warning}" for warning in graph.warnings)
    yield "the graph is COMPLETE"


def _known(operand: RuntimeOperand) -> str:
    return str(operand.value) if isinstance(operand.value, TensorSpec) else repr(operand.value)[:40]


def _expressions(graph: RuntimeGraph, limit: int) -> Iterator[str]:
    found = [op for op in graph.operators if isinstance(op.definition, Expression)]
    yield _heading("expressions: text → tree → value")
    if not found:
        yield "  this graph has none"
    values = _values(graph, found[:limit])
    for op in found[:limit]:
        if isinstance(op.definition, Expression):
            tree = op.definition.tree
            yield f"  {op.name}: {op.definition.expr}"
            yield f"    = {expression.infix(tree, [operand.name for operand in op.inputs])}"
            yield from (f"    {line}" for line in expression.explain(tree).splitlines())
            yield from (f"    {line}" for line in values.get(op.name, ()))
    yield from _cut(limit, len(found))


def _values(graph: RuntimeGraph, operators: Sequence[RuntimeOperator]) -> dict[str, list[str]]:
    """Return the first values of the operands and results of each operator, in a run on ones."""
    wanted = [operand.name for op in operators for operand in (*op.inputs, *op.outputs)]
    try:
        taps = Session(graph, backend="reference").run(_ones(graph), taps=wanted).taps
    except EngineError:
        return {}
    return {op.name: [f"{o.name} = {_first(taps[o.name])}" for o in (*op.inputs, *op.outputs)] for op in operators}


def _ones(graph: RuntimeGraph) -> list[Array]:
    specs = [port.spec for port in graph.inputs]
    return [np.ones([dim or 1 for dim in spec.shape], spec.dtype) for spec in specs if spec is not None]


def _first(value: object) -> str:
    if not isinstance(value, np.ndarray):
        return repr(value)
    flat = value.ravel()[:3]
    more = ", …" if value.size > 3 else ""
    return f"{format_shape(value.shape)} [{', '.join(f'{number:.5g}' for number in flat.tolist())}{more}]"


def _plan(graph: RuntimeGraph, limit: int) -> Iterator[str]:
    yield _heading("the plan: when every value is made and released")
    spans = [each for each in lifetimes(graph.operators) if each.bytes]
    for each in spans[:limit]:
        span = "·" * min(each.start, 40) + "█" * min(each.end - each.start + 1, 40)
        yield f"  operand {each.operand.name:<8} steps {each.start:>3} to {each.end:<3} {each.bytes:>12,} bytes  {span}"
    yield from _cut(limit, len(spans))
    yield f"at most {graph.plan.peak_bytes:,} bytes are alive at once"


_MODES: Final = {"any": "runs as one", "split": "runs item by item", "fixed": "is refused"}


def _batches(graph: RuntimeGraph, limit: int) -> Iterator[str]:
    batching = decide(graph)
    yield _heading("other batches: the axis of the items, followed from operator to operator")
    yield f"  a batch of another size {_MODES[batching.mode]}"
    yield f"  {batching.reason or 'each item of a batch gives the same result as alone'}"
