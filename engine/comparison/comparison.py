"""Comparison of a run with recorded values, operator by operator."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.comparison.difference import ATOL, Difference, measure
from engine.comparison.origin import NonFiniteOrigin, find_origins, holds
from engine.errors import InputError, ParameterError
from engine.graph import Port, RuntimeGraph, RuntimeOperand
from engine.graph.batch.batching import is_other_batch
from engine.graph.running.feeding import feed
from engine.session import Outputs, Session
from engine.tensor import BFLOAT16, Array, DType

OPERAND: Final = "operand/"
_PORT: Final = re.compile(r"(in|out)_(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Recorded values by kind.

    Args:
        inputs: one array an input of the graph, in order.
        operands: operand name -> value.
        outputs: index of an output -> value.
    """

    inputs: tuple[Array, ...]
    operands: Mapping[str, Array]
    outputs: Mapping[int, Array]


def sort_out(graph: RuntimeGraph, recorded: Mapping[str, Any]) -> Reference:
    """Sort recorded arrays by their keys.

    Raises:
        InputError: an unknown key, a missing input, or a value that is not an array of numbers.
    """
    arrays = {key: _as_array(key, value) for key, value in recorded.items()}
    ports: dict[str, dict[int, Array]] = {"in": {}, "out": {}}
    operands: dict[str, Array] = {}
    for key, array in arrays.items():
        place = _port(graph, key)
        if place is None:
            operands[_operand(graph, key)] = array
        elif place[1] in ports[place[0]]:
            raise InputError(f"the reference has {place[0]}put {place[1]} twice", found=f"'{key}'", expected="once")
        else:
            ports[place[0]][place[1]] = array
    inputs = tuple(_input(index, port, ports["in"], operands) for index, port in enumerate(graph.inputs))
    if not ports["out"] and not operands.keys() - {port.operand for port in graph.inputs}:
        raise InputError(
            "the reference contains nothing to compare", found=_keys(recorded), expected="out_0 or operands"
        )
    return Reference(inputs=inputs, operands=operands, outputs=ports["out"])


def _as_array(key: str, value: Any) -> Array:
    array = np.asarray(value)
    if array.dtype.kind == "V" and array.dtype.itemsize == BFLOAT16.itemsize:
        array = array.view(BFLOAT16)  # numpy writes the type but cannot read it
    if array.dtype.kind not in "biufc" and array.dtype != BFLOAT16:
        raise InputError("not an array of numbers", where=f"'{key}' of the reference", found=array.dtype)
    return array


def _port(graph: RuntimeGraph, key: str) -> tuple[str, int] | None:
    """Return ``in`` or ``out`` and the number of the port that a key names; None for an operand."""
    numbered = _PORT.fullmatch(key)
    if numbered is not None:
        return numbered[1], _port_index(graph, numbered)
    if key.removeprefix(OPERAND) in graph.operands:
        return None
    for kind, ports in (("in", graph.inputs), ("out", graph.outputs)):
        for index, port in enumerate(ports):
            if key == port.name or key in port.aliases:
                return kind, index
    return None


def _port_index(graph: RuntimeGraph, key: re.Match[str]) -> int:
    ports = graph.inputs if key[1] == "in" else graph.outputs
    if int(key[2]) >= len(ports):
        kind = "inputs" if key[1] == "in" else "outputs"
        raise InputError(f"the reference has '{key[0]}'", expected=f"at most {len(ports)} {kind}, as the graph has")
    return int(key[2])


def _operand(graph: RuntimeGraph, key: str) -> str:
    name = key.removeprefix(OPERAND)
    if name in graph.operands:
        return name
    near = difflib.get_close_matches(name, graph.operands, n=3)
    expected = f"in_0, out_0 or the name of an operand{', such as ' + ', '.join(near) if near else ''}"
    raise InputError("the reference has an unknown key", found=f"'{key}'", expected=expected)


def _input(index: int, port: Port, given: Mapping[int, Array], operands: Mapping[str, Array]) -> Array:
    array = given.get(index, operands.get(port.operand))
    if array is None:
        expected = f"in_{index} or operand/{port.operand} ({port.spec})"
        raise InputError(f"the reference has no value for input '{port.name}'", expected=expected)
    return _portable(array, port.spec.dtype) if port.spec is not None else array


def _portable(array: Array, dtype: DType) -> Array:
    """Return a value in the port's dtype: bfloat16 is commonly recorded as float32, which holds all its values."""
    return array.astype(dtype) if dtype == BFLOAT16 and array.dtype == np.float32 else array


