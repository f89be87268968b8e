"""Selection of Winograd's algorithm for convolutions, and its agreement with the reference."""

from __future__ import annotations

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler import CompiledGraph
from engine.options import Options
from tests.engine.graph.build import F32, INPUT, built, conv, op

RANDOM = np.random.default_rng(4)
WINOGRAD, DIRECT = "winograd", "conv"


@pytest.mark.parametrize(
    ("size", "stride", "dilation", "kind"),
    [
        ((28, 28), (1, 1), (1, 1), WINOGRAD),
        ((29, 31), (1, 1), (1, 1), WINOGRAD),
        ((56, 56), (2, 2), (1, 1), WINOGRAD),
        ((55, 58), (2, 2), (1, 1), WINOGRAD),
        ((24, 24), (1, 1), (2, 2), WINOGRAD),
        ((24, 32), (1, 1), (4, 4), WINOGRAD),
        ((25, 24), (1, 1), (2, 2), WINOGRAD),
        ((33, 33), (1, 1), (4, 4), WINOGRAD),
        ((24, 24), (1, 1), (2, 1), DIRECT),
        ((28, 28), (1, 2), (1, 1), DIRECT),
        ((28, 28), (3, 3), (1, 1), DIRECT),
        ((28, 28), (2, 2), (2, 2), DIRECT),
    ],
    ids=str,
)
def test_a_convolution_of_64_channels(
    size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], kind: str
) -> None:
    shape = (2, 64, *size)
    layer = conv("conv", "0", "1", (64, 64), stride=stride, padding=dilation, dilation=dilation)
    graph = built(INPUT, layer, op("nn.ReLU", "relu", "1", "2"), op("pnnx.Output", "out", "2"), _0=shape)
    compiled = CompiledGraph(graph, Options())
    executable = compiled.builder.program([port.spec for port in graph.inputs]).executable
    assert kind in [step.kind for step in executable.steps]
    assert (executable.fault_flag is not None) == (kind == WINOGRAD)
    check(compiled, graph, shape)


def check(compiled: CompiledGraph, graph: RuntimeGraph, shape: tuple[int, ...]) -> None:
    x = RANDOM.standard_normal(shape).astype(F32)
    (wanted,) = Session(graph, backend="reference").run([x])
    (found,) = compiled.run([x])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "kinds"),
    [
        ((3,), 1, 1, {WINOGRAD}),
        ((3,), 1, 8, {WINOGRAD}),
        ((13,), 1, 1, {WINOGRAD}),
        ((5,), 2, 1, {DIRECT}),
        ((1,), 1, 1, {DIRECT}),
        ((5, 5), 1, 1, {WINOGRAD}),
        ((5, 5), 1, 2, {WINOGRAD}),
    ],
    ids=str,
)
def test_other_filters_go_by_their_rows(kernel: tuple[int, ...], stride: int, dilation: int, kinds: set[str]) -> None:
    shape = (2, 64, *(124, 20)[: len(kernel)])
    padding = tuple(dilation * (taps // 2) for taps in kernel)
    layer = conv(
        "conv", "0", "1", (64, 64), kernel, stride=(stride,) * len(kernel), padding=padding,
        dilation=(dilation,) * len(kernel),
    )  # fmt: skip
    graph = built(INPUT, layer, op("pnnx.Output", "out", "1"), _0=shape)
    compiled = CompiledGraph(graph, Options())
    executable = compiled.builder.program([port.spec for port in graph.inputs]).executable
    assert kinds == {step.kind for step in executable.steps} & {WINOGRAD, DIRECT}
    check(compiled, graph, shape)
