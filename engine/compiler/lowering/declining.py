"""What kernels can compute with, and how a rule declines what they cannot."""

from __future__ import annotations

import numpy as np

from engine.tensor import DType, TensorSpec, dtype_name

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
COMPLEX64 = np.dtype(np.complex64)


class NotLoweredError(Exception):
    """A rule declines an operator; the text is the reason users read."""


def computable(spec: TensorSpec | None, *dtypes: DType) -> TensorSpec:
    """The spec of a tensor kernels can compute with.

    Args:
        dtypes: it may be of; float32 if none is named.

    Raises:
        NotLoweredError: it is none of those and static shape, or has no elements.
    """
    if spec is None:
        raise NotLoweredError("its shape is known only in a run")
    if spec.dtype not in (dtypes or (FLOAT32,)):
        raise NotLoweredError(f"there are no {dtype_name(spec.dtype)} kernels")
    if spec.size == 0:
        raise NotLoweredError("it has no elements")
    return spec