def _keys(recorded: Mapping[str, Any]) -> str:
    return ", ".join(list(recorded)[:8]) or "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedValue:
    """One recorded value and what the graph computed for it.

    Args:
        index: position of the operator in the execution order.
        operator, type: the operator that makes the value.
        operand: the value's name in the graph.
        output: its name if the value was recorded as an output of the graph, else None.
        place: index of that output, else None.
        difference: its error.
    """

    index: int
    operator: str
    type: str
    operand: str
    output: str | None
    place: int | None
    difference: Difference


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Result of a comparison.

    Args:
        rows: every recorded value, in execution order.
        suspects: operators among which the first divergence must have its cause, in execution order: the diverging one
            and those before it that were not recorded. Empty when nothing diverges.
        origins: where the first NaN and the first infinity of the run come from.
    """

    rows: tuple[ComparedValue, ...]
    suspects: tuple[str, ...]
    origins: tuple[NonFiniteOrigin, ...]

    @property
    def first(self) -> ComparedValue | None:
        """The first value in execution order that diverges."""
        return next((row for row in self.rows if row.difference.diverges), None)

    @property
    def worst_output(self) -> ComparedValue | None:
        """The recorded output with the largest error for its scale."""
        outputs = [row for row in self.rows if row.output is not None]
        return max(outputs, key=lambda row: (row.difference.diverges, row.difference.relative), default=None)


def compare(
    session: Session, recorded: Mapping[str, Any], *, rtol: float | None = None, atol: float = ATOL
) -> Comparison:
    """Run a graph on recorded inputs and compare every recorded value with the computed one.

    Args:
        session: runs the graph.
        recorded: ``in_0``, ... the inputs; ``out_0``, ... the outputs, nested results flattened; ``operand/NAME`` or
            ``NAME`` the values of operands. Outputs alone are enough.
        rtol: allowed error as a share of the largest magnitude of the recorded value; by default 1e-4 for float32.
        atol: allowed absolute error, added to it.

    Raises:
        InputError: the key of a recorded value is unknown, an input is missing or does not fit.
        ParameterError: a tolerance is negative.
        EngineError: the run fails.
    """
    for name, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not value >= 0:
            raise ParameterError(f"{name} must not be negative", found=value)
    reference = sort_out(session.graph, recorded)
    in_parts = _runs_in_parts(session, reference)
    outputs = session.run(reference.inputs, taps=reference.operands)
    rows = sorted(_rows(session.graph, reference, outputs, rtol, atol), key=lambda row: row.index)
    first = next((row for row in rows if row.difference.diverges), None)
    return Comparison(
        rows=tuple(rows),
        suspects=() if first is None else _suspects(session.graph, first, rows),
        origins=() if in_parts else _origins(session, reference, outputs),
    )


def _runs_in_parts(session: Session, reference: Reference) -> bool:
    """Return whether the recorded batch is split, so that operands have no value of their own."""
    graph = session.graph
    if not is_other_batch(graph.inputs, feed(graph.inputs, reference.inputs)) or session.batching.mode != "split":
        return False
    if reference.operands.keys() - {port.operand for port in graph.inputs}:
        problem = "operands cannot be compared at a batch that runs in parts"
        raise InputError(problem, found=len(reference.inputs[0]), expected=f"a batch of {session.batching.exported}")
    return True


def _rows(
    graph: RuntimeGraph, reference: Reference, outputs: Outputs, rtol: float | None, atol: float
) -> Iterator[ComparedValue]:
    made_by = output_operands(graph)
    tapped = [(graph.operands[name], None, outputs.taps[name], array) for name, array in reference.operands.items()]
    returned = [(made_by[k], k, outputs[k], array) for k, array in reference.outputs.items()]
    for operand, place, value, array in (*tapped, *returned):
        op = operand.producer
        yield ComparedValue(
            index=-1 if op is None else op.index,
            operator="" if op is None else op.name,
            type="" if op is None else op.type,
            operand=operand.name,
            output=None if place is None else outputs.names[place],
            place=place,
            difference=measure(value, array, rtol=rtol, atol=atol),
        )


def output_operands(graph: RuntimeGraph) -> list[RuntimeOperand]:
    """Return the operand of every output: the items of a returned tuple, not the tuple, if they are known."""
    returned = dict.fromkeys(port.operand for port in graph.outputs)
    leaves = [leaf for name in returned for leaf in _leaves(graph.operands[name])]
    return leaves if len(leaves) == len(graph.outputs) else [graph.operands[port.operand] for port in graph.outputs]


def _leaves(operand: RuntimeOperand) -> list[RuntimeOperand]:
    op = operand.producer
    if op is None or op.type not in ("prim::TupleConstruct", "prim::ListConstruct", "prim::DictConstruct"):
        return [operand]
    items = op.inputs[1::2] if op.type == "prim::DictConstruct" else op.inputs
    return [leaf for item in items for leaf in _leaves(item)]


def _suspects(graph: RuntimeGraph, first: ComparedValue, rows: list[ComparedValue]) -> tuple[str, ...]:
    """Return the operators between the first divergence and values that are known to be right."""
    sound = {row.operand for row in rows if not row.difference.diverges}
    found: dict[str, int] = {}
    waiting = [graph.operands[first.operand]]
    while waiting:
        op = waiting.pop().producer
        if op is not None and op.name not in found and op.inputs:
            found[op.name] = op.index
            waiting += [operand for operand in op.inputs if operand.name not in sound]
    return tuple(sorted(found, key=found.__getitem__)) or (first.operator,)


def _origins(session: Session, reference: Reference, outputs: Outputs) -> tuple[NonFiniteOrigin, ...]:
    """Return the origins of non-finite values; a second run keeps every operand, only if something is not finite."""
    values = [*outputs, *outputs.taps.values()]
    if not any(holds("NaN", value) or holds("infinity", value) for value in values):
        return ()
    graph = session.graph
    taps = session.run(reference.inputs, taps=graph.operands).taps
    recorded: dict[str, Array] = {
        **{output_operands(graph)[k].name: array for k, array in reference.outputs.items()},
        **reference.operands,
    }
    return find_origins(graph.operators, taps, recorded)
