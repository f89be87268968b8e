"""Signed codes of activations as unsigned ones: products multiply unsigned bytes by signed ones.

Codes and zero points grow by 128, so that what they represent is the same. NaN has no code, and becomes the least one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as with_fields
from typing import Final

import numpy as np

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperand, RuntimeOperator
from engine.layers.onnx.products.quantise import DequantizeLinear, QuantizeLinear
from engine.passes.byte_moves import selects
from engine.passes.support.byte_products import coding_of
from engine.passes.support.facts import Facts
from engine.passes.support.rewriting import Rewriter, tensor
from engine.pnnx import Graph

_OFFSET: Final = 128
_SIGNED: Final = np.dtype(np.int8)


def unsigned_codes(graph: RuntimeGraph) -> Graph:
    """Let QuantizeLinear make unsigned bytes, where only DequantizeLinear reads what it makes."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        coding = coding_of(op, facts) if isinstance(op.definition, QuantizeLinear) else None
        if coding is None or coding[2] != _SIGNED:
            continue
        readers = [*_readers(op.outputs[0], facts)]
        if all(_is_fit(each, coding[1], facts) for each in readers):
            _make_unsigned(op, readers, coding[1], rewriter)
    return rewriter.result()


def _readers(operand: RuntimeOperand, facts: Facts) -> Iterator[RuntimeOperator]:
    """Yield what reads an operand, in order; after operators that move elements, what reads their results too."""
    for op in dict.fromkeys(operand.consumers):
        yield op
        if selects(op, facts):
            for each in op.outputs:
                yield from _readers(each, facts)


def _is_fit(op: RuntimeOperator, zero: int, facts: Facts) -> bool:
    """Return whether an operator moves codes, or dequantises them with this zero point."""
    if not isinstance(op.definition, DequantizeLinear):
        return selects(op, facts)
    coding = coding_of(op, facts)
    return coding is not None and coding[1:] == (zero, _SIGNED)


def _make_unsigned(op: RuntimeOperator, readers: list[RuntimeOperator], zero: int, rewriter: Rewriter) -> None:
    moved = rewriter.fresh(f"{op.name}/zero")
    # Annotations of the file name the signed dtype.
    names = {each.name: rewriter.fresh(f"{each.name}/unsigned")
             for maker in (op, *readers) if not isinstance(maker.definition, DequantizeLinear)
             for each in maker.outputs}  # fmt: skip
    for each in (op, *readers):
        source = each.source
        inputs = tuple(names.get(name, name) for name in source.inputs)
        if isinstance(each.definition, QuantizeLinear | DequantizeLinear):
            inputs = (*inputs[:2], moved)
        new = with_fields(source, inputs=inputs, outputs=tuple(names.get(name, name) for name in source.outputs))
        first = [tensor(moved, np.asarray(zero + _OFFSET, np.uint8))] if each is op else []
        rewriter.replace(each, *first, new)
