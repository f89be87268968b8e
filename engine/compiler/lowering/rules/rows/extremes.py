"""Largest and smallest elements with their indices, and running sums and products."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from engine.compiler.kernels.elements import TYPES, Domain
from engine.compiler.kernels.expr import Operand
from engine.compiler.kernels.ordering.scan import Mode, Scan
from engine.compiler.kernels.rows.argmax import ArgExtreme
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.composition import Composition
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Lowered, NotLoweredError, derived
from engine.compiler.storage import FLOAT32, View, constant, row_major
from engine.layers.operands.axes import checked_axis
from engine.layers.operands.precision import INT64
from engine.layers.reduction import extremum, scan
from engine.tensor import TensorSpec, dtype_name

# Largest index in int32.
_MAX_INDEX = 2**31 - 1


@kernels_for(extremum.ArgExtreme)
def lower_arg_extreme(context: Context) -> Lowered:
    """Lower the index of the extreme, along one dimension or in the flattened tensor."""
    layer = context.layer(extremum.ArgExtreme)
    places, _, composition = extremes_of(context, layer.dim, is_largest=layer.is_largest)
    return Lowered(views={context.op.outputs[0].name: places}, steps=composition.steps)


@kernels_for(extremum.ExtremeAndPlace)
def lower_extreme(context: Context) -> Lowered:
    """Lower the extreme of all elements, or along one dimension with its index."""
    layer, outputs = context.layer(extremum.ExtremeAndPlace), context.op.outputs
    is_largest = layer.is_largest
    if len(outputs) == 1:
        if context.elements(0).dtype != FLOAT32:
            _, elements, composition = extremes_of(context, layer.dim, is_largest=is_largest)
            return Lowered(views={outputs[0].name: elements}, steps=composition.steps)
        x, composition = context.tensor(0), Composition(context)
        if not x.shape:
            raise NotLoweredError("its operand is a scalar")
        axes = range(len(x.shape)) if layer.dim is None else [checked_axis(layer.dim, len(x.shape))]
        found = composition.reduce(x, axes, "max" if is_largest else "min")
        return composition.finish(Operand(0), composition.as_result(found))
    places, elements, composition = extremes_of(context, layer.dim, is_largest=is_largest)
    return Lowered(views={outputs[0].name: elements, outputs[1].name: places}, steps=composition.steps)


def extremes_of(
    context: Context, dim: int | None, *, is_largest: bool, sizes: Sequence[int] | None = None
) -> tuple[View, View, Composition]:
    """Return indices and elements, and the steps that find them.

    Args:
        sizes: of both, if they are not those of the first result.
    """
    x, composition = context.elements(0), Composition(context)
    spec = context.lowering.spec(context.op.outputs[0])
    sizes = spec.sizes if sizes is None and spec is not None else sizes
    if not x.shape or sizes is None:
        raise NotLoweredError("its operand is a scalar")
    if x.dtype.name not in TYPES or x.dtype.kind == "b":
        raise NotLoweredError(f"there are no {dtype_name(x.dtype)} kernels")
    rows = composition.rows(x, range(len(x.shape)) if dim is None else [checked_axis(dim, len(x.shape))])
    if rows.shape[1] > _MAX_INDEX:
        raise NotLoweredError("there is no kernel for this many elements")
    places, elements = row_major(sizes, INT64), row_major(sizes, x.dtype)
    count, columns = rows.shape
    kernel = ArgExtreme(
        rows=count,
        columns=columns,
        source=rows.strides[0],
        is_largest=is_largest,
        dtype=x.dtype.name,
        host=context.host,
    )
    composition.steps.append(context.step(kernel, rows, places, elements))
    return places, elements, composition


@kernels_for(scan.Running)
def lower_scan(context: Context) -> Lowered:
    """Lower a running sum or product along one dimension."""
    layer = context.layer(scan.Running)
    mode, is_reverse, is_exclusive = layer.mode, layer.reverse, layer.exclusive
    x, spec, composition = context.elements(0), context.lowering.spec(context.op.outputs[0]), Composition(context)
    if not x.shape or spec is None:
        raise NotLoweredError("its operand is a scalar")
    axis = checked_axis(layer.dim, len(x.shape))
    if x.dtype == FLOAT32 and spec.dtype.kind == "i":  # integers are summed
        whole = row_major(x.shape, spec.dtype)
        composition.typed(whole, Operand(0), x, domain="float")
        x = whole
    sizes = math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1 :])
    kernel = _scan(context, x, spec, sizes, mode)
    is_float = spec.dtype == FLOAT32
    target = context.allocate(is_image=False) if is_float else row_major(spec.sizes, spec.dtype)
    if is_reverse:
        x = derived(x, x.meta.flip(axis))
    if not x.is_row_major:
        x = context.copied(x, composition.steps)
    if not target.is_row_major:
        raise NotLoweredError("the memory of its result is not contiguous")
    if not is_reverse and not is_exclusive:
        return context.lowered(target, *composition.steps, context.step(kernel, x, target))
    total = row_major(spec.sizes, spec.dtype)
    composition.steps.append(context.step(kernel, x, total))
    into = derived(target, target.meta.flip(axis)) if is_reverse else target
    if not is_exclusive:
        return context.lowered(target, *composition.steps, context.copy(total, into))
    # An exclusive scan is shifted by one element, without the last sum.
    sums, places = (each.meta.moveaxis(axis, 0) for each in (total, into))
    first = constant(np.full((), mode == "product", spec.dtype))
    composition.steps.append(context.copy(derived(first, first.meta.broadcast_to(places[:1].shape)),
                                          derived(into, places[:1])))  # fmt: skip
    if len(sums) > 1:
        composition.steps.append(context.copy(derived(total, sums[:-1]), derived(into, places[1:])))
    return context.lowered(target, *composition.steps)


def _scan(context: Context, x: View, spec: TensorSpec, sizes: tuple[int, int, int], mode: Mode) -> Scan:
    kinds = (x.dtype.kind, spec.dtype.kind)
    is_known = {x.dtype.name, spec.dtype.name} <= TYPES.keys() and spec.dtype.kind != "b"
    is_same = kinds[0] == "f" and x.dtype == spec.dtype
    if not is_known or not (is_same or "f" not in kinds):
        raise NotLoweredError(f"there are no {dtype_name(x.dtype)} kernels")
    domain: Domain = "float" if spec.dtype == FLOAT32 else "double" if kinds[0] == "f" else "i64"
    outer, size, inner = sizes
    names = (x.dtype.name, spec.dtype.name)
    return Scan(mode=mode, outer=outer, size=size, inner=inner, dtypes=names, domain=domain, host=context.host)
