"""LSTM, GRU and plain recurrent networks, layer by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from engine.compiler.kernels.recurrent.cells import CellKind
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.recurrent.kernels import (
    DirectionWeights,
    RecurrentLayer,
    direction_weights,
    part_of,
)
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, computable
from engine.compiler.storage import View, constant, row_major, spaced_rows
from engine.graph.operand import RuntimeOperand
from engine.ir.strided import Strided
from engine.layers.definition.layer import Layer
from engine.layers.recurrent.recurrent import GRU, LSTM, RNN, Recurrent
from engine.tensor import Array

_INTEGERS = np.dtype(np.int8), np.dtype(np.int16)
Arranged = Callable[[Strided], Strided]
"""Views states as (layers * directions, batch, width)."""


def initial_state(
    context: Context, index: int | None, count: int, batch: int, width: int, arranged: Arranged
) -> tuple[View, Sequence[KernelStep]]:
    """Return initial states as (count, batch, width) with contiguous rows, and the copy this may take.

    Args:
        index: of the argument; None where it is left out, for zeros.
    """
    if index is None or context.argument(index) is None:
        zeros = constant(np.zeros(width, context.dtype))
        return part_of(zeros, zeros.meta.broadcast_to((count, batch, width))), ()
    given = context.tensor(index)
    rows, copies = context.rows(given)
    return part_of(rows, arranged(rows.meta.reshape(given.shape))), copies


@dataclass(frozen=True, slots=True)
class Results:
    """Results by name: the memory that kernels write, and its copies.

    Args:
        memory: memory that kernels write, the last dimension contiguous.
        operands, views: operand of each result, and its final memory.
    """

    memory: Mapping[str, View]
    operands: Mapping[str, RuntimeOperand]
    views: Mapping[str, View]

    @classmethod
    def allocate(cls, context: Context, names: Sequence[str]) -> Results:
        """Allocate the operator's outputs, which have these names."""
        if len(names) != len(context.op.outputs):
            raise NotLoweredError("its number of outputs is unusual")
        operands = dict(zip(names, context.op.outputs, strict=True))
        for operand in operands.values():
            computable(context.lowering.spec(operand), context.dtype)
        views = {name: context.lowering.allocate(each, False) for name, each in operands.items()}
        memory = {
            name: view if _is_in_rows(view) else row_major(view.shape, context.dtype) for name, view in views.items()
        }
        return cls(memory, operands, views)

    def view(self, name: str) -> View | None:
        """Return the memory that kernels write; None if the result is not used."""
        return self.memory.get(name)

    def lowered(self, context: Context, steps: Sequence[KernelStep]) -> Lowered:
        """Return all results, with the steps that compute them."""
        copies = [
            context.copy(self.memory[name], view) for name, view in self.views.items() if self.memory[name] is not view
        ]
        views = {operand.name: self.views[name] for name, operand in self.operands.items()}
        return Lowered(views=views, steps=[*steps, *copies])


def _is_in_rows(view: View) -> bool:
    return view.shape[-1] == 1 or view.strides[-1] == 1


