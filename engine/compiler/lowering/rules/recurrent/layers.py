"""LSTM, GRU and plain recurrent networks as PyTorch has them, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from engine.compiler.kernels.recurrent.cells import CellKind
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.recurrent.kernels import (
    DirectionWeights,
    RecurrentLayer,
    direction_weights,
    part_of,
)
from engine.compiler.lowering.rules.recurrent.states import Results, initial_state
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View, spaced_rows
from engine.ir.strided import Strided
from engine.layers.definition.layer import Layer
from engine.layers.recurrent.recurrent import GRU, LSTM, RNN, Recurrent
from engine.tensor import Array


@kernels_for(LSTM, GRU, RNN, rows=True, doubles=True)
def lower_recurrent(context: Context) -> Made:
    """All layers of a network: a product and a recurrence each."""
    network, x = context.layer(Layer), context.tensor(0)
    assert isinstance(network, Recurrent)
    if network.proj_size and not isinstance(network, LSTM):
        raise NotLoweredError("there is no kernel for a projected state of this network")
    weights, directions = context.weights(), len(network.suffixes)
    rows, copies = context.rows(x)
    steps: list[KernelStep] = [*copies]
    steps_first = partial(_steps_first, lead=x.shape[:-1], is_batch_first=network.batch_first)
    count, batch, _ = steps_first(rows.phantom).shape
    initial = []
    for index, width in enumerate(network.state_widths, 1):
        state, further = initial_state(context, index, network.num_layers * directions, batch, width, _by_layer)
        initial.append(state)
        steps.extend(further)
    results = Results.placed(context, network.outputs)
    for number in range(network.num_layers):
        is_last = number == network.num_layers - 1
        own = slice(number * directions, (number + 1) * directions)
        between = None if is_last else spaced_rows((count, batch, directions * network.width), x.dtype)
        sequence = between
        if is_last and (found := results.view("output")) is not None:
            sequence = part_of(found, _laid_out(found.phantom, network.batch_first))
        layer = RecurrentLayer(
            context=context,
            cell=_cell_of(network),
            count=count,
            backward=(False, True)[:directions],
            weights=[_direction(weights, f"l{number}{suffix}", network) for suffix in network.suffixes],
            initial=[part_of(state, state.phantom[own]) for state in initial],
            sequence=None if sequence is None else _by_direction(sequence, directions),
            final=[_final(results.view(name), own) for name in network.state_names],
        )
        steps.extend(layer.steps(rows, steps_first))
        if between is not None:
            rows = part_of(between, between.phantom.reshape(count * batch, -1))
            steps_first = partial(_steps_first, lead=(count, batch), is_batch_first=False)
    return results.made(context, steps)


def _steps_first(rows: Strided, lead: tuple[int, ...], is_batch_first: bool) -> Strided:
    """(rows, width) as (steps, batch, width)."""
    return _laid_out(rows.reshape(*lead, rows.shape[-1]), is_batch_first)


def _laid_out(sequence: Strided, is_batch_first: bool) -> Strided:
    """A sequence as a caller has it as (steps, batch, width)."""
    if sequence.ndim == 2:
        return sequence[:, None]
    return sequence.swapaxes(0, 1) if is_batch_first else sequence


def _by_layer(state: Strided) -> Strided:
    """States as a caller has them as (layers * directions, batch, width)."""
    return state[:, None] if state.ndim == 2 else state


def _by_direction(sequence: View, directions: int) -> View:
    """(steps, batch, directions * width) as (steps, directions, batch, width)."""
    count, batch, width = sequence.shape
    return part_of(sequence, sequence.phantom.reshape(count, batch, directions, width // directions).moveaxis(2, 1))


def _final(view: View | None, own: slice) -> View | None:
    """Where the final states of a layer go."""
    return None if view is None else part_of(view, _by_layer(view.phantom)[own])


def _cell_of(network: Recurrent) -> CellKind:
    if isinstance(network, RNN):
        return network.nonlinearity
    return "lstm" if isinstance(network, LSTM) else "gru"


def _direction(weights: Mapping[str, Array], end: str, network: Recurrent) -> DirectionWeights:
    """The weights of a layer in one direction; biases that are left out are zeros."""
    input, hidden = weights[f"weight_ih_{end}"], weights[f"weight_hh_{end}"]
    biases = [weights.get(f"bias_{part}_{end}", np.zeros(len(input), input.dtype)) for part in ("ih", "hh")]
    return direction_weights(_cell_of(network), input, hidden, biases[0], biases[1], weights.get(f"weight_hr_{end}"))
