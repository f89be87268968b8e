"""Rewrites of a file's graph before it is linked: captured parameters, assignments to parts of tensors, new dimensions.

Captured parameters: the tracer passes parameters first, whatever the call order. A parameter shared by two modules (a
language model's embedding, which is also the weight of its last layer) becomes an operator of its own. All but the
first of the modules take its result as an operand and still hold the values as an attribute; that operand is dropped.
A parameter passed to a module from outside (a learned initial state) comes before the computed operands; where
shapes tell, operands are put in the order of ``forward``.

Assignments: at lower optimisation levels the converter writes ``x[1:, 0] = y`` as the views ``a = x[1:]`` and
``b = a[:, 0]``, and ``Tensor.copy(b, y)``. The result of that operator stands for all of ``x``, with ``y`` in the place
of the views. Each view is turned into an operator that puts values in its place.

New dimensions: the converter writes ``x[None, None]`` as a reshape to the sizes of its example, which is named after
``torch.unsqueeze``. Where ``x`` has as many elements as its values decide, the example's number is wrong for others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Final

from engine.pnnx import Attribute, Graph, Operator
from engine.tensor import Shape, TensorSpec

_RECURRENT: Final = ("nn.RNN", "nn.GRU", "nn.LSTM")
_FOLDED: Final = "pnnx_fold_"
"""Prefix of the names of constants that the converter folded; they stand where the model has them."""

_MOST_OPERANDS: Final = 64
"""Most operands of a module that are examined: each is compared with all attributes, which may be many."""

_COPY: Final = "Tensor.copy"
_RENAMED: Final[dict[str, dict[str, str]]] = {
    "Tensor.slice": {"input": "self"},
    "Tensor.select": {"input": "self", "dim": "dims", "index": "selects"},
}
"""Views, and their arguments' names in the operator that writes into the view."""
_MOST_VIEWS: Final = 16
"""Longest chain of views that is followed."""


def without_captured(source: Graph) -> Graph:
    """Return the graph with every module called as it was written; the same object if nothing changes."""
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
    """Return a module without operands that are attributes of its own, but with at least one operand."""
    if not op.type.startswith("nn.") or not 2 <= len(op.inputs) <= _MOST_OPERANDS:
        return op
    own = list(op.attributes.values())
    shared = {name for name in {*op.inputs} & constants.keys() if constants[name] in own}
    if not shared:
        return op
    kept = [k for k, name in enumerate(op.inputs) if name not in shared] or [len(op.inputs) - 1]
    return replace(op, inputs=tuple(op.inputs[k] for k in kept), labels=tuple(op.labels[k] for k in kept))


def _in_order(op: Operator, given: set[str], annotations: Mapping[str, TensorSpec]) -> Operator:
    """Return a module with leading parameters moved behind its input, if they fit better there."""
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
    """Return whether one shape is that of a recurrent layer's first state, and another that of its input."""
    given = op.params.get
    layers, widths = given("num_layers"), (given("hidden_size"), given("proj_size") or given("hidden_size"))
    if state is None or x is None or len(state) != len(x) or not isinstance(layers, int):
        return False
    batch = x[-3 if given("batch_first") else -2] if len(x) == 3 else None
    is_read = x[-1] in (None, given("input_size"))
    is_kept = state[0] == layers * (2 if given("bidirectional") else 1) and state[-1] in widths
    return is_read and is_kept and batch in (None, *state[1:-1])


def with_assignments(source: Graph) -> Graph:
    """Return the graph with every assignment to a part of a tensor as operators; the same object if there is none."""
    if not any(op.type == _COPY for op in source.operators):
        return source
    makers = {name: op for op in source.operators for name in op.outputs}
    operators = [each for op in source.operators for each in _assigned(op, makers, source.annotations)]
    return replace(source, operators=operators)


def with_unsqueezes(source: Graph) -> Graph:
    """Return the graph with reshapes that only add dimensions as such, for any sizes; the same object without any."""
    operators = [_unsqueezed(op, source.annotations) for op in source.operators]
    is_changed = any(new is not old for new, old in zip(operators, source.operators, strict=True))
    return replace(source, operators=operators) if is_changed else source


def _unsqueezed(op: Operator, annotations: Mapping[str, TensorSpec]) -> Operator:
    shape, spec = op.params.get("shape"), annotations.get(op.inputs[0]) if op.inputs else None
    if op.type != "Tensor.reshape" or not op.name.startswith("torch.unsqueeze") or not isinstance(shape, tuple):
        return op
    # With sizes of 1 before, it is not known which of them are new.
    if spec is None or 1 in spec.shape or [size for size in shape if size != 1] != [*spec.shape]:
        return op
    axes = tuple(axis for axis, size in enumerate(shape) if size == 1)
    return replace(op, type="torch.unsqueeze", params={"dim": axes})


def _assigned(
    op: Operator, makers: Mapping[str, Operator], annotations: Mapping[str, TensorSpec]
) -> Iterator[Operator]:
    """Yield an operator, or those that an assignment stands for, the innermost view first."""
    views = _views(op, makers, annotations) if op.type == _COPY and len(op.outputs) == 1 else []
    names = [f"{op.outputs[0]}_{k}" for k in range(len(views))] + [*op.outputs]
    yield replace(op, outputs=tuple(names[:1]))
    for k, view in enumerate(views):
        renamed = _RENAMED[view.type]
        yield Operator(
            "Tensor.slice_copy",
            f"{op.name}_{k}",
            (*view.inputs, names[k]),
            (names[k + 1],),
            params={renamed.get(name, name): value for name, value in view.params.items()},
            labels=(*(renamed.get(label, label) for label in _labels(view)), "src"),
        )


def _views(op: Operator, makers: Mapping[str, Operator], annotations: Mapping[str, TensorSpec]) -> list[Operator]:
    """Return the views that are written through, the innermost first; none where the whole tensor is written to."""
    found: list[Operator] = []
    name = _operand(op, "self")
    while (
        len(found) < _MOST_VIEWS and (view := makers.get(name)) is not None and view.type in _RENAMED and _labels(view)
    ):
        found.append(view)
        name = _operand(view, "input")
    result = annotations.get(op.outputs[0])
    while found and not _may_be(annotations.get(_operand(found[-1], "input")), result):
        found.pop()
    return found


def _operand(op: Operator, label: str) -> str:
    """Return the operand with a label, or else the first."""
    return op.inputs[op.labels.index(label) if label in op.labels else 0] if op.inputs else ""


def _labels(view: Operator) -> tuple[str, ...]:
    """Return the labels of a view's operands; none where the file leaves some out."""
    if len(view.inputs) == 1:
        return ("input",)
    return tuple(label for label in view.labels if label) if all(view.labels) else ()


def _may_be(whole: TensorSpec | None, result: TensorSpec | None) -> bool:
    """Return whether, by the file's annotations, a result may be a tensor with some values replaced."""
    if whole is None or result is None:
        return True
    pairs = zip(whole.shape, result.shape, strict=False)
    return whole.rank == result.rank and all(a is None or b is None or a == b for a, b in pairs)
