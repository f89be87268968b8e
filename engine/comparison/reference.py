"""Recorded values, sorted into inputs, operands and outputs of a graph.

Keys are ``in_0``, ``in_1``, ... and ``out_0``, ``out_1``, ... for the graph's own inputs and outputs, or any name that
a request may use for them, and ``operand/NAME``, or just ``NAME``, for any operand. An input may be recorded as an
operand as well.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from engine.errors import InputError
from engine.graph import Port, RuntimeGraph
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
