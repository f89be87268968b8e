"""Taps that lie in the padding are left out, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine import RuntimeGraph, Session
from engine.compiler import CompiledGraph
from engine.compiler.lowering.rules.convolution.conv_geometry import MIN_PIXELS, WORTH, ConvAxis, spans
from engine.options import Options
from tests.engine.graph.build import F32, INPUT, built, conv, op

RANDOM = np.random.default_rng(3)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 3), st.integers(1, 30), st.integers(0, 40), st.booleans())
def test_every_product_with_a_pixel_is_computed_once(
    size: int, kernel: int, stride: int, dilation: int, before: int, can_split: bool
) -> None:
    reach = size + 2 * before - (kernel - 1) * dilation
    assume(reach >= 1)
    count = (reach - 1) // stride + 1
    axis = ConvAxis(size=size, count=count, kernel=kernel, stride=stride, dilation=dilation, before=before, after=0)
    found = spans(axis, can_split=can_split)
    assert [k for span in found for k in range(span.start, span.start + span.count)] == list(range(count))
    products = sum(max(span.count, MIN_PIXELS) * span.taps for span in found)
    assert len(found) == 1 or products < (1 - WORTH) * count * kernel + 1e-9
    for span in found:
        reads = set()
        for k in range(span.count):
            taps = range(span.first, span.first + span.taps)
            at = {tap: (span.start + k) * stride + tap * dilation - before for tap in range(kernel)}
            assert all(tap in taps for tap, pixel in at.items() if 0 <= pixel < size)
            assert span.origin + k * stride == at[span.first]
            reads |= {at[tap] for tap in taps}
        assert (span.before, span.after) == (max(0, -min(reads)), max(0, max(reads) - size + 1))


def check(graph: RuntimeGraph, shape: tuple[int, ...]) -> None:
    x = RANDOM.standard_normal(shape).astype(F32)
    (wanted,) = Session(graph, backend="reference").run([x])
    (found,) = Session(graph, backend="compiled", cache=None).run([x])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * max(1.0, np.abs(wanted).max()))


@pytest.mark.parametrize(
    ("size", "kernel", "given"),
    [
        ((16, 16), (3, 3), {"dilation": (24, 24), "padding": (24, 24)}),
        ((16, 16), (3, 3), {"dilation": (12, 12), "padding": (12, 12)}),
        ((14, 14), (3, 3), {"dilation": (12, 12), "padding": (12, 12)}),  # DeepLab's last spans are two pixels wide
        ((16, 9), (3, 3), {"dilation": (12, 1), "padding": (12, 1)}),
        ((24, 30), (5, 3), {"dilation": (7, 20), "padding": (14, 20), "stride": (2, 1)}),
        ((17, 19), (3, 3), {"dilation": (9, 9), "padding": (9, 9), "stride": (2, 2)}),
        ((20, 20), (3, 3), {"dilation": (10, 10), "padding": (10, 10), "groups": 2}),
        ((20, 20), (3, 3), {"dilation": (30, 12), "padding": (30, 12), "groups": 12}),
        ((1, 1), (3, 3), {"padding": (1, 1)}),
        ((1, 30), (3, 3), {"padding": (1, 1)}),
        ((2, 2), (7, 7), {"padding": (3, 3), "stride": (2, 2)}),
        ((6, 6), (3, 3), {"padding": (5, 5)}),
        ((1, 1), (2, 2), {"dilation": (2, 2), "padding": (1, 1)}),
        ((40,), (3,), {"dilation": (25,), "padding": (25,)}),
        ((40,), (5,), {"dilation": (14,), "padding": (28,)}),
    ],
    ids=str,
)
def test_a_convolution_agrees_with_the_reference(
    size: tuple[int, ...], kernel: tuple[int, ...], given: dict[str, Any]
) -> None:
    after = op("pnnx.Expression", "after", "1", "2", expr="maximum(add(@0,1),0)")
    steps = [conv("conv", "0", "1", (12, 36), kernel, **given), after]
    check(built(INPUT, *steps, op("pnnx.Output", "out", "2"), _0=(2, 12, *size)), (2, 12, *size))


def test_parts_read_a_residual_and_write_into_a_concatenation() -> None:
    graph = built(
        INPUT,
        conv("first", "0", "1", (12, 20), (1, 1)),
        conv("wide", "0", "2", (12, 20), (3, 3), dilation=(12, 12), padding=(12, 12)),
        op("pnnx.Expression", "sum", "1 2", "3", expr="add(@0,@1)"),
        conv("last", "0", "4", (12, 9), (1, 1)),
        op("torch.cat", "cat", "3 4", "5", dim=1),
        op("pnnx.Output", "out", "5"),
        _0=(2, 12, 16, 18),
    )
    check(graph, (2, 12, 16, 18))


def test_taps_beyond_the_image_cost_neither_products_nor_memory() -> None:
    graph = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        conv("conv", "1", "2", (32, 32), (3, 3), dilation=(24, 24), padding=(24, 24)),
        op("pnnx.Output", "out", "2"),
        _0=(1, 32, 16, 16),
    )
    executable = CompiledGraph(graph, Options()).builder.program([port.spec for port in graph.inputs]).executable
    (step,) = [step for step in executable.steps if step.kind == "conv"]
    assert step.flops == 2 * 32 * 32 * 16 * 16
    assert executable.arena_bytes < 4 * 4 * 32 * 16 * 16
