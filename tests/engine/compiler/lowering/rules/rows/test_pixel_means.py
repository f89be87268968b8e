"""Reductions of all pixels behind a convolution: its image is read where it lies."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine import Session
from engine.tensor import Array
from tests.combining import together
from tests.engine.graph.build import F32, built, conv, op

SIZES = {1: (37,), 2: (9, 13), 3: (4, 7, 6)}


def numbers(*shape: int) -> Array:
    return np.random.default_rng(11).standard_normal(shape).astype(F32)


@together(
    ("rank", SIZES),
    ("channels", [1, 5, 40]),
    ("type", ["torch.mean", "torch.sum", "torch.amax", "torch.amin", "torch.prod", "torch.max"]),
    ("keepdim", [True, False]),
)
def test_every_reduction(rank: int, channels: int, type: str, keepdim: bool) -> None:
    sizes, dims = SIZES[rank], tuple(range(2, 2 + rank))
    dim: Any = 2 if type in ("torch.max", "torch.prod") else dims
    net = built(
        op("pnnx.Input", "pnnx_input_0", "", "x"),
        conv("before", "x", "a", (3, channels), (1,) * rank),
        op(type, "reduce", "a", "b", dim=dim, keepdim=keepdim),
        op("torch.neg", "neg", "b", "c"),
        op("pnnx.Output", "out", "c"),
        _x=(2, 3, *sizes),
    )
    x, session = numbers(2, 3, *sizes), Session(net, backend="compiled", cache=None)
    for number in (0.5, np.nan):
        x[(1, 0, *(size // 2 for size in sizes))] = number
        (mine,), (theirs,) = session.run([x]), Session(net, backend="reference").run([x])
        np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=2e-5)
    kernels = [row["kernel"] for row in session.run([x], profile=True).kernels if "reduce" in row["operators"]]
    if channels > 1 and len(np.atleast_1d(dim)) == rank and type != "torch.prod" and (rank < 3 or type != "torch.max"):
        assert kernels[0] == "global_average", kernels
