"""Samples of linear and bilinear maps."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import Tensor, nn
from written import written

X = torch.randn(2, 3, 5)
WEIGHT, BIAS = torch.randn(4, 5), torch.randn(4)


class Pair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.without = nn.Linear(5, 4), nn.Linear(4, 3, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.without(self.linear(x))


SAMPLES = [
    Sample("nn_Linear", Pair(), (X,)),
    Sample("nn_Linear_vector", Pair(), (X[0, 0],)),
    Sample("nn_Linear_empty", Pair(), (torch.zeros(0, 5),)),
    Sample("nn_Linear_four_axes", Pair(), (torch.randn(2, 1, 3, 5),)),
    Sample("nn_Linear_dynamic", Pair(), (X,), [(torch.randn(4, 1, 5),)], dynamic=(torch.randn(3, 6, 5),)),
    Sample("nn_Linear_double", nn.Linear(5, 4).double(), (X.double(),)),
    Sample(
        "nn_Linear_half_weights",
        lambda x: F.linear(x, WEIGHT.half().float(), BIAS.half().float()),
        (X,),
        param=written(
            {"x": X}, "nn.Linear x -> y bias=True in_features=5 out_features=4 @bias=(4)f16 @weight=(4,5)f16"
        ),
        attributes={"op0.weight": WEIGHT.half().numpy(), "op0.bias": BIAS.half().numpy()},
    ),
    Sample(
        "F_linear",
        lambda x, w, b: (F.linear(x, w), F.linear(x, w, b), F.linear(x, w[0]), F.linear(x, w[0], b[0])),
        (X, WEIGHT, BIAS),
    ),
    Sample("F_linear_half", F.linear, (X.half(), WEIGHT.half(), BIAS.half()), rtol=2e-3, atol=2e-3),
    Sample("F_linear_bfloat16", F.linear, (X.bfloat16(), WEIGHT.bfloat16(), BIAS.bfloat16()), rtol=1e-2, atol=1e-2),
    Sample("F_linear_integers", F.linear, (torch.arange(6).reshape(2, 3), torch.arange(-6, 6).reshape(4, 3))),
    Sample("F_linear_complex", F.linear, (torch.complex(X, X * 2), torch.complex(WEIGHT, -WEIGHT))),
    Sample(
        "F_linear_without_bias_as_operand",
        lambda x, w: F.linear(x, w),
        (X, WEIGHT),
        param=written({"x": X, "w": WEIGHT}, "F.linear x w None -> y"),
    ),
    Sample(
        "bilinear",
        lambda a, b, w, c: (F.bilinear(a, b, w, c), F.bilinear(a[0, 0], b[0, 0], w)),
        (X, torch.randn(2, 3, 6), torch.randn(4, 5, 6), BIAS),
    ),
    Sample("nn_Bilinear", nn.Bilinear(5, 6, 3), (X, torch.randn(2, 3, 6))),
    Sample(
        "bilinear_bfloat16",
        F.bilinear,
        (X.bfloat16(), X.bfloat16(), torch.randn(4, 5, 5).bfloat16()),
        rtol=2e-2,
        atol=5e-2,
    ),
]
