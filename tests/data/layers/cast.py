"""Samples of conversions between dtypes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from record import Sample

X = torch.tensor([[-2.7, -0.5, 0.0, 0.5], [1.5, 2.7, 100.9, -0.0]])
SPECIAL = torch.tensor([float("nan"), float("inf"), 0.0])
INTS = torch.tensor([[300, -1, 0, 7]])
C = torch.tensor([1 + 2j, 0 + 1j])
TYPES = ("float64", "int8", "int16", "int32", "int64", "uint8", "bool", "complex64", "complex128")


def to(dtype: torch.dtype) -> Callable[..., object]:
    return lambda x, i: (x.to(dtype), i.to(dtype))


SAMPLES = [
    *[
        Sample(
            f"to_{name}",
            to(getattr(torch, name)),
            (X if name != "uint8" else X.abs(), INTS),
        )
        for name in TYPES
    ],
    Sample("to_bool_of_nan", lambda x: x.to(torch.bool), (SPECIAL,)),
    Sample("from_bool", lambda b: (b.to(torch.float32), b.long(), b.to(torch.uint8)), (X > 0,)),
    Sample("from_half", lambda h: (h.float(), h.double(), h.int()), (X.half(),)),
    Sample("from_bfloat16", lambda h: (h.float(), h.double(), h.int()), (X.bfloat16(),)),
    Sample("from_complex", lambda c: (c.to(torch.complex128), c.to(torch.bool)), (C,)),
    Sample("to_other", lambda x, y: (x.to(y), y.to(x)), (X, INTS)),
    Sample("to_same", lambda x: x.to(torch.float32) + 1, (X,)),
    Sample("to_copy", lambda x: x.to(torch.float64, copy=True), (X,)),
    Sample("type_as", lambda x, y: (x.type_as(y), y.type_as(x)), (X, INTS)),
]
