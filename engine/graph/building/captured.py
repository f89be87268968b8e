"""Parameters that modules are called with: the tracer hands them over first, whatever they are called for.

A parameter that two modules have in common (a language model's embedding, which is the weight of its last layer too)
becomes an operator of its own. All but the first of the modules take its result as an operand, and hold the values as
an attribute nonetheless. A parameter that a module is given by the one around it, an initial state that was learned,
say, comes in front of what a run computes; where shapes tell, operands are put in the order of ``forward``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Final

from engine.pnnx import Attribute, Graph, Operator
from engine.tensor import Shape, TensorSpec

_RECURRENT: Final = ("nn.RNN", "nn.GRU", "nn.LSTM")
_FOLDED: Final = "pnnx_fold_"
"""How what the converter has computed is called: it stands where the model has it."""

_MOST: Final = 64
"""Operands of a module that are looked at: each is compared with its attributes, which a file may make long."""


def without_captured(source: Graph) -> Graph:
    """The graph with every module called as it was written; the same one if they all are."""
    makers = [op for op in source.operators if _is_constant(op)]
    constants = {op.outputs[0]: op.attributes["data"] for op in makers}
    given = {op.outputs[0] for op in makers if not op.name.startswith(_FOLDED)}
    operators = [_called(op, constants) for op in source.operators]
    operators = [_in_order(op, given, source.annotations) for op in operators]
    if all(new is old for new, old in zip(operators, source.operators, strict=True)):
        return source
    before, after = ({name for op in each for name in op.inputs} for each in (source.operators, operators))
    unused = before - after
    kept = [op for op in operators if not (_is_constant(op) and op.outputs[0] in unused)]
    annotations = {name: each for name, each in source.annotations.items() if name not in unused}
    return replace(source, operators=kept, annotations=annotations)


def _is_constant(op: Operator) -> bool:
    return op.type == "pnnx.Attribute" and len(op.outputs) == 1 and "data" in op.attributes


def _called(op: Operator, constants: Mapping[str, Attribute]) -> Operator:
    """A module without the operands that are attributes of its own; one that is called with nothing else stays."""
    if not op.type.startswith("nn.") or not 2 <= len(op.inputs) <= _MOST:
        return op
    own = list(op.attributes.values())
    shared = {name for name in {*op.inputs} & constants.keys() if constants[name] in own}
    if not shared:
        return op
    kept = [k for k, name in enumerate(op.inputs) if name not in shared] or [len(op.inputs) - 1]
    return replace(op, inputs=tuple(op.inputs[k] for k in kept), labels=tuple(op.labels[k] for k in kept))


def _in_order(op: Operator, given: set[str], annotations: Mapping[str, TensorSpec]) -> Operator:
    """A module called with parameters in front, if they fit better behind."""
    count = sum(1 for _ in takewhile(lambda name: name in given, op.inputs))
    if not 0 < count == len(op.inputs) - 1:
        return op
    specs = [annotations.get(name) for name in (*op.inputs, *op.outputs[:1])]
    shapes = [None if spec is None else spec.shape for spec in specs]
    *states, x, result = shapes
    if op.type in _RECURRENT:
        is_behind = all(_is_state(op, state, x) for state in states)
    else:  # as many rows as it is asked for
        is_behind = op.type == "nn.MultiheadAttention" and None not in shapes and states[0] != result == x
    if not is_behind:
        return op
    return replace(op, inputs=(op.inputs[-1], *op.inputs[:-1]), labels=(op.labels[-1], *op.labels[:-1]))


def _is_state(op: Operator, state: Shape | None, x: Shape | None) -> bool:
    """Whether a shape is that of a recurrent layer's first state, and another that of what it reads."""
    given = op.params.get
    layers, widths = given("num_layers"), (given("hidden_size"), given("proj_size") or given("hidden_size"))
    if state is None or x is None or len(state) != len(x) or not isinstance(layers, int):
        return False
    batch = x[-3 if given("batch_first") else -2] if len(x) == 3 else None
    is_read = x[-1] in (None, given("input_size"))
    is_kept = state[0] == layers * (2 if given("bidirectional") else 1) and state[-1] in widths
    return is_read and is_kept and batch in (None, *state[1:-1])
