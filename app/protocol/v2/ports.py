"""Datatypes of the protocol, and names and shapes of a model's inputs and outputs.

Names are those of the graph's ports; aliases such as in0 and out0 are accepted. An output that a request names is
answered under the name it used, every other output under its own name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np

import engine
from app.models.servable import Servable
from app.protocol.v2.request import RequestedOutput

DYNAMIC: Final = -1
DType = np.dtype[Any]
# Strings and encoded images, of variable size and so without a dtype.
BYTES: Final = "BYTES"
_DTYPES: Final[dict[str, DType]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8), "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32), "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8), "INT16": np.dtype(np.int16), "INT32": np.dtype(np.int32), "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype(np.float32), "FP64": np.dtype(np.float64),
}  # fmt: skip
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}
NAMES: Final = (*_DTYPES, BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class WirePort:
    """Input or output as the protocol describes it.

    Args:
        port: the graph's port.
        datatype: FP32 if unknown; the dtype's name for complex numbers, which the protocol lacks.
        shape: -1 for dynamic sizes; None if even the rank is unknown.
    """

    port: engine.Port
    datatype: str
    shape: tuple[int, ...] | None

    @property
    def name(self) -> str:
        """Return the name in metadata and answers."""
        return self.port.name

    @property
    def is_batched(self) -> bool:
        """Return whether the first dimension is a dynamic batch."""
        return bool(self.shape) and self.shape is not None and self.shape[0] == DYNAMIC


# An output, its name in the answer, and how it is requested.
Row: TypeAlias = tuple[WirePort, str, RequestedOutput]


class WirePorts:
    """Inputs and outputs of one model."""

    def __init__(self, model: Servable) -> None:
        input_axes, output_axes = model.batch_axes
        inputs, states = _ports(model.signature.inputs, input_axes), model.signature.states
        # States are not described: requests need not have them, and may not in a sequence.
        self.inputs = tuple(port for port in inputs if port.name not in states)
        self.outputs = _ports(model.signature.outputs, output_axes)
        self.takes_batches = all(port.is_batched for port in (*self.inputs, *self.outputs)) and bool(self.inputs)
        self._inputs, self._outputs = _by_any_name(inputs), _by_any_name(self.outputs)
        # Outputs of an answer if the request names none.
        self.every_output: tuple[Row, ...] = tuple(
            (port, port.name, RequestedOutput(name=port.name)) for port in self.outputs
        )

    def input(self, name: str) -> WirePort | None:
        """Return the input of a name or alias, or None."""
        return self._inputs.get(name)

    def output(self, name: str) -> WirePort | None:
        """Return the output of a name or alias, or None."""
        return self._outputs.get(name)


_known: WeakKeyDictionary[Servable, WirePorts] = WeakKeyDictionary()


def has_wire_ports(model: Servable) -> bool:
    """Return whether the ports are cached; making them may take a run or two, to learn how the model batches."""
    return model in _known


def wire_ports(model: Servable) -> WirePorts:
    """Return the ports of a model, made once."""
    ports = _known.get(model)
    if ports is None:
        ports = _known[model] = WirePorts(model)
    return ports


def _ports(ports: Sequence[engine.Port], batch_axes: Sequence[int | None]) -> tuple[WirePort, ...]:
    axes = [*batch_axes, *[None] * len(ports)]
    return tuple(
        WirePort(port=port, datatype=_datatype(port), shape=_shape(port, axis))
        for port, axis in zip(ports, axes, strict=False)
    )


def _datatype(port: engine.Port) -> str:
    return "FP32" if port.spec is None else datatype_of(port.spec.dtype) or port.spec.dtype.name.upper()


def _shape(port: engine.Port, batch_axis: int | None) -> tuple[int, ...] | None:
    if port.spec is None:
        return None
    return tuple(DYNAMIC if size is None or axis == batch_axis else size for axis, size in enumerate(port.spec.shape))


def _by_any_name(ports: Sequence[WirePort]) -> dict[str, WirePort]:
    return {name: each for each in ports for name in (each.name, *each.port.aliases)}


def dtype_of(datatype: str) -> DType | None:
    """Return the dtype of a datatype, or None for BYTES and unknown ones."""
    return _DTYPES.get(datatype)


def datatype_of(dtype: DType) -> str | None:
    """Return the datatype of a dtype, BYTES for strings, or None if the protocol lacks it (complex numbers)."""
    return BYTES if dtype.hasobject else _NAMES.get(dtype)


def config_name(datatype: str) -> str:
    """Return the name of a datatype in a model's configuration: TYPE_FP32, but TYPE_STRING for BYTES."""
    return "TYPE_STRING" if datatype == BYTES else f"TYPE_{datatype}"
