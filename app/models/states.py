"""Models whose outputs are inputs of the next run: rows of a sequence, run one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import ConfigError, InputMismatchError
from app.memory.reservation import charge, running
from app.messages import cut, quoted
from app.signature import find_port

Arrays = Mapping[str, NDArray[Any]]


class Steps:
    """Runs of a model with states, for many threads at once.

    A step is a run on one row, with the states that the step before returned.

    Args:
        session: runs the model.
        states: name of an output to the name of the input that is its value in the next step.
        inputs, outputs: of the model.

    Raises:
        ConfigError: there is no such input or output, or the size of a state is unknown.
    """

    def __init__(
        self,
        session: engine.Session,
        states: Mapping[str, str],
        inputs: Sequence[engine.Port],
        outputs: Sequence[engine.Port],
    ) -> None:
        self._session = session
        self._order = [port.name for port in inputs]
        self._states: dict[str, str] = {}
        self._first: dict[str, NDArray[Any]] = {}
        for output, input_ in states.items():
            source, target = find_port(outputs, output), find_port(inputs, input_)
            if source is None:
                raise ConfigError(f"states: found '{cut(output)}', expected one of {_names(outputs)}")
            if target is None or target.name in self._first:
                raise ConfigError(
                    f"states.{cut(output)}: found '{cut(input_)}', expected one of {_names(inputs)}, each once"
                )
            self._states[source.name] = target.name
            self._first[target.name] = _zeros(target)

    @property
    def inputs(self) -> frozenset[str]:
        """Return the names of the inputs that are states."""
        return frozenset(self._first)

    @property
    def state_bytes(self) -> int:
        """Return the bytes of the states of one sequence."""
        return sum(array.nbytes for array in self._first.values())

    def first_states(self) -> dict[str, NDArray[Any]]:
        """Return the states before the first step: zeros."""
        return dict(self._first)

    def step(
        self, row: Arrays, states: Arrays, cancelled: Callable[[], bool] | None = None
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """Return the outputs of one step without the states, and the next states.

        Raises:
            EngineError: the engine rejects the inputs, or fails.
        """
        result = self._session.run({**row, **states}, cancelled=cancelled)
        found = dict(zip(result.names, result, strict=True))
        after = {input_: found.pop(output) for output, input_ in self._states.items()}
        return found, after

    def run(
        self,
        tensors: Arrays,
        states: Arrays | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[Any]]]:
        """Return the outputs of all rows, each computed with the states after the row before, and the last states.

        Inputs without dimensions are the same for all rows.

        Args:
            tensors: inputs without the states.
            states: states before the first row, by name of the input; None for zeros.
            cancelled: polled between operators.

        Raises:
            ServiceError: there is not enough memory, or no row.
            EngineError: the engine rejects the inputs, or fails.
        """
        rows = max((len(array) for array in tensors.values() if array.ndim), default=1)
        if not rows:
            raise InputMismatchError("inputs: found no rows, expected at least one, each a step of the sequence")
        after = self.first_states() if states is None else dict(states)
        found: list[dict[str, NDArray[Any]]] = []
        with running(self._session.estimate_bytes(self.example(tensors))):
            for at in range(rows):
                outputs, after = self.step(_row(tensors, at) if rows > 1 else tensors, after, cancelled)
                found.append(outputs)
                charge(sum(array.nbytes for array in outputs.values()))
        outputs = found[0] if rows == 1 else {name: np.concatenate([each[name] for each in found]) for name in found[0]}
        return outputs | {output: after[input_] for output, input_ in self._states.items()}, after

    def is_ready(self, tensors: Arrays) -> bool:
        """Return whether there is compiled code for one step on these inputs.

        Raises:
            EngineError: the inputs do not fit the graph.
        """
        return self._session.is_compiled(self.example(tensors), exact=False)

    def example(self, tensors: Arrays) -> dict[str, NDArray[Any]]:
        """Return the inputs of the first step, in the order of the graph."""
        values = {**_row(tensors, 0), **self._first}
        return {name: values[name] for name in self._order if name in values}


def _names(ports: Sequence[engine.Port]) -> str:
    return quoted(port.name for port in ports)


def _row(tensors: Arrays, at: int) -> dict[str, NDArray[Any]]:
    return {name: array[at : at + 1] if array.ndim else array for name, array in tensors.items()}


def _zeros(port: engine.Port) -> NDArray[Any]:
    """Return a state before the first step; an open size is that of a batch, which is 1.

    Raises:
        ConfigError: the file does not tell the shape.
    """
    if port.spec is None:
        raise ConfigError(f"states: input '{port.name}' has no shape in the file, expected one")
    return np.zeros([1 if size is None else size for size in port.spec.shape], port.spec.dtype)
