"""Encoder layer of PyTorch's fused fast path: linear layers, attention and norms, one kernel after another."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.kernels.rows.layer_norm import LayerNorm as Norm
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.fusion import Fused, Result
from engine.compiler.lowering.rules.products.attention import attention_steps
from engine.compiler.lowering.rules.products.attention_operands import BOOL, AttentionOperands, MaskView
from engine.compiler.lowering.rules.products.linear import linear_step, rows_as_image
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError, convert, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major, spaced_rows
from engine.ir.strided import Strided
from engine.layers.attention.encoder import TransformerEncoderLayer
from engine.tensor import Array

_MASK = 13
_ITSELF: Expr = Operand(0)
_SUM = apply("add", _ITSELF, Operand(1))


@kernels_for(TransformerEncoderLayer, rows=True)
def lower_encoder_layer(context: Context) -> Lowered:
    """Lower attention and two linear layers, each with a residual and a norm before or after."""
    layer, x = context.layer(TransformerEncoderLayer), context.tensor(0)
    qkv, proj, norm_1, norm_2, ffn_1, ffn_2 = (
        (context.weight(first), context.weight(first + 1)) for first in range(1, _MASK, 2)
    )
    steps = _Steps(context, layer)
    activation = apply("gelu" if layer.use_gelu else "relu", _ITSELF)
    target = context.lowering.allocate(context.op.outputs[0], is_image=False)
    if layer.norm_first:
        attn = steps.attention(steps.linear(steps.norm(x, norm_1), qkv))
        x = steps.linear(attn, proj, _SUM, x)
        steps.linear(steps.linear(steps.norm(x, norm_2), ffn_1, activation), ffn_2, _SUM, x, target=target)
    else:
        x = steps.norm(steps.linear(steps.attention(steps.linear(x, qkv)), proj, _SUM, x), norm_1)
        steps.norm(steps.linear(steps.linear(x, ffn_1, activation), ffn_2, _SUM, x), norm_2, target)
    return context.lowered(target, *steps.kernels)


@dataclass(slots=True)
class _Steps:
    """Kernels of one layer, in order; tensors are (B, L, width)."""

    context: Context
    layer: TransformerEncoderLayer
    kernels: list[KernelStep] = field(default_factory=list)

    def linear(
        self,
        x: View,
        weights: tuple[Array, Array],
        tree: Expr = _ITSELF,
        *others: View,
        target: View | None = None,
    ) -> View:
        """Compute x @ weight.T + bias, and an expression of it and others."""
        weight, bias = weights
        rows, copies = self.context.rows(x)
        target = spaced_rows((*x.shape[:-1], len(weight))) if target is None else target
        op = self.context.op
        fused = Fused(op.outputs[0], tree, others, (op.name,))
        result = Result.of(fused, target, rows_as_image, self.context.lowering.fault_flag)
        self.kernels += [*copies, linear_step(self.context, result, rows, weight, bias)]
        return target

    def norm(self, x: View, weights: tuple[Array, Array], target: View | None = None) -> View:
        """Compute the norm of every row."""
        rows, copies = self.context.rows(x)
        target = spaced_rows(x.shape) if target is None else target
        lines = derived(target, target.meta.reshape(-1, x.shape[-1]))
        kernel = Norm(
            rows=rows.shape[0],
            columns=x.shape[-1],
            source=rows.strides[0],
            target=lines.strides[0],
            eps=self.layer.eps,
            is_centred=True,
            has_weight=True,
            has_bias=True,
            host=self.context.host,
        )
        self.kernels += [*copies, self.context.step(kernel, rows, lines, *map(constant, weights))]
        return target

    def attention(self, qkv: View) -> View:
        """Compute attention of heads whose queries, keys and values are interleaved."""
        batch, length, width = qkv.shape
        heads, size = self.layer.num_heads, width // 3
        target = spaced_rows((batch, length, size))
        query, key, value = (derived(qkv, self._heads(qkv.meta[..., k * size : (k + 1) * size])) for k in range(3))
        attn = AttentionOperands(
            query=query,
            key=key,
            value=value,
            target=derived(target, self._heads(target.meta)),
            masks=self._masks(batch, length),
            scale=1 / math.sqrt(size // heads),
        )
        self.kernels += attention_steps(self.context, attn)
        return target

    def _heads(self, x: Strided) -> Strided:
        """View (B, L, H*E) as (B, H, L, E)."""
        return x.reshape(*x.shape[:2], self.layer.num_heads, -1).transpose(0, 2, 1, 3)

    def _masks(self, batch: int, length: int) -> list[MaskView]:
        mask = self.context.argument(_MASK) if len(self.context.bound.positional) > _MASK else None
        if mask is None:
            return []
        # Any number except 0 masks a key: PyTorch's -inf as well as 1.
        mask = self.context.lowering.stored(mask != 0) if isinstance(mask, np.ndarray) else mask
        if isinstance(mask, View) and mask.dtype == FLOAT32 and mask.meta.size:
            answers = row_major(mask.shape, BOOL)
            self.kernels.append(convert(mask, answers, [self.context.op.name], self.context.host))
            mask = answers
        if not isinstance(mask, View) or mask.dtype != BOOL:
            raise NotLoweredError("there is no kernel for masks of this dtype")
        if self.layer.mask_type == 1:
            sizes = [batch, 1, 1, length]
        else:
            sizes = [1, 1, length, length] if len(mask.shape) == 2 else [batch, -1, length, length]
        return [MaskView(derived(mask, mask.meta.reshape(sizes)), "drop")]
