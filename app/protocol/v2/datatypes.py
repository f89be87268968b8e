"""The protocol's datatypes and the dtypes they stand for."""

from __future__ import annotations

from typing import Any, Final

import ml_dtypes
import numpy as np

DType = np.dtype[Any]

# Strings and encoded pictures: of no size of their own, so of no dtype.
BYTES: Final = "BYTES"
_DTYPES: Final[dict[str, DType]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8), "UINT16": np.dtype(np.uint16),
    "UINT32": np.dtype(np.uint32), "UINT64": np.dtype(np.uint64),
    "INT8": np.dtype(np.int8), "INT16": np.dtype(np.int16), "INT32": np.dtype(np.int32), "INT64": np.dtype(np.int64),
    "FP16": np.dtype(np.float16), "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype(np.float32), "FP64": np.dtype(np.float64),
}  # fmt: skip
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}
NAMES: Final = (*_DTYPES, BYTES)


def dtype_of(datatype: str) -> DType | None:
    """The dtype a datatype stands for; None for BYTES, and for what is none."""
    return _DTYPES.get(datatype)


def datatype_of(dtype: DType) -> str | None:
    """What the protocol calls a dtype, BYTES that of texts; None for those it has no word for, as complex numbers."""
    return BYTES if dtype.hasobject else _NAMES.get(dtype)


def config_name(datatype: str) -> str:
    """What a model's configuration calls it: TYPE_FP32, and TYPE_STRING for BYTES."""
    return "TYPE_STRING" if datatype == BYTES else f"TYPE_{datatype}"
