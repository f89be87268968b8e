"""Branches and loops. Their bodies are subgraphs, which read values of the outer graphs by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.graph.building.subgraphs import Subgraph
from engine.layers.onnx.control import control
from engine.onnx_writing.builder import Graph
from engine.onnx_writing.graph import GraphWriter
from engine.onnx_writing.registry import writes
from engine.onnx_writing.value import Operand, Value, described
from engine.onnx_writing.writer import BOOL, INT64, Writer
from engine.tensor import TensorSpec


@writes(control.If, folds=False, is_exact=True)
def branch(to: Writer, layer: control.If, condition: Operand, *captured: Operand) -> Any:
    bodies = {
        name: _body(to, layer.subgraph(name), (), layer.captured(name == "then_branch", captured))
        for name in ("then_branch", "else_branch")
    }
    dtypes = [each.dtype for each in bodies["then_branch"].outputs]
    if dtypes != [each.dtype for each in bodies["else_branch"].outputs]:
        to.refuse("the branches have results of different dtypes")
    return layer.results(to.ops("If", [to.tensor(condition, BOOL)], dtypes, **bodies))


@writes(control.Loop, folds=False, is_exact=True)
def loop(to: Writer, layer: control.Loop, *operands: Operand) -> Any:
    count, condition, states, captured = layer.parts(operands)
    body = _repeated(to, layer, operands, captured)
    limits = [None if count is None else to.tensor(count, INT64), None if condition is None else to.tensor(condition)]
    dtypes = [each.dtype for each in body.outputs[1:]]
    return layer.results(to.ops("Loop", [*limits, *map(to.tensor, states)], dtypes, body=body))


@writes(control.Scan, folds=False, is_exact=True)
def scan(to: Writer, layer: control.Scan, *operands: Operand) -> Any:
    states, scanned, captured = layer.parts(operands)
    body = _repeated(to, layer, operands, captured)
    names = ("input_axes", "output_axes", "input_directions", "output_directions")
    attributes = {f"scan_{name}": list(getattr(layer, name)) or None for name in names}
    dtypes = [each.dtype for each in body.outputs]
    given = [to.tensor(each) for each in (*states, *scanned)]
    return layer.results(to.ops("Scan", given, dtypes, body=body, num_scan_inputs=layer.inputs, **attributes))


def _repeated(to: Writer, layer: control.Stacking, operands: Sequence[Operand], captured: Sequence[Operand]) -> Graph:
    """Return the body of a loop."""
    for subgraph, specs in layer.subgraph_inputs([described(each) for each in operands]):
        return _body(to, subgraph, specs[: len(specs) - len(captured)], captured)
    to.refuse("a value that its iterations pass on has no rank and dtype that are known before a run")


def _body(to: Writer, subgraph: Subgraph, own: Sequence[object], captured: Sequence[Operand]) -> Graph:
    """Return the nodes of a subgraph.

    Args:
        own: specs of its inputs, valid in every iteration.
        captured: outer values, which are its further operands.
    """
    outer, scope, to.graph = to.graph, to.scope, Graph()
    try:
        writer = GraphWriter(to)
        for name, spec in zip(subgraph.operands, own, strict=False):
            if not isinstance(spec, TensorSpec):
                to.refuse("a value that its iterations pass on has no rank and dtype that are known before a run")
            writer.values[name] = Value(to, to.fresh(f"{scope}/{name}"), spec.dtype, spec.shape)
        to.graph.inputs = list(writer.values.values())
        writer.values.update(zip(subgraph.operands[len(own) :], captured, strict=True))
        writer.write(subgraph.operators)
        to.scope = scope
        for name in subgraph.results:
            to.graph.outputs.append(_result(to, writer.values[name]))
        return to.graph
    finally:
        to.graph, to.scope = outer, scope


def _result(to: Writer, operand: Operand) -> Value:
    """Return a result of the current graph; each must be made by a node of its own."""
    value = to.tensor(operand)
    taken = {each.name for each in to.graph.outputs}
    is_own = to.producer(value) is not None and value.name not in taken
    return value if is_own else to.op("Identity", value)
