"""Any batch size for a graph that was exported with a fixed one.

The fixed first dimension of the inputs is taken for the batch. If every operator accepts another batch (shape
inference says so) and a batch of two gives what two single runs give, batches run as one; otherwise they are
split into runs of the exported size and joined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.errors import EngineError, InputError
from engine.graph.port import Port
from engine.graph.runtime_graph import RuntimeGraph
from engine.tensor import Array, TensorSpec, format_shape

Run = Callable[[Sequence[Array]], list[Array]]


def batch_size(ports: Sequence[Port]) -> int | None:
    """The batch size the graph was exported with; None when it is open or the inputs disagree."""
    sizes = {port.spec.shape[0] if port.spec is not None and port.spec.shape else None for port in ports}
    return sizes.pop() if len(sizes) == 1 else None


def requested_batch(ports: Sequence[Port], inputs: Sequence[Array]) -> int | None:
    """The batch the inputs ask for where it is not the exported one, None where they fit as they are.

    Raises:
        InputError: the first dimensions do not fit the graph and are no batch either.
    """
    exported = batch_size(ports)
    for port, array in zip(ports, inputs, strict=True):
        wanted = port.spec.shape[0] if port.spec is not None and port.spec.shape else None
        if wanted is not None and array.shape[0] != wanted:
            return _common_batch(ports, inputs, exported)
    return None


def _common_batch(ports: Sequence[Port], inputs: Sequence[Array], exported: int | None) -> int:
    sizes = {array.shape[0] if array.ndim else None for array in inputs}
    size: int | None = sizes.pop()
    if exported is None or sizes or size is None:
        raise InputError("inputs differ in their batch", found=_shapes(inputs), expected=_expected(ports))
    return size


def _shapes(inputs: Sequence[Array]) -> str:
    return ", ".join(format_shape(array.shape) for array in inputs)


def _expected(ports: Sequence[Port]) -> str:
    return ", ".join(format_shape(port.spec.shape) if port.spec is not None else "any" for port in ports)


def scales(graph: RuntimeGraph, batch: int) -> bool:
    """Whether shape inference follows another batch through to the first dimension of every output."""
    exported = batch_size(graph.inputs)
    specs = [port.spec for port in graph.inputs if port.spec is not None]
    if not exported or not all(spec.is_static for spec in specs):
        return False
    try:
        outputs = graph.infer_outputs([_resized(spec, batch) for spec in specs])
    except EngineError:
        return False
    wanted = [port.spec for port in graph.outputs]
    return len(outputs) == len(wanted) and all(
        spec is not None and spec.shape[:1] == (exported,) and found == _resized(spec, batch)
        for spec, found in zip(wanted, outputs, strict=True)
    )


def _resized(spec: TensorSpec, batch: int) -> TensorSpec:
    return TensorSpec((batch, *spec.shape[1:]), spec.dtype)


def agrees(graph: RuntimeGraph, run: Run) -> bool:
    """Whether two batches run as one give what each gives alone, tried on random inputs."""
    exported = batch_size(graph.inputs) or 1
    random = np.random.default_rng(0)
    specs = [port.spec for port in graph.inputs if port.spec is not None]
    inputs = [_random(spec, 2 * exported, random) for spec in specs]
    try:
        together = run(inputs)
        apart = split(inputs, exported, run)
    except EngineError:
        return False
    return all(_close(a, b) for a, b in zip(together, apart, strict=True))


def _random(spec: TensorSpec, batch: int, random: np.random.Generator) -> Array:
    shape = tuple(dim for dim in (batch, *spec.shape[1:]) if dim is not None)
    if spec.dtype.kind in "biu":  # small numbers are valid as indices, masks and counts alike
        return random.integers(0, 2, shape).astype(spec.dtype)
    return random.standard_normal(shape).astype(spec.dtype)


def _close(a: Array, b: Array) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind in "biu":
        return bool(np.array_equal(a, b))
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    scale = float(np.max(np.abs(np.nan_to_num(b.astype(wide))), initial=1e-30))
    return bool(np.allclose(a.astype(wide), b.astype(wide), rtol=1e-3, atol=1e-4 * scale, equal_nan=True))


def split(inputs: Sequence[Array], exported: int, run: Run) -> list[Array]:
    """Run a batch in parts of the exported size and join the outputs along their first dimension.

    Raises:
        InputError: the batch is no multiple of the exported one.
    """
    batch = inputs[0].shape[0]
    if exported == 0 or batch % exported or batch == 0:
        raise InputError("the graph cannot run this batch", found=batch, expected=f"a multiple of {exported}")
    parts = [run([array[at : at + exported] for array in inputs]) for at in range(0, batch, exported)]
    return [np.concatenate(outputs, axis=0) for outputs in zip(*parts, strict=True)]


def check_splittable(graph: RuntimeGraph, inputs: Sequence[Array]) -> None:
    """Refuse another batch for a graph whose outputs do not carry the batch in their first dimension.

    Raises:
        InputError: naming the shapes the graph takes.
    """
    exported = batch_size(graph.inputs)
    for port in graph.outputs:
        if port.spec is None or port.spec.shape[:1] != (exported,):
            raise InputError(
                f"the graph takes no other batch: '{port.name}' does not carry it",
                found=_shapes(inputs),
                expected=_expected(graph.inputs),
            )
