"""Samples of linear and bilinear maps."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from record import Sample
from torch import Tensor, nn
from written import written

X = torch.randn(2, 3, 5)
WEIGHT, BIAS = torch.randn(4, 5), torch.randn(4)


ROWS = torch.randn(2, 3, 37)


def in_blocks(bits: int, size: int, outputs: int, zeros: Tensor | None = None, dtype: torch.dtype = torch.float32) -> Any:
    """Codes, scales and zero points of ROWS' features, and the weights they stand for."""
    blocks = -(-ROWS.shape[-1] // size)
    codes = torch.randint(0, 1 << bits, (outputs, blocks, size), dtype=torch.uint8)
    packed = sum(codes[:, :, k :: 8 // bits] << bits * k for k in range(8 // bits))
    scales = (torch.rand(outputs, blocks) / 8 + 0.01).to(dtype)
    middle = 1 << (bits - 1) if zeros is None else zeros[:, :, None].float()
    weight = ((codes.float() - middle) * scales.float()[:, :, None]).flatten(1)[:, : ROWS.shape[-1]]
    return packed, scales, weight


BLOCKS = {
    "plain": (in_blocks(4, 16, 19), None, 4, 16),
    "zeros": (in_blocks(4, 32, 19, FOUR := torch.randint(0, 16, (19, 2), dtype=torch.uint8)), FOUR, 4, 32),
    "floats": (in_blocks(8, 16, 5, SOME := torch.rand(5, 3) * 255, torch.float16), SOME, 8, 16),
    "bytes": (in_blocks(8, 64, 6, dtype=torch.float16), None, 8, 64),
    "pairs": (in_blocks(2, 16, 1), None, 2, 16),
}
BIASES = {"plain": torch.randn(19), "floats": torch.randn(5)}


def block_linear_attributes() -> dict[str, Any]:
    found = {}
    for number, (name, ((packed, scales, _), zeros, *_)) in enumerate(BLOCKS.items()):
        parts = {"weight": packed, "scales": scales, "zero_points": zeros, "bias": BIASES.get(name)}
        found |= {f"op{number}.{key}": each.numpy() for key, each in parts.items() if each is not None}
    return found


def block_linears(x: Tensor) -> str:
    codes = {"uint8": "u8", "float16": "f16", "float32": "f32"}
    attributes = block_linear_attributes()
    rows = []
    for number, (_, _, bits, size) in enumerate(BLOCKS.values()):
        own = {key.partition(".")[2]: each for key, each in attributes.items() if key.startswith(f"op{number}.")}
        noted = " ".join(f"@{key}=({','.join(map(str, each.shape))}){codes[each.dtype.name]}" for key, each in own.items())
        flags = " ".join(f"{key}={key in own}" for key in ("zero_points", "bias"))
        rows.append(f"engine.BlockLinear x -> y{number} bits={bits} block_size={size} {flags} {noted}")
    return written({"x": x}, *rows)


def multiplied(x: Tensor) -> tuple[Tensor, ...]:
    weights = [(each[0][2].to(x.dtype), BIASES.get(name)) for name, each in BLOCKS.items()]
    return tuple(F.linear(x, weight, None if bias is None else bias.to(x.dtype)) for weight, bias in weights)


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
    *(
        Sample(f"block_linear_{name}", multiplied, (x,), param=block_linears(x), attributes=block_linear_attributes(), **near)
        for name, x, near in (
            ("float", ROWS, {}),
            ("row", ROWS[0, 0], {}),
            ("empty", ROWS[:0], {}),
            ("double", ROWS.double(), {"rtol": 1e-5, "atol": 1e-5}),
            ("half", ROWS.half(), {"rtol": 2e-3, "atol": 2e-2}),
        )
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
