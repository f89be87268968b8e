"""Facts of an executable, all but its code and constants, as plain data and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Final

from engine.compiler.addresses import Address, space_of
from engine.compiler.executable import (
    Buffer,
    Executable,
    NativeStep,
    NativeSteps,
    ReferenceCall,
    Region,
    Segment,
    no_weights,
)
from engine.passes import PassReport
from engine.tensor import Array

_COMPOUND: Final = frozenset(
    {
        "code",
        "constants",
        "weights",
        "steps",
        "segments",
        "outputs",
        "reasons",
        "operators",
        "passes",
        "buffers",
        "clean",
    }
)
# Fields that JSON stores as they are.
_PLAIN: Final = tuple(each.name for each in fields(Executable) if each.name not in _COMPOUND)


def to_facts(executable: Executable) -> dict[str, Any]:
    """Return the facts as JSON-compatible data."""
    return {
        **{name: getattr(executable, name) for name in _PLAIN},
        "code": [len(each) for each in executable.code],
        **{
            name: _listed(getattr(executable, name))
            for name in ("steps", "segments", "outputs", "reasons", "operators", "buffers", "clean")
        },
        "passes": [each.describe() for each in executable.passes],
    }


def from_facts(
    facts: Mapping[str, Any], code: tuple[bytes, ...], constants: Array, weights: Array | None = None
) -> Executable:
    """Rebuild the executable.

    Raises:
        KeyError, TypeError, ValueError, IndexError: the facts are not of ``to_facts``.
    """
    steps = NativeSteps.of(map(_step, facts["steps"]))
    segments = tuple(Segment(first=first, last=last, call=_call(call)) for first, last, call in facts["segments"])
    if any(not 0 <= each.first <= each.last <= len(steps) for each in segments):
        raise ValueError("a segment beyond the last step")
    return Executable(
        **{name: facts[name] for name in _PLAIN},
        code=code,
        constants=constants,
        weights=no_weights() if weights is None else weights,
        steps=steps,
        segments=segments,
        outputs=tuple(each if isinstance(each, str) else _region(each) for each in facts["outputs"]),
        reasons=dict(facts["reasons"]),
        operators=tuple(facts["operators"]),
        buffers=tuple(map(_buffer, facts["buffers"])),
        clean=tuple((first, last) for first, last in facts["clean"]),
        passes=tuple(PassReport(**{**each, "changed": tuple(each["changed"])}) for each in facts["passes"]),
    )


def _listed(value: Any) -> Any:
    """Return nested dataclasses as lists of their fields."""
    if isinstance(value, tuple | NativeSteps):
        return [_listed(each) for each in value]
    return [_listed(getattr(value, each.name)) for each in fields(value)] if is_dataclass(value) else value


def _step(values: Sequence[Any]) -> NativeStep:
    function, kind, chunks, arguments, operators, flops, moved, is_dealt = values
    return NativeStep(
        function=function,
        kind=kind,
        chunks=chunks,
        arguments=tuple(map(_address, arguments)),
        operators=tuple(operators),
        flops=flops,
        bytes=moved,
        is_dealt=is_dealt,
    )


def _buffer(values: Sequence[Any]) -> Buffer:
    offset, size, first, last, operands = values
    return Buffer(offset=offset, bytes=size, first=first, last=last, operands=tuple(operands))


def _call(values: Sequence[Any] | None) -> ReferenceCall | None:
    if values is None:
        return None
    operator, inputs, outputs = values
    return ReferenceCall(operator=operator, inputs=_regions(inputs), outputs=_regions(outputs))


def _regions(values: Sequence[Any]) -> tuple[Region | None, ...]:
    return tuple(None if each is None else _region(each) for each in values)


def _region(values: Sequence[Any]) -> Region:
    address, shape, strides, dtype = values
    return Region(address=_address(address), shape=tuple(shape), strides=tuple(strides), dtype=dtype)


def _address(value: Any) -> Address:
    space_of(value)  # raises if it is not an address
    return Address(value)
