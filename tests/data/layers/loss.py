"""Samples of losses, as of autoencoders that look for the unusual."""

from __future__ import annotations

import torch
from record import Sample
from torch.nn import functional as F
from written import written

RANDOM = torch.Generator().manual_seed(5)
X, Y = (torch.randn(3, 4, 5, generator=RANDOM) for _ in range(2))
P, Q = X.sigmoid(), Y.sigmoid()
EDGES = torch.tensor([0.0, 1.0, 0.5, 1e-30])
SIGNS = Y.sign()
WEIGHT = torch.rand(3, 4, 5, generator=RANDOM)
REDUCTIONS = ("none", "mean", "sum")


def every(loss, *operands, **options):
    return tuple(loss(*operands, reduction=each, **options) for each in REDUCTIONS)


SAMPLES = [
    Sample("l1_loss", lambda x, y: every(F.l1_loss, x, y), (X, Y)),
    Sample("mse_loss", lambda x, y: every(F.mse_loss, x, y), (X, Y)),
    Sample("mse_loss_f64", lambda x, y: every(F.mse_loss, x, y), (X.double(), Y.double())),
    Sample("mse_loss_of_items", lambda x, y: F.mse_loss(x, y, reduction="none").mean((1, 2)), (X, Y)),
    Sample("smooth_l1_loss", lambda x, y: (*every(F.smooth_l1_loss, x, y), F.smooth_l1_loss(x, y, beta=0.3)), (X, Y)),
    Sample("smooth_l1_loss_without_beta", lambda x, y: every(F.smooth_l1_loss, x, y, beta=0.0), (X, Y)),
    Sample("huber_loss", lambda x, y: (*every(F.huber_loss, x, y), F.huber_loss(x, y, delta=0.3)), (X, Y)),
    Sample("soft_margin_loss", lambda x, y: every(F.soft_margin_loss, x, y), (X, SIGNS)),
    Sample("kl_div", lambda x, y: every(F.kl_div, x.log(), y), (P, Q)),
    Sample("kl_div_of_nothing", lambda x, y: every(F.kl_div, x, y), (-EDGES, EDGES)),
    Sample("kl_div_log_target", lambda x, y: every(F.kl_div, x, y, log_target=True), (-P, -Q)),
    Sample("kl_div_of_batch", lambda x, y: F.kl_div(x, y, reduction="batchmean"), (-P, Q)),
    Sample("binary_cross_entropy", lambda x, y: every(F.binary_cross_entropy, x, y), (P, Q)),
    Sample("binary_cross_entropy_of_edges", lambda x, y: every(F.binary_cross_entropy, x, y), (EDGES, EDGES.flip(0))),
    Sample(
        "binary_cross_entropy_weight",
        lambda x, y, w: every(F.binary_cross_entropy, x, y, w),
        (P, Q, WEIGHT),
        param=written(
            {"x": P, "y": Q, "w": WEIGHT},
            *(f"aten::binary_cross_entropy x y w {number} -> {each}" for number, each in enumerate(REDUCTIONS)),
        ),
    ),
    Sample(
        "binary_cross_entropy_with_logits",
        lambda x, y: every(F.binary_cross_entropy_with_logits, x, y),
        (50 * X, Q),
    ),
    Sample(
        "binary_cross_entropy_with_logits_weights",
        lambda x, y, w: every(F.binary_cross_entropy_with_logits, x, y, weight=w, pos_weight=2 * w),
        (X, Q, WEIGHT),
    ),
]
