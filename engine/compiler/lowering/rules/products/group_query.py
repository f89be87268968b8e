"""Group-query attention of decoders as onnxruntime has it, with a cache of earlier keys and values.

The maximum number of keys follows from the shapes. The number of each row is known only at run time: it decides where
new keys are written, and the mask of each position.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from engine.compiler.kernels.expr import Expr, Operand, apply
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.indexing.gather import Slot, gather_step, indices_of
from engine.compiler.lowering.rules.indexing.scatter import scatter_step
from engine.compiler.lowering.rules.movement.constants import integer_range
from engine.compiler.lowering.rules.products.attention import attention_steps, is_by_dots
from engine.compiler.lowering.rules.products.attention_operands import (
    AttentionOperands,
    MaskView,
    in_groups,
    unfused_attention,
)
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, convert, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major
from engine.graph.operand import RuntimeOperand
from engine.graph.operator import RuntimeOperator
from engine.ir.dims import is_symbolic, plain
from engine.layers.attention.attention import CausalMask
from engine.layers.definition.overload import unfolded
from engine.layers.onnx.attention.grouped_attention import GroupQueryAttention
from engine.layers.operands.precision import INT64
from engine.promotion import is_reduced
from engine.tensor import DType

X, Y, Z = Operand(0), Operand(1), Operand(2)


@kernels_for(CausalMask)
def lower_causal_mask(context: Context) -> Lowered:
    """Lower a causal mask that is added to scores."""
    rows, columns = context.result_spec.sizes
    past = context.argument(2) if len(context.bound.positional) > 2 else None
    before = past.shape[-2] if isinstance(past, View | np.ndarray) else 0
    composition = Composition(context)
    own, keys = (_numbers(composition, count, first, FLOAT32) for count, first in ((rows, before), (columns, 0)))
    tree = apply("where", apply("le", Y, X), 0.0, -math.inf)
    return composition.finish(tree, derived(own, own.meta[:, None]), keys)


def is_past(op: RuntimeOperator, operand: RuntimeOperand) -> bool:
    """Return whether an operator reads an operand only as earlier keys or values, which may be 16-bit floats."""
    if op.layer is None or not isinstance(op.definition, GroupQueryAttention):
        return False
    caches = [source.index for source in unfolded(op.layer).positional[3:5]]
    return all(index in caches for index, each in enumerate(op.inputs) if each is operand)


@kernels_for(GroupQueryAttention)
def lower_grouped(context: Context) -> Lowered:
    """Lower rotary embedding, the update of the cache, and attention."""
    layer, steps = context.layer(GroupQueryAttention), Composition(context)
    if layer.smooth_softmax == 1 or _argument(context, 11) is not None:
        raise NotLoweredError("there is no kernel for attention sinks")
    q, k, v = _heads(context, layer)
    batch, _, length, size = q.shape
    past = [_earlier(context, index) for index in (3, 4)]
    total, room = _total(context), 0 if past[0] is None else past[0].shape[2]
    if total is None or total < length or any(each is not None and each.shape[2] != room for each in past):
        raise NotLoweredError("the number of keys is known only at run time")
    rows = _Rows.of(steps, batch, length, total)
    if layer.do_rotary:
        q, k = (_rotated(steps, each, rows, layer) for each in (q, k))
    kept = [_cache(steps, new, old, rows, index) for index, (new, old) in enumerate(zip((k, v), past, strict=True), 1)]
    keys, values = (derived(each, each.meta[:, :, :total]) for each in kept)
    target = context.lowering.allocate(context.op.outputs[0], is_image=False)
    attn = AttentionOperands(
        query=q,
        key=keys,
        value=values,
        target=derived(target, target.meta.reshape(batch, length, -1, size).transpose(0, 2, 1, 3)),
        masks=_masks(steps, rows, layer.local_window_size),
        scale=layer.scale or 1 / math.sqrt(size),
    )
    attn = in_groups(attn)
    if layer.softcap or not is_by_dots(attn):
        attn = replace(attn, key=_as(FLOAT32, attn.key, steps), value=_as(FLOAT32, attn.value, steps))
    if layer.softcap:
        steps.steps += unfused_attention(context, attn, cap=layer.softcap)[1]
    else:
        steps.steps += attention_steps(context, attn)
    views = dict(zip((each.name for each in context.op.outputs), (target, *kept), strict=False))
    return Lowered(views=views, steps=steps.steps)


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows of a batch.

    Args:
        length, total: number of new keys, and maximum number of keys.
        before: number of earlier keys of each row (B, 1), int64.
        places: positions of its new keys (B, length); out of range where its number of keys does not fit.
    """

    length: int
    total: int
    before: View
    places: View

    @classmethod
    def of(cls, composition: Composition, batch: int, length: int, total: int) -> _Rows:
        """Compute the positions of an operator's rows."""
        counts = indices_of(composition.context.argument(5), composition.context)
        if counts.meta.size != batch:
            raise NotLoweredError("the shape of its key counts does not match")
        last = derived(counts, counts.meta.reshape(batch, 1))
        before, places = row_major((batch, 1), INT64), row_major((batch, length), INT64)
        has_past = total != length
        new, most = _numbers(composition, 1, length - 1), _numbers(composition, 1, total)
        composition.typed(before, apply("sub" if has_past else "mul", X, Y if has_past else 0), last, new, domain="i64")
        own = _numbers(composition, length)
        least = Operand(3) if has_past else 0
        is_wrong = apply("logical_or", apply("lt", Z, least), apply("ge", Z, Operand(4)))
        tree = apply("where", is_wrong, -1, apply("add", X, Y))
        composition.typed(places, tree, before, own, last, new, most, domain="i64")
        return cls(length, total, before, places)