@kernels_for(LSTM, GRU, RNN, rows=True, doubles=True)
def lower_recurrent(context: Context) -> Lowered:
    """Lower all layers of a network: an input product and a recurrence each."""
    network, x = context.layer(Layer), context.tensor(0)
    assert isinstance(network, Recurrent)
    cell, weights, directions = _cell_of(network), context.weights(_INTEGERS), len(network.suffixes)
    lengths = context.argument(1 + len(network.state_names))
    if lengths is not None or any(name.startswith("weight_peephole") for name in weights):
        raise NotLoweredError("there is no kernel for peepholes and sequences of different lengths")
    rows, copies = context.rows(x)
    steps: list[KernelStep] = [*copies]
    steps_first = partial(_steps_first, lead=x.shape[:-1], is_batch_first=network.batch_first)
    count, batch, _ = steps_first(rows.meta).shape
    initial = []
    for index, width in enumerate(network.state_widths, 1):
        state, further = initial_state(context, index, network.num_layers * directions, batch, width, _by_layer)
        initial.append(state)
        steps.extend(further)
    results = Results.allocate(context, network.outputs)
    for number in range(network.num_layers):
        is_last = number == network.num_layers - 1
        own = slice(number * directions, (number + 1) * directions)
        between = None if is_last else spaced_rows((count, batch, directions * network.width), x.dtype)
        sequence = between
        if is_last and (found := results.view("output")) is not None:
            sequence = part_of(found, _laid_out(found.meta, network.batch_first))
        layer = RecurrentLayer(
            context=context,
            cell=cell,
            count=count,
            backward=network.backward,
            weights=[_direction(network, weights, f"l{number}{suffix}", cell) for suffix in network.suffixes],
            initial=[part_of(state, state.meta[own]) for state in initial],
            sequence=None if sequence is None else _by_direction(sequence, directions),
            final=[_final(results.view(name), own) for name in network.state_names],
            rounds=network.rounds,
        )
        steps.extend(layer.steps(rows, steps_first))
        if between is not None:
            rows = part_of(between, between.meta.reshape(count * batch, -1))
            steps_first = partial(_steps_first, lead=(count, batch), is_batch_first=False)
    return results.lowered(context, steps)


def _steps_first(rows: Strided, lead: tuple[int, ...], is_batch_first: bool) -> Strided:
    """View (rows, width) as (steps, batch, width)."""
    return _laid_out(rows.reshape(*lead, rows.shape[-1]), is_batch_first)


def _laid_out(sequence: Strided, is_batch_first: bool) -> Strided:
    """View a caller's sequence as (steps, batch, width)."""
    if sequence.ndim == 2:
        return sequence[:, None]
    return sequence.swapaxes(0, 1) if is_batch_first else sequence


def _by_layer(state: Strided) -> Strided:
    """View a caller's states as (layers * directions, batch, width)."""
    return state[:, None] if state.ndim == 2 else state


def _by_direction(sequence: View, directions: int) -> View:
    """View (steps, batch, directions * width) as (steps, directions, batch, width)."""
    count, batch, width = sequence.shape
    return part_of(sequence, sequence.meta.reshape(count, batch, directions, width // directions).moveaxis(2, 1))


def _final(view: View | None, own: slice) -> View | None:
    """Return the target of a layer's final states."""
    return None if view is None else part_of(view, _by_layer(view.meta)[own])


def _cell_of(network: Recurrent) -> CellKind:
    """Return the cell of a network.

    Raises:
        NotLoweredError: it has other activations or options.
    """
    if network.proj_size and not isinstance(network, LSTM):
        raise NotLoweredError("there is no kernel for a projected state of this network")
    if network.clip is not None:
        raise NotLoweredError("there is no kernel for clipping")
    if not network.is_usual:
        raise NotLoweredError("there is no kernel for its activations")
    if isinstance(network, RNN):
        return network.nonlinearity
    if isinstance(network, LSTM) and network.couples_gates:
        raise NotLoweredError("there is no kernel for coupled gates")
    if isinstance(network, GRU) and network.resets_first:
        raise NotLoweredError("there is no kernel for a reset before the product")
    return "lstm" if isinstance(network, LSTM) else "gru"


def _direction(network: Recurrent, weights: Mapping[str, Array], end: str, cell: CellKind) -> DirectionWeights:
    """Return the weights of a layer in one direction; missing biases are zeros."""
    input, hidden = (weights[f"weight_{part}_{end}"] for part in ("ih", "hh"))
    scales = [weights.get(f"scale_{part}_{end}") for part in ("ih", "hh")]
    for each, scale in zip((input, hidden), scales, strict=True):
        if len({each.dtype.kind == "i", scale is not None, bool(network.rounds)}) > 1:
            raise NotLoweredError("there are only kernels that multiply two floats, or two integers")
    zeros = np.zeros(len(input), input.dtype if scales[0] is None else scales[0].dtype)
    biases = [weights.get(f"bias_{part}_{end}", zeros) for part in ("ih", "hh")]
    return direction_weights(cell, input, hidden, biases[0], biases[1], weights.get(f"weight_hr_{end}"), scales)
