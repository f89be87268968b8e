"""What the protocol calls a model's inputs and outputs, and how it writes their shapes.

A graph's ports are in0, in1, ... and out0, out1, ... . Where the file gives them names that a person chose, those are
shown; the others are understood as well, and an answer uses the words of its request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

import engine
from app.models.model import Model
from app.protocol.v2.datatypes import datatype_of
from app.protocol.v2.request import V2Request, Wanted

# What converters number through.
_NUMBERED: Final = re.compile(r"(pnnx_(in|out)put_)?[0-9]+")
OPEN: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class WirePort:
    """An input or output as the protocol has it.

    Args:
        name: as metadata and answers have it.
        own: as the graph has it, ``in0``.
        datatype: FP32 where nothing is known; of complex numbers, which the protocol has not, the dtype's name.
        shape: -1 for what is open; None where not even the rank is known.
        port, named: as the graph has it, and by its name here, for messages in the client's words.
    """

    port: engine.Port
    named: engine.Port
    name: str
    own: str
    datatype: str
    shape: tuple[int, ...] | None

    @property
    def is_batched(self) -> bool:
        """Whether any number of items is taken."""
        return bool(self.shape) and self.shape is not None and self.shape[0] == OPEN


# An output, the name it gets in an answer, and how it is wanted.
Row: TypeAlias = tuple[WirePort, str, Wanted]


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
        self._shown = frozenset(port.name for port in self.inputs)
        # What an answer holds where nothing is said of its outputs, in the graph's words and in those that are shown.
        self._every = tuple((port, port.own, Wanted(name=port.name)) for port in self.outputs)
        self._every_shown = tuple((port, port.name, wanted) for port, _, wanted in self._every)

    def input(self, name: str) -> WirePort | None:
        """The input that a request means."""
        return self._inputs.get(name)

    def output(self, name: str) -> WirePort | None:
        """The output that a request means."""
        return self._outputs.get(name)

    def every_output(self, request: V2Request) -> tuple[Row, ...]:
        """What an answer holds to a request that names no outputs: in its words."""
        sent, shown = request.inputs, self._shown
        return self._every_shown if sent is None or any(each.name in shown for each in sent) else self._every


_known: WeakKeyDictionary[Model, WirePorts] = WeakKeyDictionary()


def are_known(model: Model) -> bool:
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
        WirePort(
            port=port,
            named=replace(port, name=name),
            name=name,
            own=port.name,
            datatype=_datatype(port),
            shape=_shape(port, axis),
        )
        for port, name, axis in zip(ports, _shown(ports), axes, strict=False)
    )


def _datatype(port: engine.Port) -> str:
    return "FP32" if port.spec is None else datatype_of(port.spec.dtype) or port.spec.dtype.name.upper()


def _shape(port: engine.Port, batch_axis: int | None) -> tuple[int, ...] | None:
    if port.spec is None:
        return None
    return tuple(OPEN if size is None or axis == batch_axis else size for axis, size in enumerate(port.spec.shape))


def _shown(ports: Sequence[engine.Port]) -> list[str]:
    given = [_given(port) for port in ports]
    names = [name for name in given if name is not None]
    if len(set(names)) < len(names) or {port.name for port in ports} & set(names):
        return [port.name for port in ports]  # a name that means two ports names none
    return [port.name if name is None else name for port, name in zip(ports, given, strict=True)]


def _given(port: engine.Port) -> str | None:
    """The name that somebody chose, if somebody did."""
    return next((name for name in (port.operand, *port.aliases) if not _NUMBERED.fullmatch(name)), None)


def _by_any_name(ports: Sequence[WirePort]) -> dict[str, WirePort]:
    others = {name: each for each in reversed(ports) for name in (each.port.operand, *each.port.aliases)}
    return others | {each.own: each for each in ports} | {each.name: each for each in ports}
