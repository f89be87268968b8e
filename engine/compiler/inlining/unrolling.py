"""Loops, scans and maps written out: the turns of a body one after the other, states handed on by name.

What turns give besides is stacked by the operator that says so; the number of a turn is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.inlining.splice import Splice
from engine.graph import RuntimeOperator
from engine.layers.onnx.control.control import Loop, Scan, SequenceMap
from engine.layers.operands.precision import INT64

_TRUE = np.array(True)


def unroll_loop(splice: Splice, op: RuntimeOperator, turns: int) -> None:
    """Write the turns of a loop."""
    loop = op.definition
    assert isinstance(loop, Loop)
    body = loop.body("body")
    _, _, states, captured = loop.parts(splice.names(each.name for each in op.inputs))
    stacks: list[list[str]] = [[] for _ in range(loop.count - loop.states)]
    for turn in range(turns):
        given = [splice.constant(np.array(turn, INT64)), splice.constant(_TRUE), *states, *captured]
        _, *results = splice.turn(f"{op.name}/{turn}", body, given)
        states = results[: loop.states]
        for stack, name in zip(stacks, results[loop.states :], strict=True):
            stack.append(name)
    outputs = [each.name for each in op.outputs]
    for outer, name in zip(outputs, states, strict=False):
        splice.stand_for(outer, name)
    for k, (outer, stack) in enumerate(zip(outputs[loop.states :], stacks, strict=True)):
        if stack:
            splice.make("torch.stack", op.name, stack, outer, params={"dim": 0})
        else:
            splice.stand_for(outer, splice.constant(loop.nothing(k)))


def unroll_scan(splice: Splice, op: RuntimeOperator, axes: Sequence[int], length: int) -> None:
    """Write the turns of a scan.

    Args:
        axes: along which its inputs are cut.
    """
    scan = op.definition
    assert isinstance(scan, Scan)
    body = scan.body("body")
    states, scanned, captured = scan.parts(splice.names(each.name for each in op.inputs))
    stacks: list[list[str]] = [[] for _ in range(scan.count - scan.states)]
    for turn in range(length):
        places = (scan.place(k, turn, length) for k in range(len(scanned)))
        slices = [
            cut(splice, f"{op.name}/{turn}", name, axis, place, None)
            for name, axis, place in zip(scanned, axes, places, strict=True)
        ]
        results = splice.turn(f"{op.name}/{turn}", body, [*states, *slices, *captured])
        states = results[: scan.states]
        for stack, name in zip(stacks, results[scan.states :], strict=True):
            stack.append(name)
    outputs = [each.name for each in op.outputs]
    for outer, name in zip(outputs, states, strict=False):
        splice.stand_for(outer, name)
    for k, (outer, stack) in enumerate(zip(outputs[scan.states :], stacks, strict=True)):
        axis, is_backwards = scan.stacking(k)
        if stack:
            splice.make("torch.stack", op.name, stack[::-1] if is_backwards else stack, outer, params={"dim": axis})
        else:
            splice.stand_for(outer, splice.constant(scan.nothing(k)))


def unroll_map(splice: Splice, op: RuntimeOperator, columns: Sequence[Sequence[str] | str]) -> list[list[str]]:
    """Write the turns of a map, and return the items of each of its results.

    Args:
        columns: for each of its own operands the names of the items, or its name where every turn takes it whole.
    """
    layer = op.definition
    assert isinstance(layer, SequenceMap)
    body, captured = layer.body("body"), splice.names(each.name for each in op.inputs[layer.inputs :])
    results: list[list[str]] = [[] for _ in op.outputs]
    for turn in range(len(columns[0])):
        given = [each if isinstance(each, str) else each[turn] for each in columns]
        for column, name in zip(results, splice.turn(f"{op.name}/{turn}", body, [*given, *captured]), strict=True):
            column.append(name)
    for outer, column in zip(op.outputs, results, strict=True):
        splice.make("prim::ListConstruct", op.name, column, outer.name)
    return results


def cut(splice: Splice, prefix: str, operand: str, axis: int, start: int, end: int | None) -> str:
    """Write the part of an operand from a place to another, or without the axis what is at the place."""
    if end is None:
        params = {"dims": (axis,), "selects": (start,)}
    else:
        params = {"dims": (axis,), "starts": (start,), "ends": (end,), "steps": (1,)}
    return splice.make("Tensor.slice", prefix, [operand], params=params)
