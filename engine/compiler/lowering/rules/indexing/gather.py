"""Table lookup."""

from __future__ import annotations

import numpy as np

from engine.compiler.kernels.indexing.gather import Gather
from engine.compiler.lowering.context import Context, as_rows
from engine.compiler.lowering.declining import NotLoweredError
from engine.compiler.lowering.rules.registry import kernels_for
from engine.compiler.lowering.steps import Made
from engine.compiler.storage import View, row_major
from engine.ir.strided import Strided
from engine.layers.linear.embedding import Embedding

_BITS = {np.dtype(np.int32): 32, np.dtype(np.int64): 64}


@kernels_for(Embedding, doubles=True)
def lower_embedding(context: Context) -> Made:
    """weight[input] with what follows; an index outside of the table is for the reference to name."""
    indices, table = context.argument(0), as_rows(context.tensor(1))
    indices = context.lowering.stored(indices) if isinstance(indices, np.ndarray) else indices
    if not isinstance(indices, View) or indices.dtype not in _BITS or not indices.phantom.size:
        raise NotLoweredError("its indices are no int32 or int64, or none")
    copies = []
    if not indices.is_row_major:
        copies.append(context.copy(indices, aside := row_major(indices.shape, indices.dtype)))
        indices = aside
    if table is None:
        raise NotLoweredError("its table does not lie in rows")
    rows, columns = table.shape
    result = context.fuse(_as_image, is_image=False)
    kernel = Gather(
        count=indices.phantom.size,
        bits=64 if _BITS[indices.dtype] == 64 else 32,
        rows=rows,
        columns=columns,
        source=table.strides[0],
        target=result.image.strides[2],
        host=context.host,
        epilogue=result.epilogue,
    )
    return result.made(*copies, result.step(kernel, [indices, table]))


def _as_image(array: Strided) -> Strided:
    """(..., columns) as (1, columns, indices, 1)."""
    return array.reshape(-1, array.shape[-1]).transpose()[None, :, :, None]
