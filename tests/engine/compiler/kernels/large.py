"""Every kernel with every size and parameter at a million, one at a time, on a thread with a small stack.

``python -m tests.engine.compiler.kernels.large FAMILY`` compiles and runs the cases of a family and compares them
with the reference, in a separate process because a stack overflow ends it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from engine import RuntimeGraph, Session
from tests.engine.graph.build import F32, INPUT, built, conv, op

MILLION = 1_000_000
STACK_BYTES = 2 << 20
# Taps of a window; with more the reference takes too long.
MOST_TAPS = 4000
FAMILIES: dict[str, Callable[[], Iterator[RuntimeGraph]]] = {}


def family(cases: Callable[[], Iterator[RuntimeGraph]]) -> Callable[[], Iterator[RuntimeGraph]]:
    FAMILIES[cases.__name__] = cases
    return cases


def alone(type: str, *shape: int, **given: Any) -> RuntimeGraph:
    """Return a graph of one operator with one input."""
    return built(INPUT, op(type, "it", "0", "1", **given), op("pnnx.Output", "out", "1"), _0=shape)


def signal(channels: tuple[int, int], length: int, kernel: int, batch: int = 1, **given: Any) -> RuntimeGraph:
    """Return a convolution of signals."""
    it = conv("it", "0", "1", channels, (kernel,), **_params(given, 1))
    return built(INPUT, it, op("pnnx.Output", "out", "1"), _0=(batch, channels[0], length))


def image(channels: tuple[int, int], size: tuple[int, int], kernel: int, batch: int = 1, **given: Any) -> RuntimeGraph:
    """Return a convolution of images."""
    it = conv("it", "0", "1", channels, (kernel, kernel), **_params(given, 2))
    return built(INPUT, it, op("pnnx.Output", "out", "1"), _0=(batch, channels[0], *size))


def _pair(value: Any, rank: int) -> Any:
    return value if isinstance(value, tuple | bool) else (value,) * rank


def _params(given: dict[str, Any], rank: int) -> dict[str, Any]:
    return {key: value if key == "groups" else _pair(value, rank) for key, value in given.items()}


@family
def convolution() -> Iterator[RuntimeGraph]:
    yield signal((2, 2), 2, 1, batch=MILLION)
    yield signal((MILLION, 1), 3, 1)
    yield signal((1, MILLION), 3, 1)
    yield signal((1, 2), MILLION, 3, padding=1)
    yield signal((1, 1), MILLION, MILLION)
    yield signal((1, 2), MILLION, 3, stride=MILLION)
    yield signal((1, 2), MILLION, 3, dilation=MILLION // 3)
    yield signal((1, 2), 5, 3, dilation=MILLION, padding=MILLION)
    yield signal((1, 2), 5, 3, stride=MILLION, padding=MILLION)


@family
def images() -> Iterator[RuntimeGraph]:
    yield image((2, 2), (MILLION, 3), 3, padding=1)
    yield image((2, 2), (3, MILLION), 3, padding=1)
    yield image((MILLION // 10, 2), (6, 6), 3, padding=1)
    yield image((2, MILLION // 10), (6, 6), 3, padding=1)
    yield image((16, 16), (6, 6), 3, batch=MILLION // 100, padding=1)
    yield image((1, 2), (2, MILLION), 2, stride=(1, MILLION))
    yield image((1, 8), (MILLION, 2), 2, stride=(MILLION, 1))
    yield image((1, 2), (2, 3), 3, padding=(1, MILLION), stride=(1, MILLION))


@family
def depthwise() -> Iterator[RuntimeGraph]:
    for channels in (2, 9):
        yield signal((channels, channels), MILLION // 4, 3, padding=1, groups=channels)
        yield signal((channels, channels), MILLION // 4, MILLION // 4, groups=channels)
        yield signal((channels, channels), MILLION // 4, 3, stride=MILLION, groups=channels)
        yield signal((channels, channels), MILLION // 4, 3, dilation=MILLION // 9, groups=channels)
        yield image((channels, channels), (MILLION // 4, 2), 2, stride=(MILLION // 8, 1), groups=channels)
        yield image((channels, channels), (MILLION // 4, 2), 2, dilation=(MILLION // 8, 1), groups=channels)
    yield signal((MILLION, MILLION), 3, 3, groups=MILLION)


@family
def linear() -> Iterator[RuntimeGraph]:
    for rows, taken, made in ((MILLION, 2, 3), (2, MILLION, 3), (2, 3, MILLION)):
        weight = np.ones((made, taken), F32)
        yield alone("nn.Linear", rows, taken, in_features=taken, out_features=made, bias=False, weight=weight)


@family
def pooling() -> Iterator[RuntimeGraph]:
    plain = {"ceil_mode": False, "count_include_pad": True}
    for shape in ((1, 3, MILLION), (1, 65, MILLION // 20), (MILLION, 3, 2), (1, MILLION, 2)):
        for count in (1, 2):
            yield alone("nn.AdaptiveAvgPool1d", *shape, output_size=(count,))
        yield alone("nn.AvgPool1d", *shape, kernel_size=(2,), stride=(1,), padding=(1,), **plain)
    wide, half = (1, 3, MILLION), MILLION // 2
    for kernel, stride, padding in ((MILLION, 1, 0), (half, half, half // 2), (3, MILLION, 0), (3000, 2999, 1500)):
        sizes = {"kernel_size": (kernel,), "stride": (stride,), "padding": (padding,)}
        yield alone("nn.AvgPool1d", *wide, **sizes, **plain | {"count_include_pad": False})
        yield alone("nn.MaxPool1d", *wide, **sizes, dilation=(1,), ceil_mode=True, return_indices=False)
    sizes = {"kernel_size": (3,), "stride": (MILLION // 9,), "padding": (1,), "dilation": (MILLION // 3,)}
    yield alone("nn.MaxPool1d", *wide, **sizes, ceil_mode=False, return_indices=False)
    for size in ((2, MILLION), (MILLION, 2)):
        for target in ((1, 1), (1, 2), (2, 1)):
            yield alone("nn.AdaptiveAvgPool2d", 1, 3, *size, output_size=target)


@family
def rows() -> Iterator[RuntimeGraph]:
    for shape in ((MILLION, 2), (2, MILLION)):
        yield alone("nn.Softmax", *shape, dim=1)
        yield alone("nn.LogSoftmax", *shape, dim=0)
        yield alone("nn.LayerNorm", *shape, normalized_shape=shape[1:], eps=1e-5, elementwise_affine=False)
        for name in ("mean", "sum", "amax", "amin"):
            yield alone(f"torch.{name}", *shape, dim=(1,), keepdim=False)


@family
def movement() -> Iterator[RuntimeGraph]:
    for shape in ((1, 3, 2, MILLION // 4), (1, 3, MILLION // 4, 2), (1, MILLION // 4, 3, 2), (MILLION // 4, 1, 3, 2)):
        yield alone("torch.permute", *shape, dims=(0, 2, 3, 1))
        yield alone("torch.permute", *shape, dims=(3, 1, 2, 0))
        yield alone("nn.Sigmoid", *shape)
        yield alone("pnnx.Expression", *shape, expr="add(@0,mul(@0,2))")
        yield alone("nn.Upsample", *shape, mode="nearest", scale_factor=(2.0, 2.0))
        yield alone("nn.Upsample", *shape, mode="bilinear", size=(3, 5), align_corners=False)


@family
def transposed() -> Iterator[RuntimeGraph]:
    for size, kernel, stride in (
        ((2, MILLION // 8), 3, 2),
        ((MILLION // 8, 2), 3, 2),
        ((2, 2), 300, 1),
        ((2, 2), 60, 60),
    ):
        weight = np.ones((2, 3, kernel, kernel), F32)
        yield alone(
            "nn.ConvTranspose2d", 1, 2, *size, in_channels=2, out_channels=3, kernel_size=(kernel, kernel),
            stride=(stride, stride), padding=(0, 0), output_padding=(0, 0), dilation=(1, 1), groups=1, bias=False,
            weight=weight,
        )  # fmt: skip


def check(graph: RuntimeGraph) -> None:
    """Compile, run, and compare."""
    (port,) = graph.inputs
    assert port.spec is not None
    x = np.random.default_rng(0).random(port.spec.sizes, F32)
    (found,) = Session(graph, backend="auto", threads=1, cache=None).run([x])
    if max(graph.source.operators[1].params.get("kernel_size", (1,))) > MOST_TAPS:
        return
    (wanted,) = Session(graph, backend="reference").run([x])
    scale = max(1.0, float(np.abs(wanted).max())) if wanted.size else 1.0
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3 * scale)


def main() -> None:
    for graph in FAMILIES[sys.argv[1]]():
        check(graph)
    print("done")


if __name__ == "__main__":
    threading.stack_size(STACK_BYTES)
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
