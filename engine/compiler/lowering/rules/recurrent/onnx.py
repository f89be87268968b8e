"""LSTM, GRU and plain recurrent networks as ONNX has them: one layer, with the activations that PyTorch's have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from engine.compiler.kernels.expr import Operand
from engine.compiler.kernels.recurrent.cells import GATES, CellKind
from engine.compiler.kernels.recurrent.rounding import rounded
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.elementwise.composing import Composition
from engine.compiler.lowering.rules.elementwise.quantising import extremes_of
from engine.compiler.lowering.rules.recurrent.kernels import (
    DirectionWeights,
    RecurrentLayer,
    direction_weights,
    part_of,
)
from engine.compiler.lowering.rules.recurrent.states import Results, initial_state
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Made
from engine.compiler.storage import View
from engine.ir.strided import Strided
from engine.layers.definition.layer import Layer
from engine.layers.onnx.recurrent.recurrent import OnnxGRU, OnnxLSTM, OnnxRecurrent, OnnxRNN
from engine.layers.onnx.recurrent.rounded_recurrent import DynamicQuantizeLSTM
from engine.tensor import Array, TensorSpec, spec_of

# For each gate in PyTorch's order its place in ONNX's: i, o, f, c for LSTM, and z, r, h for GRU.
_ORDERS: Mapping[CellKind, tuple[int, ...]] = {"lstm": (0, 2, 3, 1), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}


@kernels_for(OnnxLSTM, OnnxGRU, OnnxRNN, rows=True)
def lower_onnx_recurrent(context: Context) -> Made:
    """A product and a recurrence."""
    return _lowered(context, context.tensor(0), [])


@kernels_for(DynamicQuantizeLSTM, rows=True)
def lower_rounded(context: Context) -> Made:
    """The same, with what goes into the products rounded to bytes."""
    made = Composition(context)
    x = context.tensor(0)
    ends = extremes_of(made, x)
    return _lowered(context, made.map(rounded(Operand(0), Operand(1), Operand(2)), x, *ends[1:]), made.steps)


def _lowered(context: Context, x: View, before: Sequence[KernelStep]) -> Made:
    network = context.layer(Layer)
    assert isinstance(network, OnnxRecurrent)
    cell = _cell_of(network)
    specs = [
        TensorSpec(each.shape, each.dtype) if isinstance(each, View) else spec_of(each) for each in context.arguments()
    ]
    given = network.named(specs)
    if given.p is not None or given.lengths is not None:
        raise NotLoweredError("there is no kernel for peepholes and sequences of different lengths")
    places = {name: _place(specs, getattr(given, name)) for name in ("w", "r", "b", "h", "c")}
    rows, copies = context.rows(x)
    steps = [*before, *copies]
    lead, turns = x.shape[:-1], bool(network.layout)

    def steps_first(rows: Strided) -> Strided:
        sequence = rows.reshape(*lead, rows.shape[-1])
        return sequence.swapaxes(0, 1) if turns else sequence

    def directions_first(states: Strided) -> Strided:
        return states.swapaxes(0, 1) if turns else states

    directions, units = len(network.directions), given.r.shape[2]
    initial = []
    for name in ("h", "c") if network.has_cell else ("h",):
        state, further = initial_state(context, places[name], directions, lead[not turns], units, directions_first)
        initial.append(state)
        steps.extend(further)
    results = Results.placed(context, network.results(given))
    y, last = results.view("y"), [results.view(name) for name in ("h", "c")[: len(initial)]]
    w, r = context.weight(1), context.weight(2)
    b = None if places["b"] is None else context.weight(places["b"])
    layer = RecurrentLayer(
        context=context,
        cell=cell,
        count=lead[turns],
        backward=network.directions,
        weights=[_direction(cell, w[d], r[d], None if b is None else b[d]) for d in range(directions)],
        initial=initial,
        sequence=None if y is None else part_of(y, y.phantom.transpose(1, 2, 0, 3) if turns else y.phantom),
        final=[None if each is None else part_of(each, directions_first(each.phantom)) for each in last],
        rounds=isinstance(network, DynamicQuantizeLSTM),
    )
    return results.made(context, [*steps, *layer.steps(rows, steps_first)])


def _place(specs: list[object], found: object) -> int | None:
    """The number of an operand."""
    return next((index for index, each in enumerate(specs) if each is found and found is not None), None)


def _cell_of(network: OnnxRecurrent) -> CellKind:
    """Which of our cells it is.

    Raises:
        NotLoweredError: none of them.
    """
    names, count = network.names, len(network.defaults)
    kinds = {names[k : k + count] for k in range(0, len(names), count)}
    usual = tuple(each.lower() for each in network.defaults)
    if network.clip is not None:
        raise NotLoweredError("there is no kernel for clipping")
    if isinstance(network, OnnxRNN) and kinds == {("relu",)}:
        return "relu"
    if kinds != {usual}:
        raise NotLoweredError("there is no kernel for its activations")
    if isinstance(network, OnnxLSTM):
        if network.input_forget:
            raise NotLoweredError("there is no kernel for coupled gates")
        return "lstm"
    if isinstance(network, OnnxGRU):
        if not network.linear_before_reset:
            raise NotLoweredError("there is no kernel for a reset before the product")
        return "gru"
    return "tanh"


def _direction(cell: CellKind, w: Array, r: Array, b: Array | None) -> DirectionWeights:
    """The weights of a direction, gates in our order."""
    rows = len(w)
    order = np.arange(rows).reshape(GATES[cell], -1)[list(_ORDERS[cell])].reshape(-1)
    biases = np.zeros((2, rows), w.dtype) if b is None else b.reshape(2, rows)
    return direction_weights(cell, w[order], r[order], biases[0, order], biases[1, order])
