"""Batch normalisations with stored statistics, as the multiplication and addition for each channel that they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from engine.graph import RuntimeOperator
from engine.layers.normalisation.norm import BatchNorm
from engine.passes.support.facts import Facts, input_named, is_static
from engine.passes.support.weights import FOLDABLE, channels_of
from engine.tensor import Array, DType, TensorSpec


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
