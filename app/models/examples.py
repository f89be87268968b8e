"""What a model can be tried on: zeros of its inputs' shapes, as far as the graph and the config tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

import engine
from app.images.preprocess import Preprocessor
from app.string_tensors import blank


def example_inputs(ports: Sequence[engine.Port], preprocessor: Preprocessor | None) -> dict[str, NDArray[Any]] | None:
    """Zeros for every input, one item of a batch; None when the graph and the config leave a size open."""
    zeros = {port.name: _zeros(port, preprocessor) for port in ports}
    known = {name: array for name, array in zeros.items() if array is not None}
    return known if len(known) == len(zeros) else None


def partly_known(
    ports: Sequence[engine.Port], specs: Sequence[engine.TensorSpec], preprocessor: Preprocessor | None
) -> list[engine.TensorSpec]:
    """Specs of the inputs, with the sizes that the config gives them."""
    return [
        engine.TensorSpec(tuple(_shape(port, spec, preprocessor)), spec.dtype)
        for port, spec in zip(ports, specs, strict=True)
    ]


def fits(port: engine.Port, shape: Sequence[int]) -> bool:
    """Whether an input may have this shape; the first size may be any batch, also where the file has one."""
    if port.spec is None or len(shape) != len(port.spec.shape):
        return False
    return all(known in (None, size) for known, size in zip(port.spec.shape[1:], shape[1:], strict=True))


def _zeros(port: engine.Port, preprocessor: Preprocessor | None) -> NDArray[Any] | None:
    if port.spec is None:
        return None
    shape = _shape(port, port.spec, preprocessor)
    if shape and shape[0] is None:
        shape[0] = 1
    known = [dim for dim in shape if dim is not None]
    return blank(known, port.spec.dtype) if len(known) == len(shape) else None


def _shape(port: engine.Port, spec: engine.TensorSpec, preprocessor: Preprocessor | None) -> list[int | None]:
    shape = list(spec.shape)
    size = None if preprocessor is None else preprocessor.example_size
    if preprocessor is not None and size is not None and port.name == preprocessor.port.name:
        shape[slice(2, 4) if preprocessor.config.layout == "nchw" else slice(1, 3)] = size
    return shape
