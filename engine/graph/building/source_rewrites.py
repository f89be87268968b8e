"""Rewrites of a file's graph before it is linked: captured parameters and assignments to parts of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Final

from engine.pnnx import Attribute, Graph, Operator
from engine.tensor import Shape, TensorSpec

_RECURRENT: Final = ("nn.RNN", "nn.GRU", "nn.LSTM")
_FOLDED: Final = "pnnx_fold_"
"""How what the converter has computed is called: it stands where the model has it."""

_MOST_OPERANDS: Final = 64
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
    if not op.type.startswith("nn.") or not 2 <= len(op.inputs) <= _MOST_OPERANDS:
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


_COPY: Final = "Tensor.copy"
_RENAMED: Final[dict[str, dict[str, str]]] = {
    "Tensor.slice": {"input": "self"},
    "Tensor.select": {"input": "self", "dim": "dims", "index": "selects"},
}
"""Views, and what their arguments are called by the operator that puts values in their place."""

_MOST_VIEWS: Final = 16
"""Views of views that are followed."""


def with_assignments(source: Graph) -> Graph:
    """The graph with every assignment to a part of a tensor as operators; the same one if there is none."""
    if not any(op.type == _COPY for op in source.operators):
        return source
    makers = {name: op for op in source.operators for name in op.outputs}
    operators = [each for op in source.operators for each in _assigned(op, makers, source.annotations)]
    return replace(source, operators=operators)


def _assigned(
    op: Operator, makers: Mapping[str, Operator], annotations: Mapping[str, TensorSpec]
) -> Iterator[Operator]:
    """An operator, or those that an assignment stands for, of the innermost view first."""
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
    """The views that are written through, the innermost first; none where all of a tensor is written to."""
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
    """The operand of a name, or else the first."""
    return op.inputs[op.labels.index(label) if label in op.labels else 0] if op.inputs else ""


def _labels(view: Operator) -> tuple[str, ...]:
    """The names of a view's operands; none where the file leaves open what they are."""
    if len(view.inputs) == 1:
        return ("input",)
    return tuple(label for label in view.labels if label) if all(view.labels) else ()


def _may_be(whole: TensorSpec | None, result: TensorSpec | None) -> bool:
    """Whether a result may be a tensor with other values, by the file's annotations."""
    if whole is None or result is None:
        return True
    pairs = zip(whole.shape, result.shape, strict=False)
    return whole.rank == result.rank and all(a is None or b is None or a == b for a, b in pairs)