def _numbers(composition: Composition, count: int, first: int = 0, dtype: DType = INT64) -> View:
    """Return consecutive numbers: a constant, or counted in the run where sizes are symbolic."""
    if not is_symbolic((count, first)):
        return constant(np.arange(first, first + count, dtype=dtype))
    view, step = integer_range(composition.context, count, first, dtype=dtype)
    composition.steps.append(step)
    return view


def _argument(context: Context, index: int) -> object:
    return context.argument(index) if index < len(context.bound.positional) else None


def _earlier(context: Context, index: int) -> View | None:
    """Return earlier keys or values, if there are any."""
    value = _argument(context, index)
    is_empty = isinstance(value, View | np.ndarray) and 0 in value.shape
    if isinstance(value, View) and is_reduced(value.dtype) and not is_empty:
        return value
    return None if value is None or is_empty else context.tensor(index)


def _as(dtype: DType, x: View, composition: Composition) -> View:
    """Return floats as another dtype; as they are where they have it."""
    if x.dtype == dtype:
        return x
    context, target = composition.context, row_major(x.shape, dtype)
    composition.steps.append(convert(x, target, [context.op.name], context.host))
    return target


def _total(context: Context) -> int | None:
    """Return the maximum number of keys, if it is known now."""
    value = _argument(context, 6)
    return plain(np.reshape(value, ()).item()) if isinstance(value, np.ndarray | int) and np.size(value) == 1 else None


def _heads(context: Context, layer: GroupQueryAttention) -> list[View]:
    """Return queries (B, H, S, E), keys and values (B, G, S, E)."""
    query, groups = context.tensor(0), layer.kv_num_heads
    batch, length, width = query.shape
    if _argument(context, 1) is not None:
        parts = [(query, query.meta)] + [(each, each.meta) for each in (context.tensor(1), context.tensor(2))]
    else:
        size = width // (layer.num_heads + 2 * groups)
        ends = [layer.num_heads * size, (layer.num_heads + groups) * size]
        parts = [(query, part) for part in query.meta.split(ends, axis=2)]
    counts = (layer.num_heads, groups, groups)
    if any(part.shape[:2] != (batch, length) for _, part in parts):
        raise NotLoweredError("the shapes of its keys and values do not match")
    return [
        derived(whole, part.reshape(batch, length, count, -1).transpose(0, 2, 1, 3))
        for (whole, part), count in zip(parts, counts, strict=True)
    ]


