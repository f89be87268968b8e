"""Run of a convolution's kernel between guard pages, compared with the sum written out in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from engine.compiler.codegen.host import Host, describe
from engine.compiler.kernels.convolution.conv import Conv
from engine.compiler.kernels.expr import Operand, apply
from engine.compiler.kernels.kernel import Epilogue
from tests.engine.compiler.kernels.convolution.summed import convolved
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import dense, run

Pair = tuple[int, int]


def drawn_geometry(data: st.DataObject) -> tuple[tuple[int, int, int], Pair, dict[str, Any]]:
    """Draw the size of a result and of a filter, and further arguments of ``check_convolution``."""
    small = st.integers(1, 3)
    size = data.draw(st.tuples(st.integers(1, 2), st.integers(1, 6), st.integers(1, 19)))
    kernel = data.draw(st.tuples(small, st.integers(1, 4)))
    pairs = {name: data.draw(st.tuples(small, small)) for name in ("stride", "dilation")}
    return size, kernel, {**pairs, "gap": data.draw(st.integers(0, 5)), "tail": data.draw(st.booleans())}


def check_convolution(
    make: Callable[[Host, dict[str, Any]], Conv],
    level: str,
    size: tuple[int, int, int],
    channels: tuple[int, int, int],
    kernel: Pair = (3, 3),
    *,
    stride: Pair = (1, 1),
    dilation: Pair = (1, 1),
    gap: int = 0,
    tail: bool = False,
) -> None:
    """Run a kernel whose image, weights and target end at a guard page; pixels lie ``gap`` floats apart.

    Args:
        make: creates the kernel for a host, from a geometry without channels and tile.
        channels: groups, and the input and output channels of each.
        tail: whether there is an epilogue with an operand.
    """
    (n, rows, columns), (groups, inputs, outputs) = size, channels
    random = np.random.default_rng(17)
    height = (rows - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1
    width = (columns - 1) * stride[1] + (kernel[1] - 1) * dilation[1] + 1
    pitch = groups * inputs + gap
    image = random.standard_normal((n, height, width, pitch), np.float32)
    weight = random.standard_normal((groups * outputs, inputs, *kernel), np.float32)
    bias = random.standard_normal(groups * outputs, np.float32)
    other = random.standard_normal((n, rows, columns, groups * outputs), np.float32)
    out = dense(rows, columns, groups * outputs)
    geometry = {
        "batch": n,
        "rows": rows,
        "columns": columns,
        "kernel": kernel,
        "stride": stride,
        "dilation": dilation,
        "source": dense(height, width, pitch),
        "target": out,
        "epilogue": Epilogue(apply("add", apply("silu", Operand(0)), Operand(1)), (out,)) if tail else Epilogue(),
    }
    code = make(describe(level), geometry)
    flat = guarded_array(image.reshape(-1)[: image.size - gap])
    result = guarded_array(np.full(other.shape, np.nan, np.float32))
    run(code, level, [flat, guarded_array(code.pack(weight, bias)), result, *([guarded_array(other)] if tail else [])])
    wanted = convolved(image[..., : groups * inputs], weight, bias, stride, dilation, groups)
    wanted = wanted / (1 + np.exp(-wanted)) + other if tail else wanted
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5 * weight[0].size ** 0.5)
