"""Any batch size for a graph that was exported with a fixed one.

The fixed first dimension of the inputs is taken for the batch. Where every operator accepts another one (see
engine.graph.generalise) and a batch of two gives what two single runs give, batches run as one; otherwise they are
split into runs of the exported size and joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from engine.errors import EngineError, InputError
from engine.graph.port import Port, batch_size
from engine.graph.reference import execute
from engine.graph.runtime_graph import RuntimeGraph
from engine.tensor import Array, TensorSpec, format_shape

OPEN_SIZE = 32
"""What stands for an open dimension when a batch of two is tried; networks often want a multiple of 32."""

Run = Callable[[Sequence[Array]], list[Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """How a graph runs a batch it was not exported for.

    Args:
        mode: ``any``: as one; ``split``: in parts; ``fixed``: not at all.
        exported: the batch size in the file; None where there is none.
        reason: why not ``any``, naming the operator that forbids it.
        graph: the graph for any batch, in mode ``any``.
    """

    mode: Literal["any", "split", "fixed"]
    exported: int | None
    reason: str | None = None
    graph: RuntimeGraph | None = None

    def describe(self) -> dict[str, Any]:
        """As plain data."""
        return {"mode": self.mode, "exported": self.exported, "reason": self.reason}


def decide(graph: RuntimeGraph) -> Batching:
    """Find out how a graph can run other batches; tries a batch of two on random inputs."""
    exported = batch_size(graph.inputs)
    if exported is None and all(port.spec is not None and port.spec.shape[:1] == (None,) for port in graph.inputs):
        return Batching(mode="any", exported=None, graph=graph)
    if not exported:
        return Batching(mode="fixed", exported=exported, reason="the inputs have no common fixed batch")
    try:
        general = graph.for_any_batch()
    except EngineError as error:  # whatever stands in the way: batches are split then
        return Batching(mode=_fallback(graph, exported), exported=exported, reason=str(error))
    if not _agrees(graph, general, exported):
        reason = "a batch of two gives other results than two single runs"
        return Batching(mode=_fallback(graph, exported), exported=exported, reason=reason)
    return Batching(mode="any", exported=exported, graph=general)


def _fallback(graph: RuntimeGraph, exported: int) -> Literal["split", "fixed"]:
    """Parts can be joined where every output carries the batch in its first dimension."""
    carry = all(port.spec is not None and port.spec.shape[:1] == (exported,) for port in graph.outputs)
    return "split" if carry else "fixed"


def _agrees(graph: RuntimeGraph, general: RuntimeGraph, exported: int) -> bool:
    random = np.random.default_rng(0)
    inputs = [_random(port.spec, 2 * exported, random) for port in graph.inputs if port.spec is not None]
    try:
        together = execute(general.plan, inputs)
        apart = split(inputs, exported, lambda part: execute(graph.plan, part))
    except EngineError:
        return False
    return all(_close(a, b) for a, b in zip(together, apart, strict=True))


def _random(spec: TensorSpec, batch: int, random: np.random.Generator) -> Array:
    shape = (batch, *(OPEN_SIZE if dim is None else dim for dim in spec.shape[1:]))
    if spec.dtype.kind in "biu":  # small numbers are valid as indices, masks and counts alike
        return random.integers(0, 2, shape).astype(spec.dtype)
    return random.standard_normal(shape).astype(spec.dtype)


def _close(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    finite = np.nan_to_num(b.astype(wide), posinf=0, neginf=0)
    scale = float(np.max(np.abs(finite), initial=1e-30))
    return bool(np.allclose(a.astype(wide), b.astype(wide), rtol=1e-3, atol=1e-4 * scale, equal_nan=True))


def is_other_batch(ports: Sequence[Port], inputs: Sequence[Array]) -> bool:
    """Whether the inputs ask for a batch other than the exported one.

    Raises:
        InputError: inputs differ in their batch.
    """
    pairs = [(p.spec.shape[0], a) for p, a in zip(ports, inputs, strict=True) if p.spec is not None and p.spec.shape]
    if all(wanted in (None, array.shape[0]) for wanted, array in pairs):
        return False
    if batch_size(ports) is not None and len({array.shape[0] for _, array in pairs}) > 1:
        raise InputError("inputs differ in their batch", found=_shapes(inputs), expected=_expected(ports))
    return True


def refuse(batching: Batching, ports: Sequence[Port], inputs: Sequence[Array]) -> InputError:
    """The error for a graph that takes no other batch."""
    problem = f"the graph takes no other batch ({batching.reason})"
    return InputError(problem, found=_shapes(inputs), expected=_expected(ports))


def split(inputs: Sequence[Array], exported: int, run: Run) -> list[Array]:
    """Run a batch in parts of the exported size and join the outputs along their first dimension.

    Raises:
        InputError: the batch is no multiple of the exported one.
    """
    batch = inputs[0].shape[0]
    if batch % exported or batch == 0:
        raise InputError("the graph cannot run this batch", found=batch, expected=f"a multiple of {exported}")
    parts = [run([array[at : at + exported] for array in inputs]) for at in range(0, batch, exported)]
    return [np.concatenate(outputs, axis=0) for outputs in zip(*parts, strict=True)]


def _shapes(inputs: Sequence[Array]) -> str:
    return ", ".join(format_shape(array.shape) for array in inputs)


def _expected(ports: Sequence[Port]) -> str:
    return ", ".join(format_shape(port.spec.shape) if port.spec is not None else "any" for port in ports)
