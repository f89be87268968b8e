"""Batch normalisation with known statistics: a multiplication and an addition for each channel."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as with_fields

import numpy as np

from engine.graph import RuntimeGraph, RuntimeOperator
from engine.layers.normalisation.norm import BatchNorm
from engine.passes.support.facts import Facts, input_named, is_static, only_consumer
from engine.passes.support.rewriting import Rewriter
from engine.passes.support.storage import tensor
from engine.passes.support.weights import FLOAT64, FOLDABLE, channels_of, weighted
from engine.pnnx import Graph
from engine.stopping import wanted_quick
from engine.tensor import Array, DType, TensorSpec


def fold_batch_norm(graph: RuntimeGraph) -> Graph:
    """Fold normalisations into the weights of the layer before them, or of a convolution without padding after them.

    What cannot be folded becomes an expression, scale * x + shift. Weights are computed in float64 and rounded once.
    """
    rewriter, facts = Rewriter(graph), Facts(graph)
    for op in wanted_quick(graph.operators):
        norm = normalisation(op, facts)
        if norm is None or rewriter.is_touched(op) or rewriter.is_touched(norm.maker):
            continue
        if not _into_maker(norm, rewriter, facts) and not _into_user(norm, rewriter, facts):
            _as_expression(norm, rewriter)
    return rewriter.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalisation:
    """A batch normalisation whose statistics are stored; all vectors are (C,)."""

    op: RuntimeOperator
    spec: TensorSpec
    mean: Array
    var: Array
    weight: Array | None
    bias: Array | None
    eps: float

    @property
    def maker(self) -> RuntimeOperator | None:
        """What makes the input."""
        return self.op.inputs[0].producer

    def affine(self, dtype: DType) -> tuple[Array, Array]:
        """scale and shift in a dtype, computed in it as the layer does."""
        mean, var, weight, bias = (
            None if each is None else each.astype(dtype) for each in (self.mean, self.var, self.weight, self.bias)
        )
        with np.errstate(all="ignore"):
            scale = 1 / np.sqrt(var + self.eps)  # type: ignore[operator]
            scale = scale if weight is None else scale * weight
            shift = -mean * scale if bias is None else bias - mean * scale  # type: ignore[operator]
        return scale, shift


def normalisation(op: RuntimeOperator, facts: Facts) -> Normalisation | None:
    """An operator as a normalisation of float32 or float64 whose statistics are stored; None if it is none."""
    if not isinstance(op.definition, BatchNorm) or not is_static(op):
        return None
    operand = input_named(op, "input")
    spec = facts.spec(operand) if operand is not None else None
    mean, var, weight, bias = (facts.argument(op, name) for name in ("running_mean", "running_var", "weight", "bias"))
    if operand is not op.inputs[0] or spec is None or spec.dtype not in FOLDABLE:
        return None
    vectors = [each for each in (mean, var, weight, bias) if each is not None]
    is_stored = all(isinstance(each, np.ndarray) and each.shape == (channels_of(spec),) for each in vectors)
    if mean is None or var is None or not is_stored:
        return None
    return Normalisation(op=op, spec=spec, mean=mean, var=var, weight=weight, bias=bias, eps=op.definition.eps)


def _into_maker(norm: Normalisation, rewriter: Rewriter, facts: Facts) -> bool:
    """y = W x + b, then scale * y + shift: (scale * W) x + scale * b + shift."""
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
    """W (scale * x + shift) + b: (W * scale) x + W shift + b."""
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
    """scale * x + shift with both shaped (C, 1, ...), which gives the layer's bits."""
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
