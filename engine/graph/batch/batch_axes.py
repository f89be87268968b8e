"""Batch axes of every input and output of a graph.

Mostly it is the first. States of a recurrent layer (layers, N, width) have it second, and so have time-major outputs,
(T, N, classes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from engine.graph.operand import RuntimeOperand
from engine.graph.port import Port, state_axis
from engine.graph.runtime_graph import RuntimeGraph
from engine.layers.recurrent.recurrent import Recurrent
from engine.tensor import TensorSpec

Axes = tuple[int | None, ...]
"""One axis a port; None for an output that does not depend on the batch."""

UNTOLD: Final = -1
"""Axis of an output whose shape is unknown before a run: the axis with one slice in its result for one item."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAxes:
    """Batch axes of the inputs.

    Args:
        exported: the batch size in the file.
        axes: of every input.
    """

    exported: int
    axes: tuple[int, ...]


def readings(ports: Sequence[Port]) -> Iterator[InputAxes]:
    """Yield the possible batch axes of the inputs, the likeliest first."""
    specs = [port.spec for port in ports]
    known = [spec for spec in specs if spec is not None and spec.shape]
    if not known or len(known) != len(specs) or not known[0].shape[0]:
        return
    exported = known[0].shape[0]
    if all(spec.shape[0] == exported for spec in known):
        yield InputAxes(exported=exported, axes=(0,) * len(known))
    states = tuple(state_axis(index, spec, exported) for index, spec in enumerate(known))
    axes = tuple(axis for axis in states if axis is not None)
    if any(axes) and len(axes) == len(states):
        yield InputAxes(exported=exported, axes=axes)


def output_axes(graph: RuntimeGraph, exported: int) -> Axes | None:
    """Return the batch axis of every output by its shape; None if one is ambiguous."""
    axes: list[int | None] = []
    for port in graph.outputs:
        if not _depends_on_inputs(graph.operands[port.operand]):
            axes.append(None)
            continue
        if port.spec is None and exported == 1:
            axes.append(UNTOLD)
            continue
        shape = port.spec.shape if port.spec is not None else ()
        is_state = _is_state(graph.operands[port.operand]) and len(shape) == 3 and shape[1] == exported
        axis = 1 if is_state else axis_of(shape, exported)
        if axis is None:
            return None
        axes.append(axis)
    return tuple(axes)


def axis_of(shape: Sequence[int | None], exported: int) -> int | None:
    """Return the first dimension if it is as long as the batch, else the only one that is."""
    found = [axis for axis, dim in enumerate(shape) if dim == exported]
    return found[0] if found and (found[0] == 0 or len(found) == 1) else None


def _is_state(operand: RuntimeOperand) -> bool:
    """Return whether it is a recurrent layer's state, (layers, N, width)."""
    maker = operand.producer
    return maker is not None and isinstance(maker.definition, Recurrent) and operand is not maker.outputs[0]


def _depends_on_inputs(operand: RuntimeOperand) -> bool:
    waiting, seen = [operand], {operand.name}
    while waiting:
        maker = waiting.pop().producer
        if maker is None or maker.type == "pnnx.Input":
            return True
        new = {each.name: each for each in maker.inputs if each.name not in seen}
        seen.update(new)
        waiting.extend(new.values())
    return False


def closed(spec: TensorSpec, size: int) -> TensorSpec:
    """Return a spec with a size for every dynamic dimension."""
    return TensorSpec(tuple(size if dim is None else dim for dim in spec.shape), spec.dtype)


def resized(spec: TensorSpec, axis: int, size: int | None) -> TensorSpec:
    """Return a spec with another size along an axis."""
    return TensorSpec((*spec.shape[:axis], size, *spec.shape[axis + 1 :]), spec.dtype)
