"""The graph's own inputs and outputs, as callers name them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.tensor import TensorSpec, format_shape

SizeNames: TypeAlias = Mapping[str, tuple[str | None, ...]]

_MOST_DIGITS: Final = 18
# Names that converters make from numbers, of operands and of operators.
_NUMBER: Final = re.compile(r"[0-9]+")
_NUMBERED: Final = re.compile(r"(pnnx_input_)?[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input or output of the graph.

    Args:
        name: the file's, if any; else ``in0``, ``in1``, ... and ``out0``, ``out1``, ...
        operand: the operand it stands for; an item of a returned tuple has the tuple's name.
        spec: shape and dtype, None if unknown.
        aliases: other names a caller may use, ``in0`` or ``out0`` included; none of them is another port's name.
        size_names: names of the dynamic dimensions in the file, None for one without; empty if none has a name.
            Dimensions of one name have one size in every run.
    """

    name: str
    operand: str
    spec: TensorSpec | None
    aliases: tuple[str, ...] = ()
    size_names: tuple[str | None, ...] = ()

    @property
    def shape_text(self) -> str:
        """Shape as text for messages: ``[batch, 3, ?, ?]``; ``any`` if unknown."""
        return "any" if self.spec is None else format_shape(self.spec.shape, self.size_names)


def input_operators(operators: Sequence[RuntimeOperator]) -> list[RuntimeOperator]:
    """Return the graph's inputs in the order of the model's arguments: by the number in their name.

    A converter that drops an unused argument leaves a gap in the numbering, never another order.
    """
    inputs = [op for op in operators if op.type == "pnnx.Input"]
    return sorted(inputs, key=_number) if all(_number(op) >= 0 for op in inputs) else inputs


def _number(op: RuntimeOperator) -> int:
    # From the end: a search from the start would try every digit of a long name as the first one.
    digits = op.name[len(op.name.rstrip("0123456789")) :]
    return int(digits) if 0 < len(digits) <= _MOST_DIGITS else -1


def input_ports(operators: Sequence[RuntimeOperator], size_names: SizeNames) -> tuple[Port, ...]:
    """Return the graph's inputs as ports."""
    return _named(
        [
            Port(
                name=f"in{index}",
                operand=op.outputs[0].name,
                spec=op.outputs[0].spec,
                aliases=(op.outputs[0].name, op.name),
                size_names=_names_of(op.outputs[0].spec, size_names.get(op.outputs[0].name)),
            )
            for index, op in enumerate(operators)
        ]
    )


def output_ports(operands: Sequence[RuntimeOperand], size_names: SizeNames) -> tuple[Port, ...]:
    """Return the graph's outputs as ports, with nested tuples, lists and dicts flattened."""
    flat = [
        (operand.name, value if isinstance(value, TensorSpec) else None)
        for operand in operands
        for value in flatten(operand.value)
    ]
    return _named(
        [
            Port(
                name=f"out{index}",
                operand=name,
                spec=spec,
                aliases=(name,),
                size_names=_names_of(spec, size_names.get(name)),
            )
            for index, (name, spec) in enumerate(flat)
        ]
    )


def _named(ports: Sequence[Port]) -> tuple[Port, ...]:
    """Return numbered ports under the names that the file gives them; the other names become aliases.

    A name shared by several ports names none of them, and an alias of several ports is dropped.
    """
    given = [_given(port) for port in ports]
    times = Counter(given)
    names = [name if times[name] == 1 else port.name for name, port in zip(given, ports, strict=True)]
    if len(set(names)) < len(names):
        names = [port.name for port in ports]
    known = [dict.fromkeys((port.name, *port.aliases)) for port in ports]
    means = Counter([*names, *(alias for each in known for alias in each)])
    return tuple(
        replace(port, name=name, aliases=tuple(alias for alias in aliases if means[alias] == 1))
        for port, name, aliases in zip(ports, names, known, strict=True)
    )


def _given(port: Port) -> str:
    """Return the file's name for a numbered port: that of its operand, else of its operator; else the port's own."""
    if not _NUMBER.fullmatch(port.operand):
        return port.operand
    return next((name for name in port.aliases if not _NUMBERED.fullmatch(name)), port.name)


def _names_of(spec: TensorSpec | None, given: Sequence[str | None] | None) -> tuple[str | None, ...]:
    """Return the names of dynamic dimensions, None for known ones; empty if there are none."""
    if spec is None or given is None or len(given) != spec.rank:
        return ()
    names = tuple(name if size is None else None for name, size in zip(given, spec.shape, strict=True))
    return names if any(names) else ()


def static_specs(ports: Sequence[Port]) -> list[TensorSpec] | None:
    """Return the shapes and dtypes of ports; None if one is not fully known."""
    specs = [port.spec for port in ports if port.spec is not None and port.spec.is_static]
    return specs if len(specs) == len(ports) else None


def batch_size(ports: Sequence[Port]) -> int | None:
    """Return the batch size the graph was exported with; None if it is dynamic or the inputs have none in common."""
    sizes = {port.spec.shape[0] if port.spec is not None and port.spec.shape else None for port in ports}
    return sizes.pop() if len(sizes) == 1 else None


def state_axis(index: int, spec: TensorSpec, exported: int) -> int | None:
    """Return the batch axis of an input: 1 for a possible state (layers, N, width), else 0; None without a batch."""
    if not spec.shape:
        return None
    if index and spec.rank == 3 and spec.shape[1] == exported:
        return 1
    return 0 if spec.shape[0] == exported else None


def may_be_state(ports: Sequence[Port], index: int) -> bool:
    """Return whether another size of an input's second dimension may be a batch; only the graph can tell."""
    first, spec = ports[0].spec, ports[index].spec
    if first is None or spec is None or not first.shape or not first.shape[0]:
        return False
    return state_axis(index, spec, first.shape[0]) == 1


def flatten(value: object) -> Iterator[object]:
    """Yield the leaves of nested tuples, lists and dicts, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from flatten(item)
    else:
        yield value
