"""Tensors that stand for their shape.

Where an ONNX file takes the whole shape of a tensor (``Shape`` into ``ConstantOfShape``, ``Expand``, ``Reshape``), the
converter drops the operator that asks for it and wires the tensor itself. No list of sizes has several axes, so such
a tensor can only mean its shape. (A vector of floats may be the factors of a resize.)
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from engine.tensor import UNKNOWN, TensorSpec

SHAPE_PARAMETERS: Final = ("shape", "size")
"""Parameters that are the shape of a result."""


def is_dropped_shape(value: object) -> bool:
    """Whether a value can be no list of sizes but has a shape."""
    if not isinstance(value, (np.ndarray, TensorSpec)) or len(value.shape) < 2:
        return False
    # A single integer stands for a number, whatever its dimensions.
    return not (value.size == 1 and value.dtype.kind in "iub")


def shape_list(value: Any) -> list[Any]:
    """The shape of a tensor or of what is known of one; UNKNOWN for open dimensions."""
    return [UNKNOWN if size is None else size for size in value.shape]
