"""Any batch size for a graph that was exported with a fixed one.

Where every operator accepts another batch (building/generalise.py) and a batch of two gives what two single runs give,
batches run as one; otherwise they are split into runs of the exported size and joined. The batch lies along the first
dimension of inputs and outputs, or where batch_axes.py finds it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeVar

import numpy as np

from engine.errors import EngineError, InputError, RunCancelledError, ShapeError
from engine.graph.batch.batch_axes import (
    Axes,
    InputAxes,
    answer,
    closed,
    example,
    is_affordable,
    most_bytes,
    output_axes,
    readings,
    resized,
)
from engine.graph.port import Port, batch_size, may_be_state
from engine.graph.running.reference import execute
from engine.graph.runtime_graph import RuntimeGraph
from engine.limits import asking_for_room
from engine.stopping import cancelling
from engine.tensor import Array, TensorSpec, format_shape, is_close

MOST_STEPS: Final = 1 << 16
"""Of a trial: operators, and turns of loops in them. A model of thousands of operators takes fewer."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How a graph runs a batch it was not exported for.

    Args:
        mode: ``any``: as one; ``split``: in parts; ``fixed``: not at all.
        exported: the batch size in the file; None where there is none.
        reason: why not ``any``, naming the operator that forbids it.
        graph: the graph for any batch, in mode ``any``.
        inputs: the axis along which each input holds the batch.
        outputs: the same of each output; None where parts cannot be joined.
    """

    mode: Literal["any", "split", "fixed"]
    exported: int | None
    reason: str | None = None
    graph: RuntimeGraph | None = None
    inputs: tuple[int, ...] = ()
    outputs: Axes | None = None

    def describe(self) -> dict[str, Any]:
        """As plain data."""
        return {"mode": self.mode, "exported": self.exported, "reason": self.reason}

    def specs(self, specs: Sequence[TensorSpec], batch: int | None) -> list[TensorSpec]:
        """Specs of the inputs with another batch."""
        axes = self.inputs or (0,) * len(specs)
        return [resized(spec, axis, batch) if spec.shape else spec for spec, axis in zip(specs, axes, strict=True)]


class Cut(NamedTuple):
    """What a graph is run on: all inputs, or those of each part of a batch, whose outputs are joined along axes."""

    graph: RuntimeGraph
    parts: list[list[Array]]
    axes: Axes = ()


def decide(graph: RuntimeGraph) -> Batching:
    """Find out how a graph can run other batches; tries a batch of two on random inputs."""
    if all(port.spec is not None and port.spec.shape[:1] == (None,) for port in graph.inputs):
        return Batching(mode="any", exported=None, graph=graph, inputs=(0,) * len(graph.inputs))
    reasons: list[tuple[InputAxes, str]] = []
    for reading in readings(graph.inputs):
        found = _as_one(graph, reading)
        if isinstance(found, Batching):
            return found
        reasons.append((reading, found))
    if not reasons:
        return Batching(mode="fixed", exported=batch_size(graph.inputs), reason=_NO_BATCH)
    for reading, reason in reasons:
        outputs = _in_bounds(partial(output_axes, graph, reading.exported), most_bytes(graph, _closed(graph)))
        if outputs is not None and _keeps_items_apart(graph, reading, outputs):
            return Batching(
                mode="split", exported=reading.exported, reason=reason, inputs=reading.axes, outputs=outputs
            )
    reading, reason = reasons[0]
    return Batching(mode="fixed", exported=reading.exported, reason=reason, inputs=reading.axes)


_NO_BATCH = "the inputs have no common fixed batch"


def _as_one(graph: RuntimeGraph, reading: InputAxes) -> Batching | str:
    """The graph for any batch, if it gives what single runs give; otherwise why not."""
    try:
        general, outputs = graph.for_batches_along(reading.axes)
    except RunCancelledError:
        raise
    except EngineError as error:  # BatchError, or an operator that does not take the rewritten graph
        return str(error)
    ports = zip(graph.inputs, reading.axes, strict=True)
    specs = [closed(p.spec, 2 * reading.exported, axis) for p, axis in ports if p.spec is not None]
    if not is_affordable(general, specs):
        return "a batch of two is too large to be tried"
    agrees = _in_bounds(lambda: _agrees(graph, general, reading, outputs, specs), most_bytes(general, specs))
    if agrees is None:
        return "a batch of two takes too many steps, or too much memory, to be tried"
    if not agrees:
        return "a batch of two gives other results than two single runs"
    return Batching(mode="any", exported=reading.exported, graph=general, inputs=reading.axes, outputs=outputs)


def _closed(graph: RuntimeGraph) -> list[TensorSpec]:
    return [closed(port.spec) for port in graph.inputs if port.spec is not None]


def _in_bounds(trial: Callable[[], T], most: int) -> T | None:
    """What a trial finds; None where it takes very many steps, or a very large tensor.

    Only a run tells how often a loop turns, and how large is what values decide.

    Args:
        most: bytes of a tensor.
    """
    asked = itertools.count()
    is_over = is_too_large = False

    def is_enough() -> bool:
        nonlocal is_over
        is_over = is_over or next(asked) >= MOST_STEPS
        return is_over

    def room(size: int) -> None:
        nonlocal is_too_large
        if size > most:
            is_too_large = True
            raise ShapeError("too large to be tried", found=f"{size:,} bytes", expected=f"at most {most:,}")

    try:
        with cancelling(is_enough), asking_for_room(room):
            found = trial()
        return None if is_too_large else found
    except RunCancelledError:
        if is_over:
            return None
        raise


def _agrees(
    graph: RuntimeGraph, general: RuntimeGraph, reading: InputAxes, outputs: Axes, specs: Sequence[TensorSpec]
) -> bool:
    random = np.random.default_rng(0)
    inputs = [example(spec, random) for spec in specs]
    try:
        together = execute(general.plan, inputs)
        parts = cut(inputs, reading.exported, reading.axes)
        apart = join([execute(graph.plan, part) for part in parts], outputs)
    except RunCancelledError:
        raise
    except EngineError:
        return False
    return len(together) == len(apart) and all(is_close(a, b) for a, b in zip(together, apart, strict=True))


def _keeps_items_apart(graph: RuntimeGraph, reading: InputAxes, outputs: Axes) -> bool:
    """Whether items in another order give their answers in that order, as steps of time do not."""
    if reading.exported == 1 or not graph.is_repeatable:
        return True
    specs = _closed(graph)
    if not is_affordable(graph, specs):
        return False
    most = most_bytes(graph, specs)
    return bool(_in_bounds(lambda: _follows_its_items(graph, reading, outputs, specs), most))


def _follows_its_items(graph: RuntimeGraph, reading: InputAxes, outputs: Axes, specs: Sequence[TensorSpec]) -> bool:
    random = np.random.default_rng(0)
    inputs = [example(spec, random) for spec in specs]
    rolled = [np.roll(array, 1, axis) for array, axis in zip(inputs, reading.axes, strict=True)]
    before, after = answer(graph, inputs), answer(graph, rolled)
    if before is None or after is None:
        return True
    if any(axis is not None and axis >= each.ndim for each, axis in zip(before, outputs, strict=True)):
        return False  # the file announces a batch that the answer has not
    expected = [each if axis is None else np.roll(each, 1, axis) for each, axis in zip(before, outputs, strict=True)]
    return all(is_close(a, b) for a, b in zip(after, expected, strict=True))


def is_other_batch(ports: Sequence[Port], inputs: Sequence[Array]) -> bool:
    """Whether the inputs ask for a batch other than the exported one.

    Raises:
        InputError: inputs differ in their batch.
    """
    pairs = [(p.spec, a) for p, a in zip(ports, inputs, strict=True) if p.spec is not None and p.spec.shape]
    if all(spec.shape[0] in (None, array.shape[0]) and _has_state(spec, array) for spec, array in pairs):
        return False
    sizes = {array.shape[0] for _, array in pairs}
    has_states = any(may_be_state(ports, index) for index in range(len(ports)))
    if batch_size(ports) is not None and len(sizes) > 1 and not has_states:
        raise InputError("inputs differ in their batch", found=_shapes(inputs), expected=_expected(ports))
    return True


def _has_state(spec: TensorSpec, array: Array) -> bool:
    return all(dim in (None, size) for size, dim in zip(array.shape[1:2], spec.shape[1:2], strict=True))


def aligned(batching: Batching, ports: Sequence[Port], inputs: Sequence[Array]) -> list[Array]:
    """The inputs, all of one batch: a state that was given for one item is that of every item.

    Raises:
        InputError: inputs differ in their batch, or in another dimension from the graph's.
    """
    batch = inputs[0].shape[batching.inputs[0]]
    exported = batching.exported or 1
    found = []
    for port, array, axis in zip(ports, inputs, batching.inputs, strict=True):
        if axis and array.shape[axis] == exported and batch % exported == 0 and batch:
            array = np.concatenate([array] * (batch // exported), axis)
        wanted = port.spec and resized(port.spec, axis, batch).shape
        if wanted and any(dim not in (None, size) for dim, size in zip(wanted, array.shape, strict=True)):
            raise InputError("inputs differ in their batch", found=_shapes(inputs), expected=_expected(ports))
        found.append(array)
    return found


def refuse(batching: Batching, ports: Sequence[Port], inputs: Sequence[Array]) -> InputError:
    """The error for a graph that takes no other batch."""
    problem = f"the graph takes no other batch ({batching.reason})"
    return InputError(problem, found=_shapes(inputs), expected=_expected(ports))


def cut(inputs: Sequence[Array], exported: int, axes: Sequence[int]) -> list[list[Array]]:
    """The inputs of every part of a batch, each of the exported size.

    Args:
        axes: along which they hold the batch.

    Raises:
        InputError: the batch is no multiple of the exported one.
    """
    batch = inputs[0].shape[axes[0]]
    if batch % exported or batch == 0:
        raise InputError("the graph cannot run this batch", found=batch, expected=f"a multiple of {exported}")
    return [
        [_cut(array, at, exported, axis) for array, axis in zip(inputs, axes, strict=True)]
        for at in range(0, batch, exported)
    ]


def _cut(array: Array, at: int, size: int, axis: int) -> Array:
    return np.ascontiguousarray(array[(slice(None),) * axis + (slice(at, at + size),)])


def join(answers: Sequence[Sequence[Array]], axes: Axes) -> list[Array]:
    """The outputs of a batch, given those of every part.

    Args:
        axes: along which they hold the batch; None where one is the same for every part.

    Raises:
        InputError: they do not fit together.
    """
    return [joined(parts, axis) for parts, axis in zip(zip(*answers, strict=True), axes, strict=True)]


def joined(parts: Sequence[Array], axis: int | None) -> Array:
    """One output of a batch, as ``join`` has all."""
    if axis is None:
        return parts[0]
    try:
        return np.concatenate(parts, axis=axis)
    except ValueError:
        found = _shapes(parts)
        raise InputError("the answers to the items of the batch do not fit together", found=found) from None


def _shapes(inputs: Sequence[Array]) -> str:
    return ", ".join(format_shape(array.shape) for array in inputs)


def _expected(ports: Sequence[Port]) -> str:
    return ", ".join(port.shape_text for port in ports)