def _rotated(composition: Composition, x: View, rows: _Rows, layer: GroupQueryAttention) -> View:
    """Return x with rotary embedding: pairs of elements rotated by the angles of their positions."""
    context = composition.context
    places = rows.places if _argument(context, 9) is None else indices_of(context.argument(9), context)
    batch, _, length, size = x.shape
    half = context.tensor(7).shape[-1]
    if places.shape != (batch, length) or 2 * half > size:
        raise NotLoweredError("the shapes of its positions or angles do not match")
    angles = []
    for index in (7, 8):
        cache, own = context.tensor(index), row_major((batch, length, half), FLOAT32)
        if len(cache.shape) != 2 or cache.shape[1] != half:
            raise NotLoweredError("the shape of its angles does not match")
        slot = Slot(derived(places, places.meta[:, :, None]), 0)
        composition.steps.append(gather_step(context, own, cache, [0, 0, cache.strides[1]], [slot]))
        angles.append(derived(own, own.meta[:, None]))
    target = row_major(x.shape, FLOAT32)
    rounding = context.lowering.low_precision.rounded.get(context.op.outputs[0].name)
    first, second = (slice(0, half), slice(half, 2 * half))
    if layer.rotary_interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    pair = [derived(x, x.meta[..., each]) for each in (first, second)]
    products = apply("mul", X, Z), apply("mul", Y, Operand(3))
    other = apply("add", apply("mul", X, Operand(3)), apply("mul", Y, Z))
    for part, exact in ((first, apply("sub", *products)), (second, other)):
        tree = exact if rounding is None else apply(rounding, exact)
        composition.map(tree, *pair, *angles, target=derived(target, target.meta[..., part]))
    if 2 * half < size:
        rest = (derived(each, each.meta[..., 2 * half :]) for each in (x, target))
        composition.steps.append(context.copy(*rest))
    return target


def _cache(composition: Composition, new: View, past: View | None, rows: _Rows, index: int) -> View:
    """Return the cache with new keys or values after the earlier ones, and zeros after them.

    A state has the earlier ones in place, and keeps what it has after a row's last key.
    """
    context, (batch, groups, _, size) = composition.context, new.shape
    room = max(rows.total, 0 if past is None else past.shape[2])
    outputs = context.op.outputs
    target = row_major((batch, groups, room, size), FLOAT32)
    state = None
    if index < len(outputs) and context.lowering.spec(outputs[index]) is not None:
        state = context.lowering.appended(outputs[index], 2, _argument(context, index + 2))
        target = state or context.lowering.allocate(outputs[index], is_image=False)
    count = 0 if past is None else past.shape[2]
    if past is not None and state is None:
        own = _numbers(composition, count, dtype=FLOAT32)
        own = derived(own, own.meta.reshape(-1, 1))
        seen = derived(rows.before, rows.before.meta.reshape(batch, 1, 1, 1))
        is_there: Expr = apply("lt", Y, Z)
        front = derived(target, target.meta[:, :, :count])
        composition.typed(front, apply("where", is_there, X, 0.0), past, own, seen)
    if count < room:
        zero = constant(np.zeros((), target.dtype))
        behind = derived(target, target.meta[:, :, count:])
        composition.steps.append(context.copy(derived(zero, zero.meta.broadcast_to(behind.shape)), behind))
    places = derived(rows.places, rows.places.meta.reshape(batch, 1, rows.length, 1))
    kept = [0 if axis == 2 else step for axis, step in enumerate(target.strides)]
    slots = [Slot(places, 2)]
    source = _as(target.dtype, new, composition)
    composition.steps.append(scatter_step(context, target, new.shape, kept, slots, source, "set"))
    return target


def _masks(composition: Composition, rows: _Rows, window: int) -> list[MaskView]:
    """Return the causal mask of each new position, limited to a window, and the bias of the scores."""
    context, batch = composition.context, rows.before.shape[0]
    mask = row_major((batch, 1, rows.length, rows.total), np.dtype(np.bool_))
    own = derived(rows.before, rows.before.meta.reshape(batch, 1, 1, 1))
    line, keys = (_numbers(composition, count) for count in (rows.length, rows.total))
    place = apply("add", Y, Z)
    tree = apply("le", X, place)
    if window >= 0:
        tree = apply("logical_and", tree, apply("gt", X, apply("sub", place, max(window, 1))))
    composition.typed(mask, tree, keys, own, derived(line, line.meta.reshape(-1, 1)), domain="i64")
    bias = _argument(context, 10)
    if bias is None:
        return [MaskView(mask, "keep")]
    view = context.stored(bias)
    if len(view.shape) != 4 or view.shape[3] < rows.total:
        raise NotLoweredError("the shape of its attention bias does not match")
    return [MaskView(derived(view, view.meta[..., : rows.total]), "add"), MaskView(mask, "keep")]
