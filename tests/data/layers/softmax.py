"""Samples of softmax and its relatives: every type, axes, dtypes, the dropped dtype=, rows without a finite maximum."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from record import Sample
from torch import Tensor, nn
from written import written

X = torch.randn(2, 3, 5) * 4
INFINITY = float("inf")
ROWS = torch.tensor([
    [300.0, -300, 0, 1], [-INFINITY, 1, 2, -INFINITY], [-INFINITY, -INFINITY, -INFINITY, -INFINITY], [INFINITY, 0, 1, 2],
    [float("nan"), 0, 1, 2], [1e-30, 0, -0.0, 1e30],
])  # fmt: skip


def all_three(x: Tensor) -> tuple[Tensor, ...]:
    return F.softmax(x, -1), F.log_softmax(x, 0), F.softmin(x, -1)


class Modules(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.softmax, self.softmin, self.log = nn.Softmax(1), nn.Softmin(-1), nn.LogSoftmax(2)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return self.softmax(x), self.softmin(x), self.log(x)


SAMPLES = [
    Sample("functions", all_three, (X,), [(X * 20,)]),
    Sample("modules", Modules(), (X,)),
    Sample("Softmax2d", nn.Softmax2d(), (X[None],)),
    Sample("Softmax2d_unbatched", nn.Softmax2d(), (X,)),
    Sample("rows_without_a_finite_maximum", all_three, (ROWS,)),
    Sample("single_column", lambda x: (F.softmax(x, 1), F.log_softmax(x, 1)), (torch.randn(3, 1),)),
    Sample("empty", lambda x: (F.softmax(x, 1), F.softmax(x, 0), F.log_softmax(x, 0)), (torch.zeros(0, 3),)),
    Sample("vector_and_implicit_dim", lambda x: (F.softmax(x), F.log_softmax(x, 0)), (X[0, 0],)),
    Sample("implicit_dim_of_old_files", lambda x: F.softmax(x, 0), (X,), param=written({"x": X}, "F.softmax x -> y")),
    Sample(
        "implicit_dim_of_a_matrix",
        lambda x: F.softmax(x, 1),
        (ROWS[:2],),
        param=written({"x": ROWS[:2]}, "F.softmax x -> y"),
    ),
    Sample(
        "scalar",
        lambda x: (F.softmax(x, 0), F.log_softmax(x, -1)),
        (torch.tensor(2.0),),
        param=written({"x": torch.tensor(2.0)}, "F.softmax x -> a dim=0", "F.log_softmax x -> b dim=-1"),
    ),
    Sample("double", all_three, (X.double(),)),
    Sample("half", all_three, (X.half(),), rtol=2e-3, atol=1e-6),
    Sample("bfloat16", all_three, (X.bfloat16(),), rtol=8e-3),
    Sample(
        "to_double", lambda x: (F.softmax(x, 1, dtype=torch.float64), F.log_softmax(x, 1, dtype=torch.float64)), (X,)
    ),
    Sample(
        "of_integers",
        lambda x: (F.softmax(x, 0, dtype=torch.float32), F.log_softmax(x, 0, dtype=torch.float64)),
        (torch.arange(6).reshape(2, 3),),
    ),
    Sample("softmin_to_double", lambda x: F.softmin(x, 1, dtype=torch.float64), (X,)),
    Sample("dynamic", all_three, (X,), [(torch.randn(1, 4, 2),)], dynamic=(torch.randn(3, 2, 6),)),
]
