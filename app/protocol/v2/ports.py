"""What the protocol calls a model's inputs and outputs, and how it writes their shapes.

Names are those of the graph's ports. Their aliases, in0 and out0 among them, are understood as well. An output that a
request asks for is answered under the name it used, every other under its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

import ml_dtypes
import numpy as np

import engine
from app.models.model import Model
from app.protocol.v2.request import RequestedOutput

DYNAMIC: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WirePort:
    """An input or output as the protocol has it.

    Args:
        port: as the graph has it.
        datatype: FP32 where nothing is known; of complex numbers, which the protocol has not, the dtype's name.
        shape: -1 for what is open; None where not even the rank is known.
    """

    port: engine.Port
    datatype: str
    shape: tuple[int, ...] | None

    @property
    def name(self) -> str:
        """The name in metadata and answers."""
        return self.port.name

    @property
    def is_batched(self) -> bool:
        """Whether any number of items is taken."""
        return bool(self.shape) and self.shape is not None and self.shape[0] == DYNAMIC


# An output, the name it gets in an answer, and how it is wanted.
Row: TypeAlias = tuple[WirePort, str, RequestedOutput]


class WirePorts:
    """Those of one model."""

    def __init__(self, model: Model) -> None:
        batching = model.session.batching
        is_free = batching.mode != "fixed"
        inputs, outputs = model.signature.inputs, model.signature.outputs
        self.inputs = _ports(inputs, batching.inputs if is_free else ())
        self.outputs = _ports(outputs, (batching.outputs or ()) if is_free else ())
        self.takes_batches = all(port.is_batched for port in (*self.inputs, *self.outputs)) and bool(self.inputs)
        self._inputs, self._outputs = _by_any_name(self.inputs), _by_any_name(self.outputs)
        # Outputs of an answer to a request that names none.
        self.every_output: tuple[Row, ...] = tuple(
            (port, port.name, RequestedOutput(name=port.name)) for port in self.outputs
        )

    def input(self, name: str) -> WirePort | None:
        """The input that a request means."""
        return self._inputs.get(name)

    def output(self, name: str) -> WirePort | None:
        """The output that a request means."""
        return self._outputs.get(name)


_known: WeakKeyDictionary[Model, WirePorts] = WeakKeyDictionary()


def has_wire_ports(model: Model) -> bool:
    """Whether they were made already: how a model takes batches may have to be tried, which takes a run or two."""
    return model in _known


def wire_ports(model: Model) -> WirePorts:
    """A model's; made once."""
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


DType = np.dtype[Any]

# Strings and encoded pictures: of no size of their own, so of no dtype.
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


def dtype_of(datatype: str) -> DType | None:
    """The dtype a datatype stands for; None for BYTES, and for what is none."""
    return _DTYPES.get(datatype)


def datatype_of(dtype: DType) -> str | None:
    """What the protocol calls a dtype, BYTES that of texts; None for those it has no word for, as complex numbers."""
    return BYTES if dtype.hasobject else _NAMES.get(dtype)


def config_name(datatype: str) -> str:
    """What a model's configuration calls it: TYPE_FP32, and TYPE_STRING for BYTES."""
    return "TYPE_STRING" if datatype == BYTES else f"TYPE_{datatype}"
