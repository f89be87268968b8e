"""Dtypes of ONNX by their number in TensorProto.DataType."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import ml_dtypes
import numpy as np

from engine.errors import ParameterError
from engine.layers.operands.conversion import STRING
from engine.tensor import BFLOAT16, DType

DTYPES: Final[Mapping[int, DType]] = {
    number: np.dtype(kind)
    for number, kind in (
        (1, np.float32), (2, np.uint8), (3, np.int8), (4, np.uint16), (5, np.int16), (6, np.int32), (7, np.int64),
        (8, STRING), (9, np.bool_), (10, np.float16), (11, np.float64), (12, np.uint32), (13, np.uint64),
        (14, np.complex64), (15, np.complex128), (16, BFLOAT16), (17, ml_dtypes.float8_e4m3fn),
        (18, ml_dtypes.float8_e4m3fnuz), (19, ml_dtypes.float8_e5m2), (20, ml_dtypes.float8_e5m2fnuz),
        (21, ml_dtypes.uint4), (22, ml_dtypes.int4), (23, ml_dtypes.float4_e2m1fn), (24, ml_dtypes.float8_e8m0fnu),
        (25, ml_dtypes.uint2), (26, ml_dtypes.int2),
    )
}  # fmt: skip
NUMBERS: Final[Mapping[DType, int]] = {dtype: number for number, dtype in DTYPES.items()}

SMALL_INTEGERS: Final = frozenset(DTYPES[number] for number in (21, 22, 25, 26))


def onnx_dtype(number: int) -> DType:
    """Return the dtype of a number of TensorProto.DataType.

    Raises:
        ParameterError: there is no such number.
    """
    if number not in DTYPES:
        raise ParameterError("no such dtype", found=f"ONNX data type {number}", expected="one of TensorProto.DataType")
    return DTYPES[number]
