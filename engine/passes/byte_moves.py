"""Operators that only move or select elements, on bytes: dequantising comes behind them, quantising before them.

Quantisers put a pair of QuantizeLinear and DequantizeLinear between any two operators. Behind a reshape, a permutation
or a maximum pool the pair rounds what was rounded, with the same scale. Before a concatenation or another reordering,
the kernels that compute its operands can round them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace as with_fields
from typing import Final

import numpy as np

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.indexing.slicing import Narrow, Select, Slice
from engine.layers.onnx.products.quantise import DequantizeLinear, QuantizeLinear
from engine.layers.pooling.max_pool import MaxPool
from engine.layers.shape.join import Cat
from engine.layers.shape.split import Chunk, Split, TensorSplit
from engine.layers.vision.shuffle import PixelShuffle
from engine.passes.support.byte_products import coding_of, is_of_bytes
from engine.passes.support.facts import Facts, is_static
from engine.passes.support.permutations import PERMUTATIONS, VIEWS
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Graph, Operator
from engine.tensor import TensorSpec

MOVES: Final = (*VIEWS, *PERMUTATIONS, Slice, Select, Narrow, Split, Chunk, TensorSplit, MaxPool, PixelShuffle)
_REORDERING: Final = (*VIEWS, *PERMUTATIONS, MaxPool, PixelShuffle)
_Codes = Mapping[str, tuple[str, ...]]
"""Dequantised operand -> the operands of its DequantizeLinear: bytes, scale and zero point."""


def byte_moves(graph: RuntimeGraph) -> Graph:
    """Move DequantizeLinear behind operators that only move or select elements; remove rounding of what is rounded."""
    rewriter, facts = Rewriter(graph), Facts(graph)
    codes: dict[str, tuple[str, ...]] = {}
    for op in cancellable_quick(graph.operators):
        if isinstance(op.definition, DequantizeLinear) and coding_of(op, facts) is not None:
            codes[op.outputs[0].name] = tuple(each.name for each in op.inputs)
            continue
        found = codes.get(op.inputs[0].name) if op.inputs else None
        if found is None:
            _quantise_before(op, facts, rewriter)
            continue
        if isinstance(op.definition, QuantizeLinear) and _is_same(op, facts, found, graph):
            rewriter.replace(op, Operator("nn.Identity", op.name, found[:1], (op.outputs[0].name,)))
        elif selects(op, facts):
            codes.update(_moved(op, found, rewriter))
    return rewriter.result()


def _is_same(op: RuntimeOperator, facts: Facts, codes: tuple[str, ...], graph: RuntimeGraph) -> bool:
    """Return whether a QuantizeLinear undoes the DequantizeLinear with these operands."""
    own = coding_of(op, facts)
    scale, zero = (facts.value(graph.operands[name]) for name in codes[1:])
    if own is None or not isinstance(scale, np.ndarray) or not isinstance(zero, np.ndarray):
        return False
    return own == (float(scale.reshape(())), int(zero.reshape(())), zero.dtype) and is_of_bytes(op.outputs[0], facts)


def selects(op: RuntimeOperator, facts: Facts) -> bool:
    """Return whether an operator returns elements of its only operand as tensors of their own."""
    if not isinstance(op.definition, MOVES) or len(op.inputs) != 1 or not is_static(op):
        return False
    if isinstance(op.definition, MaxPool) and op.definition.returns != 0:
        return False
    return all(isinstance(facts.spec(each), TensorSpec) for each in op.outputs)


def _moved(op: RuntimeOperator, codes: tuple[str, ...], rewriter: Rewriter) -> _Codes:
    """Let an operator move bytes, and dequantise its results; return the operands of that."""
    made = [(each.name, rewriter.fresh(f"{each.name}/bytes")) for each in op.outputs]
    moving = with_fields(op.source, inputs=codes[:1], outputs=tuple(name for _, name in made))
    new = {name: (source, *codes[1:]) for name, source in made}
    rewriter.replace(op, moving, *(Operator("DequantizeLinear", rewriter.fresh(f"{name}/dequantised"), inputs, (name,))
                                   for name, inputs in new.items()))  # fmt: skip
    return new


def _quantise_before(op: RuntimeOperator, facts: Facts, rewriter: Rewriter) -> None:
    """Let a QuantizeLinear come before the operator whose elements it rounds, if that only reorders or joins them."""
    moving = op.inputs[0].producer if isinstance(op.definition, QuantizeLinear) else None
    if moving is None or coding_of(op, facts) is None or rewriter.only_consumer(op.inputs[0]) is not op:
        return
    is_join = isinstance(moving.definition, Cat) and is_static(moving)
    is_reordering = isinstance(moving.definition, _REORDERING) and len(moving.outputs) == 1 and selects(moving, facts)
    specs = [facts.spec(each) for each in moving.inputs]
    are_floats = all(spec is not None and spec.dtype == np.float32 for spec in specs)
    are_computed = all(each.producer is not None and each.producer.layer is not None for each in moving.inputs)
    if not (is_join or is_reordering) or not (are_floats and are_computed) or rewriter.is_touched(moving):
        return
    names = {each.name: rewriter.fresh(f"{each.name}/bytes") for each in moving.inputs}
    rest = tuple(each.name for each in op.inputs[1:])
    before = [Operator("QuantizeLinear", made, (name, *rest), (made,)) for name, made in names.items()]
    rewriter.drop(moving)
    inputs = tuple(names[each.name] for each in moving.inputs)
    rewriter.replace(op, *before, with_fields(moving.source, inputs=inputs, outputs=(op.outputs[0].name,)))
