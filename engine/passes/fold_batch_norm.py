"""Folding of batch normalisations with known statistics, a multiplication and an addition for each channel."""

from __future__ import annotations

from dataclasses import replace as with_fields

from engine.cancellation import cancellable_quick
from engine.graph import RuntimeGraph
from engine.passes.support.facts import Facts, only_consumer
from engine.passes.support.rewriting import Rewriter, tensor
from engine.passes.support.weights import FLOAT64, Normalisation, normalisation, weighted
from engine.pnnx import Graph
from engine.tensor import TensorSpec


def fold_batch_norm(graph: RuntimeGraph) -> Graph:
    """Fold normalisations into the weights of the layer before them, or of a convolution without padding after them.

    Others become an expression, scale * x + shift. Weights are computed in float64 and rounded once.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in cancellable_quick(graph.operators):
        norm = normalisation(op, facts)
        if norm is None or rewriter.is_touched(op) or rewriter.is_touched(norm.maker):
            continue
        if not _into_maker(norm, rewriter, facts) and not _into_user(norm, rewriter, facts):
            _as_expression(norm, rewriter)
    return rewriter.result()


def _into_maker(norm: Normalisation, rewriter: Rewriter, facts: Facts) -> bool:
    """Fold into the layer before: y = W x + b, then scale * y + shift is (scale * W) x + scale * b + shift."""
    maker = weighted(norm.maker, facts)
    if maker is None or only_consumer(norm.op.inputs[0]) is not norm.op or maker.channel_axis != 1:
        return False
    weights = maker.scaled(*norm.affine(FLOAT64))
    if weights is None:
        return False
    rewriter.replace(maker.op, maker.operator(*weights, outputs=norm.op.source.outputs))
    rewriter.drop(norm.op)
    return True


def _into_user(norm: Normalisation, rewriter: Rewriter, facts: Facts) -> bool:
    """Fold into the layer after: W (scale * x + shift) + b is (W * scale) x + W shift + b."""
    op = only_consumer(norm.op.outputs[0])
    user = weighted(op, facts)
    if user is None or user.input is not norm.op.outputs[0] or rewriter.is_touched(op):
        return False
    if norm.spec.rank != user.rank or user.channel_axis != 1:
        return False
    weights = user.absorbing(*norm.affine(FLOAT64))
    if weights is None:
        return False
    rewriter.replace(user.op, user.operator(*weights, input=norm.op.inputs[0].name))
    rewriter.drop(norm.op)
    return True


def _as_expression(norm: Normalisation, rewriter: Rewriter) -> None:
    """Replace by scale * x + shift with both shaped (C, 1, ...), which gives the same bits as the layer."""
    names, new = [], []
    for name, vector in zip(("scale", "shift"), norm.affine(norm.spec.dtype), strict=True):
        value = vector.reshape(-1, *(1,) * (norm.spec.rank - 2))
        names.append(rewriter.fresh(f"{norm.op.name}_{name}"))
        rewriter.annotate(names[-1], TensorSpec(value.shape, value.dtype))
        new.append(tensor(names[-1], value))
    expression = with_fields(
        norm.op.source,
        type="pnnx.Expression",
        inputs=(norm.op.inputs[0].name, *names),
        labels=(),
        params={"expr": "add(mul(@0,@1),@2)"},
        attributes={},
    )
    rewriter.replace(norm.op, *new, expression)
