"""The dtype a layer computes in.

PyTorch on a CPU computes half precision (float16, bfloat16) in float32 and rounds the result once; integers that
meet a function with fractional values become float32.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.promotion import cast, float_dtype, is_reduced
from engine.tensor import Array, DType

_FLOAT32: Final[DType] = np.dtype(np.float32)


def working_dtype(dtype: DType) -> DType:
    """The dtype sums and products of this dtype are computed in: float32 for half precision, else itself."""
    return _FLOAT32 if is_reduced(dtype) else dtype


def widened(input: Array) -> Array:
    """A floating or complex array to compute with; integers and half precision become float32."""
    return cast(input, working_dtype(float_dtype(input.dtype)))
