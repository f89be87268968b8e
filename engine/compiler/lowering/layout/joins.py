"""Which tensors can be computed straight into their place of a concatenation.

The largest concatenations choose first. Where a network joins the same parts again and again (each block of a DenseNet
joins all before it), the parts lie in the last and largest one, and the earlier ones turn out to be slices of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.ir.dims import hint
from engine.layers.shape.join import Cat
from engine.tensor import TensorSpec

MAX_NESTING: Final = 32
"""Concatenations that lie in each other; those further in are made by themselves and copied."""

SpecOf = Callable[[RuntimeOperand], TensorSpec | None]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part begins along the joined dimension of a concatenation's result."""

    joined: RuntimeOperand
    axis: int
    first: int


def find_places(operators: Sequence[RuntimeOperator], spec_of: SpecOf) -> dict[str, Place]:
    """Operand name -> its place, for parts that some operator computes and that are joined somewhere."""
    places: dict[str, Place] = {}
    depths: dict[str, int] = {}
    # Larger concatenations first; of two of one size where one is part of the other, the later one is the outer.
    joins = [op for op in reversed(operators) if isinstance(op.definition, Cat)]
    for op in sorted(joins, key=lambda each: -hint(_size(spec_of(each.outputs[0])))):
        around = places.get(op.outputs[0].name)
        depths[op.outputs[0].name] = depth = 0 if around is None else depths.get(around.joined.name, 0) + 1
        if depth < MAX_NESTING:
            _place_parts(op, spec_of, places)
    return places


def _place_parts(op: RuntimeOperator, spec_of: SpecOf, places: dict[str, Place]) -> None:
    spec = spec_of(op.outputs[0])
    if spec is None or op.layer is None or op.layer.dynamic or not isinstance(op.definition, Cat):
        return
    axis, first = op.definition.dim % max(spec.rank, 1), 0
    for operand in op.inputs:
        part = spec_of(operand)
        if part is None or part.rank != spec.rank or part.dtype != spec.dtype:
            return
        is_made = operand.producer is not None and operand.producer.layer is not None
        if is_made and operand.name not in places and op.inputs.count(operand) == 1 and not _is_returned(operand):
            places[operand.name] = Place(op.outputs[0], axis, first)
        first += part.shape[axis] or 0


def _is_returned(operand: RuntimeOperand) -> bool:
    return any(op.type == "pnnx.Output" for op in operand.consumers)


def _size(spec: TensorSpec | None) -> int:
    return (spec.size or 0) if spec is not None else 0
