"""Which axis of every input and output of a graph carries the batch.

Mostly the first. States of a recurrent layer (layers, N, width) have it second, and so has what a network returns
time-major, (T, N, classes). Where the file alone does not tell, the graph is tried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from engine.errors import EngineError, RunCancelledError
from engine.graph.footprint import Footprints
from engine.graph.operand import RuntimeOperand
from engine.graph.port import Port, state_axis
from engine.graph.running.reference import execute
from engine.graph.runtime_graph import RuntimeGraph
from engine.layers.recurrent.recurrent import Recurrent
from engine.limits import memory_bytes
from engine.tensor import Array, TensorSpec

OPEN_SIZE: Final = 32
"""What stands for an open dimension when a graph is tried; networks often want a multiple of 32."""

_TRIALS: Final = 3
# Runs, of one item and of two, their inputs as they are drawn and their answers as they are compared.
_HELD: Final = 4
_MOST_BYTES: Final = 1 << 28

Axes = tuple[int | None, ...]
"""One a port; None for an output that is the same whatever the batch holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputAxes:
    """A way to take the inputs' shapes.

    Args:
        exported: the batch size in the file.
        axes: of every input.
    """

    exported: int
    axes: tuple[int, ...]


def readings(ports: Sequence[Port]) -> Iterator[InputAxes]:
    """The ways in which the inputs' shapes can hold a batch, the likeliest first."""
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
    """Where every output carries the batch, as its shape says or, where it says nothing, some runs; None if nowhere."""
    axes: list[int | None] = []
    shapes: list[set[tuple[int, ...]]] | None = None
    for place, port in enumerate(graph.outputs):
        if not _depends_on_inputs(graph.operands[port.operand]):
            axes.append(None)
            continue
        shape = port.spec.shape if port.spec is not None else None
        if shape is None:
            shapes = shapes or _tried(graph)
            if len(shapes) != len(graph.outputs) or len(shapes[place]) != 1:
                return None
            (shape,) = shapes[place]
        is_state = _is_state(graph.operands[port.operand]) and len(shape) == 3 and shape[1] == exported
        axis = 1 if is_state else _axis_of(shape, exported)
        if axis is None:
            return None
        axes.append(axis)
    return tuple(axes)


def _axis_of(shape: Sequence[int | None], exported: int) -> int | None:
    """The first dimension if it is as long as the batch, else the only one that is."""
    found = [axis for axis, dim in enumerate(shape) if dim == exported]
    return found[0] if found and (found[0] == 0 or len(found) == 1) else None


def _is_state(operand: RuntimeOperand) -> bool:
    """Whether a recurrent layer gives it as a state, (layers, N, width)."""
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


def _tried(graph: RuntimeGraph) -> list[set[tuple[int, ...]]]:
    """The shapes every output had in some runs; nothing where the graph refuses the inputs."""
    found: list[set[tuple[int, ...]]] = [set() for _ in graph.outputs]
    if not is_affordable(graph, [closed(port.spec) for port in graph.inputs if port.spec is not None]):
        return []
    for seed in range(_TRIALS):
        random = np.random.default_rng(seed)
        inputs = [example(port.spec, random) for port in graph.inputs if port.spec is not None]
        outputs = answer(graph, inputs)
        if outputs is None or len(outputs) != len(found):
            return []
        for shapes, output in zip(found, outputs, strict=True):
            shapes.add(output.shape)
    return found


def answer(graph: RuntimeGraph, inputs: Sequence[Array]) -> list[Array] | None:
    """What the graph gives; None where it refuses the inputs."""
    try:
        return execute(graph.plan, inputs)
    except RunCancelledError:
        raise
    except EngineError:
        return None


def is_affordable(graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> bool:
    """Whether there is the memory to try a graph on inputs of these shapes, and to hold some runs beside each other."""
    inputs = sum((spec.size or 0) * spec.dtype.itemsize for spec in specs)
    return _HELD * (inputs + Footprints(graph).of(specs).peak) <= memory_bytes() // 2


def most_bytes(graph: RuntimeGraph, specs: Sequence[TensorSpec]) -> int:
    """Bytes that a tensor may take in a trial: as many as all whose sizes are known, or a few."""
    return max(_MOST_BYTES, Footprints(graph).of(specs).peak)


def closed(spec: TensorSpec, batch: int | None = None, axis: int = 0) -> TensorSpec:
    """A spec with a size for every open dimension, and another batch along an axis if one is given."""
    sizes = [OPEN_SIZE if dim is None else dim for dim in spec.shape]
    if batch is not None and sizes:
        sizes[axis] = batch
    return TensorSpec(tuple(sizes), spec.dtype)


def example(spec: TensorSpec, random: np.random.Generator) -> Array:
    """Random values for an input; integers are 0 and 1, which are valid as indices, masks and counts alike."""
    sizes = closed(spec).sizes
    if spec.dtype.hasobject:
        texts = np.empty(sizes, np.object_)
        texts[...] = random.integers(0, 2, sizes).astype(np.str_)
        return texts
    if spec.dtype.kind in "biu":
        return random.integers(0, 2, sizes).astype(spec.dtype)
    return random.standard_normal(sizes).astype(spec.dtype)


def resized(spec: TensorSpec, axis: int, size: int | None) -> TensorSpec:
    """A spec with another size along an axis."""
    return TensorSpec((*spec.shape[:axis], size, *spec.shape[axis + 1 :]), spec.dtype)
