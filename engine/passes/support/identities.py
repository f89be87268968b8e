"""Identities: operators that return their first operand unchanged, the same bits, dtype and shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from engine.expression import Input
from engine.graph import RuntimeOperand, RuntimeOperator
from engine.layers import Layer
from engine.layers.convolution.pad import Pad
from engine.layers.convolution.window import Window
from engine.layers.creation.container import Expression
from engine.layers.elementwise.cast import To, TypeAs
from engine.layers.elementwise.identity import Dropout, Identity, RawIdentity
from engine.layers.indexing.slicing import Narrow, Slice
from engine.layers.pooling.adaptive_pool import AdaptiveAvgPool, AdaptiveMaxPool
from engine.layers.pooling.max_pool import MaxPool
from engine.layers.pooling.pool import AvgPool
from engine.layers.shape.expand import Expand, ExpandAs, Repeat, Tile
from engine.layers.shape.join import Cat
from engine.layers.vision.interpolate import Interpolate
from engine.passes.support.algebra import simplified
from engine.passes.support.facts import Facts, is_static, trains
from engine.passes.support.permutations import PERMUTATIONS, VIEWS, is_certain, is_trivial, order_of
from engine.tensor import BFLOAT16, Shape, TensorSpec

TO_THE_END: Final = 2147483647
"""The format's index for "to the end" of an axis."""

Rule: TypeAlias = Callable[[RuntimeOperator, Any, TensorSpec, TensorSpec], bool]
OpenRule: TypeAlias = Callable[[RuntimeOperator, Any, TensorSpec | None, TensorSpec | None], bool]


def unchanged(op: RuntimeOperator, facts: Facts) -> RuntimeOperand | None:
    """Return the operand that an operator returns unchanged; None if it does not, or not provably."""
    layer = op.definition
    if layer is None or len(op.outputs) != 1 or not op.inputs:
        return None
    if isinstance(layer, Expression):
        return _input_of(op, layer, facts)
    rule = RULES.get(type(layer))
    given, made = facts.spec(op.inputs[0]), facts.spec(op.outputs[0])
    return op.inputs[0] if rule is not None and rule(op, layer, given, made) else None


def _input_of(op: RuntimeOperator, layer: Expression, facts: Facts) -> RuntimeOperand | None:
    """Return the input that an expression such as ``mul(@0,1)`` returns unchanged."""
    tree = simplified(layer.tree, [facts.known(operand) for operand in op.inputs], op.outputs[0].annotation)
    return op.inputs[tree.index] if isinstance(tree, Input) else None


def _of_specs(rule: Rule) -> OpenRule:
    """Return a rule that applies only to operands of known dtype and rank that keep their dtype."""

    def is_unchanged(op: RuntimeOperator, layer: Any, given: TensorSpec | None, made: TensorSpec | None) -> bool:
        if given is None or made is None or given.dtype != made.dtype:
            return False
        return rule(op, layer, given, made)

    return is_unchanged


def _always(op: RuntimeOperator, layer: Layer, given: TensorSpec | None, made: TensorSpec | None) -> bool:
    """Return true unless the dtypes differ, only one side is known, or it trains."""
    if given is None or made is None:
        return given is made and not trains(op)
    return given.dtype == made.dtype and not trains(op)


def _same_shape(op: RuntimeOperator, layer: Layer, given: TensorSpec, made: TensorSpec) -> bool:
    """Return whether the shape is kept, for layers that then keep every element where it is."""
    return given.is_static and given.shape == made.shape


def _view(op: RuntimeOperator, layer: Layer, given: TensorSpec, made: TensorSpec) -> bool:
    return given.shape == made.shape and is_certain(given.shape)


def _permutation(op: RuntimeOperator, layer: Layer, given: TensorSpec, made: TensorSpec) -> bool:
    return is_static(op) and is_trivial(order_of(layer, given.rank), given.shape)


def _expand(op: RuntimeOperator, layer: Expand, given: TensorSpec, made: TensorSpec) -> bool:
    if not is_static(op) or len(layer.sizes) != given.rank:
        return _same_shape(op, layer, given, made)
    pairs = zip(layer.sizes, given.shape, strict=True)
    return all(size == -1 or (size is not None and size == dim) for size, dim in pairs)


