"""Samples of quantisation."""

from __future__ import annotations

import torch
from record import Sample

X = torch.tensor([[-3.0, -0.26, 0.0, 0.25], [0.75, 1.2, 60.0, 0.13]])

SAMPLES = [
    Sample("quantize_dequantize", lambda x: torch.quantize_per_tensor(x, 0.1, 10, torch.quint8).dequantize(), (X,)),
    Sample("quantize_signed", lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint8).dequantize(), (X,)),
    Sample("quantize_int", lambda x: torch.quantize_per_tensor(x, 0.5, 0, torch.qint32).int_repr(), (X,)),
    Sample("fake_quantize", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), (X,)),
    Sample(
        "fake_quantize_channel",
        lambda x: torch.fake_quantize_per_channel_affine(
            x, torch.tensor([0.1, 0.2]), torch.tensor([0, 1], dtype=torch.int32), 0, -128, 127
        ),
        (X,),
    ),
]
