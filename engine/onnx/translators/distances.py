"""Distances of rows, as scikit-learn's converter writes them: a scan over the rows of one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from engine.onnx.translation.node import Node
from engine.onnx.translation.value import Value

_REDUCED: Final = {
    "ReduceSumSquare": ("square(@0)", "torch.sum"),
    "ReduceSum": ("", "torch.sum"),
    "ReduceMax": ("", "torch.amax"),
}
_UNARY: Final = {"Abs": "abs(@0)", "Sqrt": "sqrt(@0)"}
# Maximum elements of the differences that a run may hold for each row of the other table.
_MOST: Final = 1 << 24


def distances(node: Node, proto: Any, values: Sequence[Value], states: int) -> list[Value] | None:
    """Return the results of a scan that reduces the differences of each row and a table; None for any other scan.

    The table is the only state and stays as it is, so that all rows are computed at once.
    """
    if len(values) != 2 or states != 1 or any(each.rank != 2 for each in values) or len(node.outputs) != 2:
        return None
    if any(any(node.numbers(f"scan_{name}")) for name in _PARAMETERS):
        return None
    table, rows = values
    size = 1 if rows.tensor is None else (rows.tensor.size or 1)
    steps = _steps(proto)
    if steps is None or size > _MOST:
        return None
    is_table_first, following = steps
    expanded = node.make("torch.unsqueeze", rows, dim=1)
    found = node.expression("sub(@0,@1)" if is_table_first else "sub(@1,@0)", table, expanded)
    for each in following:
        if each.op_type in _UNARY:
            found = node.expression(_UNARY[each.op_type], found)
        else:
            text, reduction = _REDUCED[each.op_type]
            found = node.expression(text, found) if text else found
            found = node.make(reduction, found, dim=(2,), keepdim=False)
    return [table, found]


_PARAMETERS: Final = ("input_axes", "output_axes", "input_directions", "output_directions")


def _steps(proto: Any) -> tuple[bool, list[Any]] | None:
    """Return whether rows are subtracted from the table, and what is computed of the difference; None for another body.

    One of the operators that follow the difference is a reduction along the last axis.
    """
    nodes = {each.output[0]: each for each in proto.node if len(each.output) == 1}
    if len(nodes) < len(proto.node) or len(proto.input) != 2 or len(proto.output) != 2:
        return None
    if _source(nodes, proto.output[0].name) != proto.input[0].name:
        return None
    steps: list[Any] = []
    name = _source(nodes, proto.output[1].name)
    while name in nodes:
        steps.insert(0, nodes[name])
        name = _source(nodes, steps[0].input[0])
    if not steps or steps[0].op_type != "Sub":
        return None
    sides = [_source(nodes, each) for each in steps[0].input]
    is_known = all(each.op_type in _UNARY or (each.op_type in _REDUCED and _axes(each) == [1]) for each in steps[1:])
    reductions = [each for each in steps if each.op_type in _REDUCED]
    if set(sides) != {each.name for each in proto.input} or not is_known or len(reductions) != 1:
        return None
    return sides[0] == proto.input[0].name, steps[1:]


def _source(nodes: dict[str, Any], name: str) -> str:
    while name in nodes and nodes[name].op_type == "Identity":
        name = nodes[name].input[0]
    return name


def _axes(reduction: Any) -> list[int]:
    """Return the axes of a reduction that drops them; none where they are not attributes."""
    given = {each.name: each for each in reduction.attribute}
    if "axes" not in given or "keepdims" not in given or given["keepdims"].i or len(reduction.input) != 1:
        return []
    return [int(each) % 2 for each in given["axes"].ints if -2 <= each < 2]
