"""The facts of a blueprint, all but its code and constants, as plain data and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final

from engine.compiler.blueprint import Address, Blueprint, Home, NativeStep, ReferenceCall, Region, Segment
from engine.passes import PassReport
from engine.tensor import Array

_COMPOUND: Final = frozenset({"code", "constants", "steps", "segments", "outputs", "reasons", "operators", "passes"})
# Numbers and the like, which need no translation, whichever a blueprint has.
_PLAIN: Final = tuple(each.name for each in fields(Blueprint) if each.name not in _COMPOUND)


def to_facts(blueprint: Blueprint) -> dict[str, Any]:
    """What JSON can hold."""
    return {
        **{name: getattr(blueprint, name) for name in _PLAIN},
        "code": [len(each) for each in blueprint.code],
        "steps": [_from_step(each) for each in blueprint.steps],
        "segments": [[each.first, each.last, _from_call(each.call)] for each in blueprint.segments],
        "outputs": [each if isinstance(each, str) else _from_region(each) for each in blueprint.outputs],
        "reasons": blueprint.reasons,
        "operators": blueprint.operators,
        "passes": [each.describe() for each in blueprint.passes],
    }


def from_facts(facts: Mapping[str, Any], code: tuple[bytes, ...], constants: Array) -> Blueprint:
    """The blueprint again.

    Raises:
        KeyError, TypeError, ValueError: the facts are not of ``to_facts``.
    """
    return Blueprint(
        **{name: facts[name] for name in _PLAIN},
        code=code,
        constants=constants,
        steps=tuple(map(_to_step, facts["steps"])),
        segments=tuple(Segment(first=first, last=last, call=_to_call(call)) for first, last, call in facts["segments"]),
        outputs=tuple(each if isinstance(each, str) else _to_region(each) for each in facts["outputs"]),
        reasons=dict(facts["reasons"]),
        operators=tuple(facts["operators"]),
        passes=tuple(PassReport(**{**each, "changed": tuple(each["changed"])}) for each in facts["passes"]),
    )


def _from_step(step: NativeStep) -> list[Any]:
    arguments = [_from_address(each) for each in step.arguments]
    return [step.function, step.kind, step.chunks, arguments, step.operators, step.flops, step.bytes]


def _to_step(values: Sequence[Any]) -> NativeStep:
    function, kind, chunks, arguments, operators, flops, moved = values
    return NativeStep(
        function=function,
        kind=kind,
        chunks=chunks,
        arguments=tuple(map(_to_address, arguments)),
        operators=tuple(operators),
        flops=flops,
        bytes=moved,
    )


def _from_call(call: ReferenceCall | None) -> list[Any] | None:
    return None if call is None else [call.operator, _from_regions(call.inputs), _from_regions(call.outputs)]


def _to_call(values: Sequence[Any] | None) -> ReferenceCall | None:
    if values is None:
        return None
    operator, inputs, outputs = values
    return ReferenceCall(operator=operator, inputs=_to_regions(inputs), outputs=_to_regions(outputs))


def _from_regions(regions: Sequence[Region | None]) -> list[Any]:
    return [None if each is None else _from_region(each) for each in regions]


def _to_regions(values: Sequence[Any]) -> tuple[Region | None, ...]:
    return tuple(None if each is None else _to_region(each) for each in values)


def _from_region(region: Region) -> list[Any]:
    return [_from_address(region.address), region.shape, region.strides, region.dtype]


def _to_region(values: Sequence[Any]) -> Region:
    address, shape, strides, dtype = values
    return Region(address=_to_address(address), shape=tuple(shape), strides=tuple(strides), dtype=dtype)


def _from_address(address: Address) -> list[int]:
    return [int(address.home), address.port, address.offset]


def _to_address(values: Sequence[int]) -> Address:
    home, port, offset = values
    return Address(home=Home(home), port=port, offset=offset)
