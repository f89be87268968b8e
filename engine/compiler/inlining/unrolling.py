"""Unrolling of loops, scans and maps: iterations one after the other, with states passed by name.

Scan outputs are stacked by an operator; the iteration number is a constant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.compiler.inlining.splice import Splice
from engine.graph import RuntimeOperator
from engine.layers.onnx.control.control import Loop, Scan, SequenceMap, Stacking
from engine.layers.operands.precision import INT64
from engine.tensor import Array

_TRUE = np.array(True)


def unroll_loop(splice: Splice, op: RuntimeOperator, iterations: int, empty: Sequence[Array]) -> None:
    """Write the iterations of a loop.

    Args:
        empty: scan outputs of a loop without iterations.
    """
    loop = op.definition
    assert isinstance(loop, Loop)
    body = loop.subgraph("body")
    _, _, states, captured = loop.parts(splice.names(each.name for each in op.inputs))
    loop_state = _LoopState(loop.count, loop.states, states)
    for iteration in range(iterations):
        given = [splice.constant(np.array(iteration, INT64)), splice.constant(_TRUE), *loop_state.states, *captured]
        loop_state.take(splice.iteration(f"{op.name}/{iteration}", body, given)[1:])
    loop_state.finish(splice, op, loop, empty)


def unroll_scan(splice: Splice, op: RuntimeOperator, axes: Sequence[int], length: int, empty: Sequence[Array]) -> None:
    """Write the iterations of a scan.

    Args:
        axes: along which its inputs are sliced.
        empty: scan outputs of a scan without iterations.
    """
    scan = op.definition
    assert isinstance(scan, Scan)
    body = scan.subgraph("body")
    states, scanned, captured = scan.parts(splice.names(each.name for each in op.inputs))
    loop_state = _LoopState(scan.count, scan.states, states)
    for iteration in range(length):
        positions = (scan.place(k, iteration, length) for k in range(len(scanned)))
        slices = [
            cut(splice, f"{op.name}/{iteration}", name, axis, position, None)
            for name, axis, position in zip(scanned, axes, positions, strict=True)
        ]
        loop_state.take(splice.iteration(f"{op.name}/{iteration}", body, [*loop_state.states, *slices, *captured]))
    loop_state.finish(splice, op, scan, empty)


class _LoopState:
    """Results of the iterations so far: the states, and the items to be stacked.

    Args:
        count: number of results, the first ``states`` of which are states.
        begin: names of the initial states.
    """

    def __init__(self, count: int, states: int, begin: Sequence[str]) -> None:
        self.states = begin
        self._kept = states
        self._stacks: list[list[str]] = [[] for _ in range(count - states)]

    def take(self, results: Sequence[str]) -> None:
        """Add the results of an iteration."""
        self.states = results[: self._kept]
        for stack, name in zip(self._stacks, results[self._kept :], strict=True):
            stack.append(name)

    def finish(self, splice: Splice, op: RuntimeOperator, layer: Stacking, empty: Sequence[Array]) -> None:
        """Write the operator's outputs.

        Args:
            empty: scan outputs if there was no iteration.
        """
        outputs = [each.name for each in op.outputs]
        for outer, name in zip(outputs, self.states, strict=False):
            splice.replace_operand(outer, name)
        for k, (outer, stack) in enumerate(zip(outputs[self._kept :], self._stacks, strict=True)):
            axis, is_backwards = layer.stacking(k)
            if stack:
                items = stack[::-1] if is_backwards else stack
                splice.make("torch.stack", op.name, items, outer, params={"dim": axis})
            else:
                splice.replace_operand(outer, splice.constant(empty[k]))


def unroll_map(splice: Splice, op: RuntimeOperator, columns: Sequence[Sequence[str] | str]) -> list[list[str]]:
    """Write the iterations of a map, and return the items of each of its results.

    Args:
        columns: for each of its own operands the names of the items, or one name if every iteration takes it whole.
    """
    layer = op.definition
    assert isinstance(layer, SequenceMap)
    body, captured = layer.subgraph("body"), splice.names(each.name for each in op.inputs[layer.inputs :])
    results: list[list[str]] = [[] for _ in op.outputs]
    for iteration in range(len(columns[0])):
        given = [each if isinstance(each, str) else each[iteration] for each in columns]
        for column, name in zip(
            results, splice.iteration(f"{op.name}/{iteration}", body, [*given, *captured]), strict=True
        ):
            column.append(name)
    for outer, column in zip(op.outputs, results, strict=True):
        splice.make("prim::ListConstruct", op.name, column, outer.name)
    return results


def cut(splice: Splice, prefix: str, operand: str, axis: int, start: int, end: int | None) -> str:
    """Write a slice of an operand from ``start`` to ``end``; without ``end`` the element at ``start``, axis removed."""
    if end is None:
        params = {"dims": (axis,), "selects": (start,)}
    else:
        params = {"dims": (axis,), "starts": (start,), "ends": (end,), "steps": (1,)}
    return splice.make("Tensor.slice", prefix, [operand], params=params)
