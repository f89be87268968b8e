"""QLinearConv and QLinearMatMul as the parts they are: a product of bytes, a scale, numbers rounded to bytes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.graph import RuntimeOperator
from engine.passes.support.byte_products import OPERANDS, has_kernel, most_of, weights_of
from engine.passes.support.facts import Facts, input_named
from engine.passes.support.rewriting import Rewriter
from engine.pnnx import Attribute, Operator
from engine.tensor import Array

# Floats hold all whole numbers up to here.
WHOLE: Final = 2**24
_SUMS: Final = 2**31
_SCALES: Final = {"QLinearConv": ("x_scale", "w_scale"), "QLinearMatMul": ("a_scale", "b_scale")}


def requantised(op: RuntimeOperator, facts: Facts, rewriter: Rewriter) -> list[Operator]:
    """The operators that compute the same, to the bit; none where something is known only in a run."""
    kind = type(op.definition).__name__
    names = OPERANDS[kind]
    operands = [input_named(op, name) for name in names]
    zero = input_named(op, "y_zero_point")
    weights, scale = weights_of(op, facts), _scale(op, facts)
    if any(each is None for each in operands) or zero is None or weights is None or scale is None:
        return []
    bias = facts.argument(op, "bias") if kind == "QLinearConv" else None
    if bias is not None and not (isinstance(bias, np.ndarray) and bias.shape == weights.shape[:1]):
        return []
    most, is_paired = most_of(weights, bias), has_kernel(op, weights, facts)
    if most >= (_SUMS if is_paired else WHOLE):
        return []
    inputs = tuple(each.name for each in operands if each is not None)
    product, rank = kind.replace("QLinear", "") + "Integer", weights.ndim - 2 if kind == "QLinearConv" else 0
    given: tuple[str, ...]
    names_of = [rewriter.fresh(f"{op.name}/{what}") for what in ("sums", "scale", "scaled", "one", "bias", "floats")]
    sums, factor, scaled, one, shift, floats = names_of
    new = [_constant(factor, scale.reshape(-1, *(1,) * rank) if scale.ndim else scale)]
    if is_paired:
        added = input_named(op, "bias") if bias is not None else None
        more = () if added is None else (added.name,)
        if bias is not None and added is None:
            return []
        new.append(Operator(product, sums, (*inputs, *more), (sums,), {**op.source.params, "as_float": True}))
        text, given = "mul(@0,@1)", (sums, factor)
    else:
        new.append(Operator(product, sums, inputs, (sums,), op.source.params))
        new.append(Operator("Tensor.to", floats, (sums,), (floats,), {"dtype": "torch.float"}))
        text, given = "mul(@0,@1)", (floats, factor)
        if bias is not None:
            new.append(_constant(shift, bias.astype(np.float32).reshape(-1, *(1,) * rank)))
            text, given = "mul(add(@0,@2),@1)", (floats, factor, shift)
    new.append(Operator("pnnx.Expression", scaled, given, (scaled,), {"expr": text}))
    new.append(_constant(one, np.array(1, np.float32)))
    return [*new, Operator("QuantizeLinear", op.name, (scaled, one, zero.name), (op.outputs[0].name,))]


def _scale(op: RuntimeOperator, facts: Facts) -> Array | None:
    """What sums are multiplied by."""
    found: list[Any] = [facts.argument(op, name) for name in (*_SCALES[type(op.definition).__name__], "y_scale")]
    if not all(isinstance(each, np.ndarray) and each.dtype == np.float32 for each in found):
        return None
    x, w, y = (each.reshape(()) if each.size == 1 else each for each in found)
    if x.ndim or y.ndim or w.ndim > 1:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(x * w / y, np.float32)


def _constant(name: str, data: Array) -> Operator:
    return Operator("pnnx.Attribute", name, (), (name,), {}, {"data": Attribute(data.shape, data.dtype, data)})
