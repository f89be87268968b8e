"""State: the tensors that a session keeps from run to run of one stream."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np

from engine.errors import InputError
from engine.graph.feedback import Feedback
from engine.graph.port import Port
from engine.graph.running.feeding import feed
from engine.limits import check_size
from engine.tensor import Array, TensorSpec, format_shape


class State:
    """Inputs of one stream that its last run computed; one run at a time uses it.

    A growing state has memory for its maximum size, which the system provides as it is written. Machine code appends to
    it in place: what is there is neither copied nor moved.

    Args:
        feedback: the outputs that are inputs of the next run.
        inputs: of the graph.
        batch: size of an open first dimension.
        initial: first values by name of the input; by default zeros, and nothing where the state grows.

    Raises:
        InputError: an initial value does not fit, or is needed because the size of the state is open.
    """

    def __init__(
        self, feedback: Sequence[Feedback], inputs: Sequence[Port], batch: int, initial: Mapping[str, Array]
    ) -> None:
        self._feedback = tuple(feedback)
        self._ports = [inputs[each.input] for each in feedback]
        self.lock = threading.Lock()
        given = dict(initial)
        values = [
            given.pop(port.name) if port.name in given else _empty(port, each.axis, batch)
            for port, each in zip(self._ports, self._feedback, strict=True)
        ]
        if given:
            names = ", ".join(port.name for port in self._ports)
            raise InputError(f"'{next(iter(given))}' is not the input of a state", expected=names)
        self._buffers = [self._buffer(*each) for each in zip(self._feedback, self._ports, values, strict=True)]
        self.values = [np.array(each) for each in values]
        self.update(values)

    @property
    def arrays(self) -> dict[str, Array]:
        """The state by name of the input, as views."""
        return {port.name: value for port, value in zip(self._ports, self.values, strict=True)}

    @property
    def length(self) -> int:
        """Number of elements along the growing dimension; 0 if no state grows."""
        pairs = zip(self._feedback, self.values, strict=True)
        return max((value.shape[each.axis] for each, value in pairs if each.axis is not None), default=0)

    def joined(self, ports: Sequence[Port], given: object) -> list[Array]:
        """Return all inputs of a run: those of the state, and the caller's for the other ports.

        Raises:
            InputError: the caller's do not fit.
        """
        values = dict(zip((each.input for each in self._feedback), self.values, strict=True))
        others = iter(feed([port for number, port in enumerate(ports) if number not in values], given))
        return [values[number] if number in values else next(others) for number, _ in enumerate(ports)]

    def truncate(self, length: int) -> None:
        """Drop what was appended after the first ``length`` elements.

        Raises:
            InputError: a state has fewer elements, or one that does not grow would have to go back.
        """
        with self.lock:
            if not 0 <= length <= self.length or any(each.axis is None for each in self._feedback):
                raise InputError("the state cannot be truncated", found=length, expected=f"0 to {self.length}")
            self.values = [
                value if each.axis is None else _part(value, each.axis, length)
                for each, value in zip(self._feedback, self.values, strict=True)
            ]

    def update(self, results: Sequence[Array]) -> None:
        """Take the results of a run as the state: one each, in the order of the feedback.

        Raises:
            InputError: a result exceeds the capacity, or has another shape than the state; the state stays as it was.
        """
        for each, port, buffer, result in zip(self._feedback, self._ports, self._buffers, results, strict=True):
            if each.axis is not None and result.shape[each.axis] > each.capacity:
                raise InputError(
                    "the state is full", where=f"input '{port.name}'", found=result.shape[each.axis],
                    expected=f"at most {each.capacity} (state_capacity)",
                )  # fmt: skip
            kept = _part(buffer, each.axis, result.shape[each.axis]) if each.axis is not None else buffer
            if kept.shape != result.shape:
                raise InputError(
                    "the state has another shape", where=f"input '{port.name}'", found=format_shape(result.shape),
                    expected=format_shape(kept.shape),
                )  # fmt: skip
        self.values = [
            result if each.axis is None else _stored(result, buffer, each.axis)
            for each, buffer, result in zip(self._feedback, self._buffers, results, strict=True)
        ]

    @staticmethod
    def _buffer(feedback: Feedback, port: Port, value: Array) -> Array:
        """Return the memory of a growing state; of another, its first value."""
        if feedback.axis is None:
            return value
        spec = feedback.whole(TensorSpec(value.shape, value.dtype))
        check_size(spec.sizes, spec.dtype)
        return np.zeros(spec.sizes, spec.dtype)


def _empty(port: Port, axis: int | None, batch: int) -> Array:
    """Return the state before the first run.

    Raises:
        InputError: another dimension than the first is open.
    """
    known = {0: batch, **({} if axis is None else {axis: 0})}
    spec = TensorSpec((None,), np.dtype(np.float32)) if port.spec is None else port.spec
    shape = [known.get(k) if k == axis or size is None else size for k, size in enumerate(spec.shape)]
    if port.spec is None or None in shape:
        raise InputError("the size of the state is open", where=f"input '{port.name}'", expected="an initial value")
    return np.zeros([size or 0 for size in shape], spec.dtype)


def _part(array: Array, axis: int, length: int) -> Array:
    return array[(slice(None),) * axis + (slice(length),)]


def _stored(result: Array, buffer: Array, axis: int) -> Array:
    """Return a result as a view of the state's memory; copied there unless machine code has written it in place."""
    view = _part(buffer, axis, result.shape[axis])
    if not np.may_share_memory(result, buffer):
        view[...] = result
    return view
