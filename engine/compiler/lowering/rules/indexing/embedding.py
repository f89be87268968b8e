"""Table lookup, and rows of a table pooled bag by bag."""

from __future__ import annotations

from typing import cast

import numpy as np

from engine.compiler.kernels.indexing.embedding_bag import BagPooling, Mode
from engine.compiler.kernels.indexing.gather import Gather
from engine.compiler.lowering.context import Context, as_rows
from engine.compiler.lowering.rules.indexing.gather import BITS, indices_of
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError
from engine.compiler.storage import FLOAT32, View, row_major
from engine.ir.strided import Strided
from engine.layers.linear.embedding import Embedding, EmbeddingBag
from engine.layers.onnx.indexing.bags import EmbeddingBags


@kernels_for(EmbeddingBag)
def lower_embedding_bag(context: Context) -> Lowered:
    """Lower an embedding bag; its further results are left to the reference."""
    layer = context.layer(EmbeddingBag)
    names = {each.name for each in context.op.outputs[1:]}
    if any(each.consumers for each in context.op.outputs[1:]) or names & {*context.lowering.outputs}:
        raise NotLoweredError("its further results are used")
    return _bags(context, ("sum", "mean", "max")[layer.mode], layer.padding_idx)


@kernels_for(EmbeddingBags)
def lower_onnx_bags(context: Context) -> Lowered:
    """Lower bags given by bounds; bounds that do not ascend from 0, and negative indices, set the fault flag."""
    return _bags(context, cast(Mode, context.layer(EmbeddingBags).mode), None)


def _bags(context: Context, mode: Mode, padding_idx: int | None) -> Lowered:
    table = as_rows(context.tensor(0))
    indices, offsets = (indices_of(context.argument(index), context) for index in (1, 2))
    has_weights = len(context.bound.positional) > 3 and context.argument(3) is not None
    spec = context.lowering.spec(context.op.outputs[0])
    if spec is None or spec.dtype != FLOAT32 or not spec.size:
        raise NotLoweredError("its shape is known only at run time, or it has no elements")
    if table is None or not indices.is_row_major or not offsets.is_row_major or not indices.meta.size:
        raise NotLoweredError("its table or its indices are not contiguous")
    weights = context.tensor(3) if has_weights else table
    rows, columns = table.shape
    if has_weights and (weights.shape != indices.shape or not weights.is_row_major):
        raise NotLoweredError("the shape of its weights does not match")
    kernel = BagPooling(
        mode=mode,
        rows=rows,
        columns=columns,
        source=table.strides[0],
        count=indices.meta.size,
        offsets=offsets.meta.size,
        bags=spec.sizes[0],
        bits=(BITS[indices.dtype.name], BITS[offsets.dtype.name]),
        padding=None if padding_idx is None else padding_idx % rows,
        is_weighted=has_weights,
        host=context.host,
    )
    target = row_major(spec.sizes, FLOAT32)
    return context.lowered(target, context.step(kernel, table, indices, offsets, weights, target))


_BITS = {np.dtype(np.int32): 32, np.dtype(np.int64): 64}


@kernels_for(Embedding, doubles=True)
def lower_embedding(context: Context) -> Lowered:
    """Lower weight[input] with the operators after it; an index out of range sets the fault flag."""
    indices, table = context.argument(0), as_rows(context.tensor(1))
    indices = context.lowering.stored(indices) if isinstance(indices, np.ndarray) else indices
    if not isinstance(indices, View) or indices.dtype not in _BITS or not indices.meta.size:
        raise NotLoweredError("its indices are not int32 or int64, or have no elements")
    copies: list[KernelStep] = []
    indices = indices if indices.is_row_major else context.copied(indices, copies)
    if table is None:
        raise NotLoweredError("the rows of its table are not contiguous")
    rows, columns = table.shape
    result = context.fuse(_as_image, is_image=False)
    kernel = Gather(
        count=indices.meta.size,
        bits=64 if _BITS[indices.dtype] == 64 else 32,
        rows=rows,
        columns=columns,
        source=table.strides[0],
        target=result.image.strides[2],
        host=context.host,
        epilogue=result.epilogue,
    )
    return result.lowered(*copies, result.step(kernel, [indices, table]))


def _as_image(array: Strided) -> Strided:
    """View (..., columns) as (1, columns, indices, 1)."""
    return array.reshape(-1, array.shape[-1]).transpose()[None, :, :, None]
