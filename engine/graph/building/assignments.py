"""Assignments to a part of a tensor, which the converter writes as one operator where it simplifies most.

At lower levels ``x[1:, 0] = y`` is written as the views ``a = x[1:]`` and ``b = a[:, 0]``, and ``Tensor.copy(b, y)``.
The result of that operator stands for all of ``x``, with ``y`` in the place of the views. Here each view is turned into
an operator that puts values in its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from engine.pnnx import Graph, Operator
from engine.tensor import TensorSpec

_COPY: Final = "Tensor.copy"
_RENAMED: Final[dict[str, dict[str, str]]] = {
    "Tensor.slice": {"input": "self"},
    "Tensor.select": {"input": "self", "dim": "dims", "index": "selects"},
}
"""Views, and what their arguments are called by the operator that puts values in their place."""

_MOST: Final = 16
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
    while len(found) < _MOST and (view := makers.get(name)) is not None and view.type in _RENAMED and _labels(view):
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
