"""Feedback: outputs of a graph that are inputs of its next run, such as a decoder's keys or a recurrent state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from engine.errors import InputError
from engine.graph.port import Port
from engine.tensor import TensorSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Feedback:
    """Output that is an input of the next run.

    Args:
        input, output: numbers of the ports.
        axis: dimension along which runs append; None for a state of one size.
        capacity: maximum size of that dimension.
    """

    input: int
    output: int
    axis: int | None
    capacity: int

    def whole(self, spec: TensorSpec) -> TensorSpec:
        """Return the spec of the memory for a state with this spec."""
        sizes = (self.capacity if axis == self.axis else size for axis, size in enumerate(spec.shape))
        return TensorSpec(tuple(sizes), spec.dtype)


def whole_inputs(feedback: Sequence[Feedback], specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Return the specs of inputs with all memory of the states that grow."""
    whole = {each.input: each for each in feedback if each.axis is not None}
    return [whole[port].whole(spec) if port in whole else spec for port, spec in enumerate(specs)]


def find_feedback(
    inputs: Sequence[Port], outputs: Sequence[Port], states: Mapping[str, str], capacity: int
) -> tuple[Feedback, ...]:
    """Return the feedback that names of ports describe.

    A state grows along the dimension, other than the first, that is open in both ports. A dimension with the same name
    in both does not grow.

    Args:
        states: name of the input by the name of the output.

    Raises:
        InputError: there is no such input or output, one is named twice, or a state would grow along two dimensions.
    """
    found: list[Feedback] = []
    for output, input_ in states.items():
        source, target = _number(outputs, output, "output"), _number(inputs, input_, "input")
        axes = _open_in_both(inputs[target], outputs[source])
        if any(target == each.input for each in found):
            raise InputError("two outputs are the next value of one state", where=f"input '{input_}'")
        if len(axes) > 1:
            raise InputError("a state grows along two dimensions", where=f"input '{input_}'", found=axes)
        found.append(
            Feedback(input=target, output=source, axis=next(iter(axes), None), capacity=capacity if axes else 0)
        )
    return tuple(found)


def _number(ports: Sequence[Port], name: str, kind: str) -> int:
    for number, port in enumerate(ports):
        if name in (port.name, *port.aliases):
            return number
    raise InputError(f"unknown {kind} '{name}'", where="states", expected=", ".join(port.name for port in ports))


def _open_in_both(given: Port, returned: Port) -> list[int]:
    if given.spec is None or returned.spec is None or given.spec.rank != returned.spec.rank:
        return []
    pairs = zip(given.spec.shape, returned.spec.shape, strict=True)
    axes = [axis for axis, sizes in enumerate(pairs) if axis and sizes == (None, None)]
    return [axis for axis in axes if not _name(given, axis) or _name(given, axis) != _name(returned, axis)]


def _name(port: Port, axis: int) -> str | None:
    return port.size_names[axis] if port.size_names else None