def _slice(op: RuntimeOperator, layer: Slice, given: TensorSpec, made: TensorSpec) -> bool:
    if not is_static(op) or given.rank != made.rank:
        return False
    bounds = [each or (None,) * len(layer.dims) for each in (layer.starts, layer.ends, layer.steps)]
    rows = zip(layer.dims, *bounds, strict=True)
    return all(_takes_all(given.shape[dim], slice(start, end, step)) for dim, start, end, step in rows)


def _takes_all(length: int | None, piece: slice) -> bool:
    if length is not None:
        return piece.indices(length) == (0, length, 1)
    return piece.start in (0, None) and piece.step in (1, None) and piece.stop in (None, TO_THE_END)


def _pad(op: RuntimeOperator, layer: Pad, given: TensorSpec, made: TensorSpec) -> bool:
    return is_static(op) and not any(layer.pad)


def _cat(op: RuntimeOperator, layer: Cat, given: TensorSpec, made: TensorSpec) -> bool:
    return len(op.inputs) == 1 and is_static(op)


def _interpolate(op: RuntimeOperator, layer: Interpolate, given: TensorSpec, made: TensorSpec) -> bool:
    """Return true only if elements are picked: interpolation adds 0 * a neighbour, which may be infinite."""
    by_size = bool(layer.size) or bool(layer.recompute_scale_factor)
    is_picked = layer.mode.startswith("nearest") and is_static(op)
    return is_picked and (by_size or set(layer.scale_factor) == {1.0}) and given.is_static and given.shape == made.shape


def _avg_pool(op: RuntimeOperator, layer: AvgPool, given: TensorSpec, made: TensorSpec) -> bool:
    is_floating = given.dtype.kind == "f" or given.dtype == BFLOAT16
    return is_static(op) and is_floating and layer.divisor_override is None and all(map(_is_point, layer.windows))


def _max_pool(op: RuntimeOperator, layer: MaxPool, given: TensorSpec, made: TensorSpec) -> bool:
    return is_static(op) and layer.returns == 0 and all(map(_is_point, layer.windows))


def _is_point(window: Window) -> bool:
    return (window.kernel, window.stride, window.before, window.after) == (1, 1, 0, 0)


def _adaptive_avg_pool(op: RuntimeOperator, layer: AdaptiveAvgPool, given: TensorSpec, made: TensorSpec) -> bool:
    return is_static(op) and _keeps_sizes(layer.output_size, given.shape[-layer.spatial_rank :])


def _adaptive_max_pool(op: RuntimeOperator, layer: AdaptiveMaxPool, given: TensorSpec, made: TensorSpec) -> bool:
    keeps = is_static(op) and _keeps_sizes(layer.output_size, given.shape[-layer.spatial_rank :])
    return keeps and layer.returns == 0


def _keeps_sizes(wanted: Shape, sizes: Shape) -> bool:
    pairs = zip(wanted * len(sizes) if len(wanted) == 1 else wanted, sizes, strict=True)
    return all(want == 0 or (want is not None and want == size) for want, size in pairs)


def _same_dtype(op: RuntimeOperator, layer: To | TypeAs, given: TensorSpec, made: TensorSpec) -> bool:
    return True  # dtypes are compared for every rule


_OF_SPECS: Final[Mapping[type[Layer], Rule]] = {
    **dict.fromkeys((To, TypeAs), _same_dtype),
    **dict.fromkeys(VIEWS, _view),
    **dict.fromkeys(PERMUTATIONS, _permutation),
    **dict.fromkeys((ExpandAs, Repeat, Tile, Narrow), _same_shape),
    Expand: _expand,
    Slice: _slice,
    Pad: _pad,
    Cat: _cat,
    Interpolate: _interpolate,
    AvgPool: _avg_pool,
    MaxPool: _max_pool,
    AdaptiveAvgPool: _adaptive_avg_pool,
    AdaptiveMaxPool: _adaptive_max_pool,
}

RULES: Final[Mapping[type[Layer], OpenRule]] = {
    **dict.fromkeys((Dropout, Identity, RawIdentity), _always),
    **{layer: _of_specs(rule) for layer, rule in _OF_SPECS.items()},
}
"""Layer -> rule that tells whether it returns its first operand; specs are None if unknown before a run."""
