"""Samples of patches."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import nn

IMAGE = torch.randn(2, 3, 7, 6)
EVERYTHING = {"kernel_size": (3, 2), "dilation": (1, 2), "padding": (2, 1), "stride": (2, 1)}

SAMPLES = [
    Sample("nn_unfold", nn.Unfold(3), (IMAGE,)),
    Sample("nn_unfold_everything", nn.Unfold(**EVERYTHING), (IMAGE,)),
    Sample("F_unfold", lambda x: F.unfold(x, (2, 3), padding=1, stride=2), (IMAGE,)),
    Sample("F_unfold_unbatched", lambda x: F.unfold(x, 2), (IMAGE[0],)),
    Sample("nn_fold", nn.Fold((4, 5), 2), (torch.randn(2, 8, 12),)),
    Sample("nn_fold_everything", nn.Fold((7, 6), **EVERYTHING), (torch.randn(2, 12, 30),)),
    Sample("F_fold_unbatched", lambda x: F.fold(x, (4, 5), 2), (torch.randn(8, 12),)),
    Sample("F_fold_f16", lambda x: F.fold(x, (4, 5), 2), (torch.randn(1, 8, 12).half(),), rtol=2e-3, atol=2e-3),
    Sample(
        "F_unfold_and_fold_dynamic",
        lambda x: F.fold(F.unfold(x, 2, stride=2), (x.size(2), x.size(3)), 2, stride=2),
        (torch.randn(1, 2, 4, 6),),
        further=[(torch.randn(3, 2, 8, 2),)],
        dynamic=(torch.randn(2, 2, 6, 8),),
    ),
]
