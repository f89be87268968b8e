"""Samples of element-wise activations: every type as a module and as a function, each parameter off its default."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from record import Sample
from torch import Tensor, nn
from written import written

X = torch.linspace(-300, 300, 60).reshape(3, 4, 5)
NEAR = torch.cat([torch.linspace(-6, 6, 97), torch.tensor([-3.0, -0.5, 0.0, -0.0, 0.5, 1.0, 3.0, 6.0, 20.0, 20.1])])
EXTREMES = torch.tensor([-300.0, 300.0, float("nan"), float("inf"), float("-inf"), -0.0, 1e-30, -88.0, 88.8])
EMPTY = torch.zeros(0, 3)
INTS = torch.tensor([[-7, -1, 0, 3], [5, 6, 7, 300]])

FUNCTIONS: list[Callable[[Tensor], Tensor]] = [
    F.relu, F.relu6, F.selu, F.silu, F.sigmoid, F.tanh, F.mish, F.softsign, F.tanhshrink, F.logsigmoid,
    F.hardsigmoid, F.hardswish, F.gelu, F.elu, F.celu, F.leaky_relu, F.rrelu, F.hardtanh, F.hardshrink, F.softshrink,
    F.softplus,
]  # fmt: skip
PARAMETERS: list[Callable[[Tensor], Tensor]] = [
    lambda x: F.gelu(x, approximate="tanh"), lambda x: F.elu(x, 0.3), lambda x: F.celu(x, 0.3), lambda x: F.celu(x, -1.5),
    lambda x: F.leaky_relu(x, 0.2), lambda x: F.leaky_relu(x, 1.5), lambda x: F.rrelu(x, 0.1, 0.9),
    lambda x: F.hardtanh(x, -0.3, 2.5), lambda x: F.hardshrink(x, 1.5), lambda x: F.softshrink(x, 2),
    lambda x: F.threshold(x, 0.3, -20.0), lambda x: F.softplus(x, 2), lambda x: F.softplus(x, 0.5, 1.5),
]  # fmt: skip
MODULES = [
    nn.ReLU(), nn.ReLU6(), nn.SELU(), nn.SiLU(), nn.Sigmoid(), nn.Tanh(), nn.Mish(), nn.Softsign(), nn.Tanhshrink(),
    nn.LogSigmoid(), nn.Hardsigmoid(), nn.Hardswish(), nn.GELU(), nn.GELU(approximate="tanh"), nn.ELU(0.7), nn.CELU(0.7),
    nn.LeakyReLU(0.3), nn.RReLU(0.2, 0.4), nn.Hardtanh(-2, 3), nn.Hardshrink(0.7), nn.Softshrink(0.7),
    nn.Threshold(0.1, 20), nn.Softplus(3, 5),
]  # fmt: skip


class Each(nn.Module):
    """The outputs of several functions or modules of one input."""

    def __init__(self, calls: Sequence[Callable[[Tensor], Tensor]]) -> None:
        super().__init__()
        self.calls = list(calls)
        self.modules_among_them = nn.ModuleList([call for call in calls if isinstance(call, nn.Module)])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(call(x) for call in self.calls)


def prelu(channels: int) -> nn.PReLU:
    module = nn.PReLU(channels)
    with torch.no_grad():
        module.weight.copy_(torch.linspace(-1, 2, channels))
    return module


def zero_dim(*types: str) -> str:
    return written({"x": torch.tensor(1.0)}, *[f"{type} x -> y{index}" for index, type in enumerate(types)])


SAMPLES = [
    Sample("nn_relu", nn.ReLU(), (torch.randn(2, 3, 5),)),
    Sample("F_relu_extremes_and_nan", F.relu, (torch.tensor([-300.0, 300.0, float("nan"), float("inf"), -0.0]),)),
    Sample("F_leaky_relu", lambda x: F.leaky_relu(x, 0.2), (X,)),
    Sample("functions", Each(FUNCTIONS), (NEAR,), [(torch.randn(107) * 5,)]),
    Sample("functions_far", Each(FUNCTIONS), (X,)),
    Sample("functions_extremes", Each([each for each in FUNCTIONS if each is not F.gelu]), (EXTREMES,)),
    # PyTorch's vectorised gelu(inf) is NaN, its scalar one inf.
    Sample("gelu_extremes", Each([F.gelu, nn.GELU("tanh")]), (EXTREMES[float("inf") != EXTREMES],)),
    Sample("functions_double", Each(FUNCTIONS), (torch.linspace(-9, 9, 41, dtype=torch.float64),), atol=1e-8),
    Sample("functions_half", Each(FUNCTIONS), (torch.linspace(-9, 9, 41).half(),), rtol=1e-3, atol=1e-4),
    Sample("functions_bfloat16", Each(FUNCTIONS), (torch.linspace(-9, 9, 41).bfloat16(),), rtol=8e-3, atol=1e-4),
    Sample("functions_empty", Each(FUNCTIONS), (EMPTY,)),
    Sample(
        "functions_dynamic", Each(FUNCTIONS), (torch.randn(2, 3),), [(torch.randn(5, 1),)], dynamic=(torch.randn(4, 7),)
    ),
    Sample(
        "functions_of_integers",
        Each(
            [
                F.relu,
                F.relu6,
                F.sigmoid,
                F.tanh,
                F.softsign,
                F.tanhshrink,
                lambda x: F.hardtanh(x, -2.5, 5.5),
                lambda x: F.threshold(x, 2, 20),
            ]
        ),
        (INTS,),
    ),
    Sample("functions_of_bytes", Each([F.relu, F.relu6, F.sigmoid]), (INTS.to(torch.uint8),)),
    Sample(
        "functions_of_complex",
        Each([F.silu, F.sigmoid, F.tanh, F.softsign, F.tanhshrink]),
        (torch.complex(torch.randn(3, 4), torch.randn(3, 4)),),
    ),
    Sample(
        "functions_of_a_scalar",
        Each([F.relu, F.gelu, F.silu, F.hardtanh, F.softplus]),
        (torch.tensor(-0.7),),
        param=zero_dim("F.relu", "F.gelu", "F.silu", "F.hardtanh", "F.softplus"),
    ),
    Sample("parameters", Each(PARAMETERS), (NEAR,)),
    Sample("parameters_bfloat16", Each(PARAMETERS), (NEAR.bfloat16(),), rtol=8e-3, atol=1e-4),
    Sample("modules", Each(MODULES), (NEAR,)),
    Sample("relu6_of_nan", nn.ReLU6(), (EXTREMES,)),
    Sample("nn_PReLU", prelu(4), (X / 100,)),
    Sample("nn_PReLU_single", nn.PReLU(), (X / 100,)),
    Sample("nn_PReLU_matrix", prelu(5), (torch.randn(2, 5),)),
    Sample(
        "nn_PReLU_bfloat16",
        prelu(4).bfloat16(),
        (X.bfloat16(),),
        rtol=8e-3,
        param=written({"x": X.bfloat16()}, "nn.PReLU x -> y num_parameters=4 @weight=(4)bf16"),
        attributes={"op0.weight": torch.linspace(-1, 2, 4).bfloat16().view(torch.int16).numpy()},
    ),
    Sample("F_prelu", F.prelu, (X / 100, torch.tensor([0.5, -1, 2, 0]))),
    Sample("F_prelu_single", lambda x, w: (F.prelu(x, w), F.prelu(x[0, 0], w)), (X / 100, torch.tensor([0.5]))),
    Sample("glu", Each([F.glu, lambda x: F.glu(x, 0), lambda x: F.glu(x, -2), nn.GLU(1)]), (torch.randn(2, 4, 6),)),
    Sample(
        "glu_dynamic",
        lambda x: F.glu(x, 1),
        (torch.randn(2, 4),),
        [(torch.randn(1, 10),)],
        dynamic=(torch.randn(3, 8),),
    ),
    Sample("glu_half", F.glu, (torch.randn(2, 4).half(),), rtol=1e-3),
    Sample("glu_extremes", F.glu, (torch.tensor([1.0, 2, float("nan"), -300, 300, 1]),)),
    Sample(
        "parameters_as_operands",
        lambda x: (
            F.leaky_relu(x, 0.25),
            F.hardtanh(x, -2.0, 2.5),
            F.threshold(x, 1.5, 0.5),
            F.softplus(x, 2.0, 15.0),
            F.glu(x[:4], 0),
        ),
        (NEAR[:8],),
        param=written(
            {"x": NEAR[:8]},
            "F.leaky_relu x 0.25 -> a",
            "F.hardtanh x -2.0 2.5 -> b",
            "F.threshold x 1.5 0.5 -> c",
            "F.softplus x 2.0 15.0 -> d",
            "Tensor.slice x -> s dim=0 start=0 end=4 step=1",
            "F.glu s 0 -> e",
        ),
    ),
]
