"""Any batch size for a graph that was exported with a fixed one.

Where every operator accepts another batch (building/generalise.py) and the items are proved independent
(batch/independence), batches run as one. Otherwise each item runs by itself, if the file's own batch is one item.
A graph with a dynamic first dimension runs any batch as one; the proof then tells whether requests may share a run.
The batch is the first dimension of inputs and outputs, or the one that batch_axes.py finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from engine.errors import EngineError, InputError, RunCancelledError
from engine.graph.batch.batch_axes import UNTOLD, Axes, InputAxes, axis_of, closed, output_axes, readings, resized
from engine.graph.batch.independence import Proof, prove
from engine.graph.port import Port, batch_size, may_be_state
from engine.graph.runtime_graph import RuntimeGraph
from engine.tensor import Array, TensorSpec, format_shape

DYNAMIC_SIZES: Final = (32, 224)
"""Sizes tried for dynamic dimensions in a proof, in this order: networks often need a multiple of 32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """Way to run batches that a graph was not exported for.

    Args:
        mode: ``any``: as one; ``split``: item by item; ``fixed``: not at all.
        exported: the batch size in the file; None if there is none.
        reason: why its items are not known to be independent, naming the operator; None if they are.
        graph: the graph for any batch, in mode ``any``.
        inputs: the batch axis of each input.
        outputs: the batch axis of each output, None for one that does not depend on the batch; None if unknown.
        is_plain: whether each output has one slice for each item.
    """

    mode: Literal["any", "split", "fixed"]
    exported: int | None
    reason: str | None = None
    graph: RuntimeGraph | None = None
    inputs: tuple[int, ...] = ()
    outputs: Axes | None = None
    is_plain: bool = False

    def describe(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {"mode": self.mode, "exported": self.exported, "reason": self.reason}

    def specs(self, specs: Sequence[TensorSpec], batch: int | None) -> list[TensorSpec]:
        """Return the specs of the inputs with another batch."""
        axes = self.inputs or (0,) * len(specs)
        return [resized(spec, axis, batch) if spec.shape else spec for spec, axis in zip(specs, axes, strict=True)]

    def proof_for(self, specs: Sequence[TensorSpec]) -> Proof:
        """Return whether items of these shapes are independent.

        Args:
            specs: of the inputs, static; the batch does not count.
        """
        if self.graph is None:
            return Proof(reason=self.reason)
        ports = [port.spec for port in self.graph.inputs]
        sizes = [
            dim
            for port, axis in zip(ports, self.inputs, strict=True)
            if port
            for dim in _sizes_without_batch(port, axis)
        ]
        if None not in sizes and None not in ports:
            return Proof(reason=self.reason, outputs=self.outputs or (), is_plain=self.is_plain)
        return prove(self.graph, specs, self.inputs)


class Cut(NamedTuple):
    """Inputs of a run: the whole batch, or of each part, whose outputs are joined along axes."""

    graph: RuntimeGraph
    parts: list[list[Array]]
    axes: Axes = ()


def decide(graph: RuntimeGraph) -> Batching:
    """Return how a graph can run other batches, and whether their items are proved independent."""
    if all(port.spec is not None and port.spec.shape[:1] == (None,) for port in graph.inputs):
        axes = (0,) * len(graph.inputs)
        return _as_any(graph, None, axes, _proof(graph, axes))
    reasons: list[tuple[InputAxes, str]] = []
    for reading in readings(graph.inputs):
        found = _as_one(graph, reading)
        if isinstance(found, Batching):
            return found
        reasons.append((reading, found))
    if not reasons:
        return Batching(mode="fixed", exported=batch_size(graph.inputs), reason=_NO_BATCH)
    for reading, reason in reasons:
        outputs = output_axes(graph, reading.exported) if reading.exported == 1 else None
        if outputs is not None:
            return Batching(mode="split", exported=1, reason=reason, inputs=reading.axes, outputs=outputs)
    reading, reason = reasons[0]
    return Batching(mode="fixed", exported=reading.exported, reason=reason, inputs=reading.axes)


_NO_BATCH = "the inputs have no common fixed batch"


def _as_one(graph: RuntimeGraph, reading: InputAxes) -> Batching | str:
    """Return the graph for any batch, if its items are proved independent; otherwise the reason."""
    try:
        general = graph.for_batches_along(reading.axes)
    except RunCancelledError:
        raise
    except EngineError as error:  # BatchError, or an operator that does not take the rewritten graph
        return str(error)
    proof = _proof(general, reading.axes)
    return proof.reason or _as_any(general, reading.exported, reading.axes, proof)


def _as_any(graph: RuntimeGraph, exported: int | None, axes: tuple[int, ...], proof: Proof) -> Batching:
    return Batching(
        mode="any", exported=exported, reason=proof.reason, graph=graph, inputs=axes,
        outputs=proof.outputs if proof.reason is None else None, is_plain=proof.is_plain,
    )  # fmt: skip


def _proof(graph: RuntimeGraph, axes: Sequence[int]) -> Proof:
    """Return the proof for inputs whose dynamic dimensions have one of DYNAMIC_SIZES."""
    specs = [port.spec for port in graph.inputs if port.spec is not None]
    proofs = (prove(graph, [closed(spec, size) for spec in specs], axes) for size in DYNAMIC_SIZES)
    first = next(proofs)
    return first if first.is_fitting else next((each for each in proofs if each.is_fitting), first)


def _sizes_without_batch(spec: TensorSpec, axis: int) -> Sequence[int | None]:
    """Return the sizes of a spec without its batch."""
    return spec.shape[:axis] + spec.shape[axis + 1 :]


def is_other_batch(ports: Sequence[Port], inputs: Sequence[Array]) -> bool:
    """Return whether the inputs have a batch other than the exported one.

    Raises:
        InputError: inputs have different batch sizes.
    """
    pairs = [(p.spec, a) for p, a in zip(ports, inputs, strict=True) if p.spec is not None and p.spec.shape]
    sizes_and_dims = [each for spec, array in pairs for each in zip(array.shape[:2], spec.shape[:2], strict=True)]
    if all(dim is None or dim == size for size, dim in sizes_and_dims):
        return False
    sizes = {array.shape[0] for _, array in pairs}
    has_states = any(may_be_state(ports, index) for index in range(len(ports)))
    if batch_size(ports) is not None and len(sizes) > 1 and not has_states:
        raise InputError("inputs differ in their batch", found=_shapes(inputs), expected=_expected(ports))
    return True


def aligned(batching: Batching, ports: Sequence[Port], inputs: Sequence[Array]) -> list[Array]:
    """Return the inputs, all of one batch: a state that was given for one item is repeated for every item.

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
    """Return the error for a graph that can run no other batch."""
    problem = f"the graph does not take other batch sizes ({batching.reason})"
    return InputError(problem, found=_shapes(inputs), expected=_expected(ports))


def cut(inputs: Sequence[Array], exported: int, axes: Sequence[int]) -> list[list[Array]]:
    """Return the inputs of every part of a batch, each of the exported size.

    Args:
        axes: batch axes of the inputs.

    Raises:
        InputError: the batch is not a multiple of the exported one.
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
    """Return the outputs of a batch, given those of every part.

    Args:
        axes: batch axes of the outputs; None for one that is the same for every part.

    Raises:
        InputError: they do not fit together.
    """
    return [joined(parts, axis) for parts, axis in zip(zip(*answers, strict=True), axes, strict=True)]


def joined(parts: Sequence[Array], axis: int | None) -> Array:
    """Return one output of a batch, joined from its parts."""
    if axis is None:
        return parts[0]
    if axis == UNTOLD:
        axis = axis_of(parts[0].shape, 1)
    try:
        if axis is None or any(part.shape[axis] != parts[0].shape[axis] for part in parts):
            raise ValueError("an output has no slice for an item")
        return np.concatenate(parts, axis=axis)
    except (ValueError, IndexError):
        found = _shapes(parts)
        raise InputError("the outputs of the items cannot be concatenated", found=found) from None


def _shapes(inputs: Sequence[Array]) -> str:
    return ", ".join(format_shape(array.shape) for array in inputs)


def _expected(ports: Sequence[Port]) -> str:
    return ", ".join(port.shape_text for port in ports)
