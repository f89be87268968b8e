"""Steps computed a band of rows at a time: the same bits as one by one, less memory, and only where it pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from engine import RuntimeGraph, Session
from engine.compiler.assembly.generation import make_blueprint
from engine.compiler.codegen.host import Host, describe
from engine.compiler.kernels.strip import Strip
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.steps import KernelStep
from engine.compiler.places import Home
from engine.compiler.storage import Storage, View
from engine.options import Options
from engine.passes import STRIPS
from engine.pnnx import Operator
from engine.tensor import Array
from tests.engine.compiler.kernels.guarded import guarded_array
from tests.engine.compiler.kernels.running import LEVELS, run
from tests.engine.compiler.machines import MACHINES
from tests.engine.graph.build import F32, INPUT, built, conv, op

OUT = "pnnx.Output"
Chain = tuple[list[Operator], str, int]
"""Operators, the operand that the last one makes, and its channels."""


def eager(level: str, second_bytes: int = 96 << 10) -> Host:
    """A machine whose second-level cache holds nothing, and whose last one is slow."""
    host = describe(level)
    return replace(host, memory=replace(host.memory, second_bytes=second_bytes, stream_cost=50.0))


def lowered(graph: RuntimeGraph, host: Host, **options: Any) -> Lowering:
    ports = ([port.operand for port in ports] for ports in (graph.inputs, graph.outputs))
    specs = graph.infer([port.spec for port in graph.inputs])
    lowering = Lowering(graph.operators, specs, *ports, host, Options(**options))
    lower(lowering)
    return lowering


def strips(lowering: Lowering) -> list[Strip]:
    return [step.kernel for step in lowering.steps if isinstance(step, KernelStep) and isinstance(step.kernel, Strip)]


def computed(lowering: Lowering, level: str, x: Array, *, at_end: bool) -> list[Array]:
    """The graph's results: every tensor in memory of its own, beside a page that nobody may touch, NaN before."""
    memory: dict[Storage, Array] = {}

    def place(storage: Storage) -> Array:
        if storage not in memory:
            values = np.full(storage.phantom.size, 0 if storage.is_zeroed else np.nan, F32)
            if storage.data is not None:
                values = storage.data.view(F32)
            if storage.home is Home.INPUT:
                values = np.ascontiguousarray(x).reshape(-1)
            memory[storage] = guarded_array(values, at_end=at_end)
        return memory[storage]

    for step in lowering.steps:
        assert isinstance(step, KernelStep)
        places = [place(each.storage) for each in step.pointers]
        run(step.kernel, level, places, [each.offset for each in step.pointers])
    results = []
    for each in lowering.results:
        view = lowering.views[each] if isinstance(each, str) else each
        assert isinstance(view, View)
        array = memory[view.storage]
        results.append(np.ndarray(view.shape, F32, array, view.offset, view.phantom.strides).copy())
    return results


def check(
    graph: RuntimeGraph,
    level: str,
    kinds: Sequence[Sequence[str]] | None,
    x: Array | None = None,
    second_bytes: int = 96 << 10,
) -> int:
    """The same bits with strips and without; how many strips there were."""
    shape = graph.inputs[0].spec.sizes
    x = np.random.default_rng(5).standard_normal(shape).astype(F32) if x is None else x
    host = eager(level, second_bytes)
    banded, plain = (lowered(graph, host, winograd="off", passes_off=frozenset(off)) for off in ((), (STRIPS,)))
    found = strips(banded)
    if kinds is not None:
        assert [[stage.kernel.kind for stage in strip.stages] for strip in found] == kinds
        assert all(strip.chunks > strip.batch for strip in found)
    assert not strips(plain)
    for at_end in (True, False):
        (ours,), (theirs,) = (computed(each, level, x, at_end=at_end) for each in (banded, plain))
        np.testing.assert_array_equal(ours.view(np.int32), theirs.view(np.int32))
    return len(found)


def pool(name: str, source: str, target: str, kind: str = "nn.MaxPool2d", **given: Any) -> Operator:
    usual = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1)}
    own = {"dilation": (1, 1)} if "Max" in kind else {"count_include_pad": True, "divisor_override": None}
    return op(kind, name, source, target, **{**usual, **own, "ceil_mode": False, **given})


def inverted(size: int, stride: int, **given: Any) -> RuntimeGraph:
    """Expansion, depthwise, projection, and a residual where there can be one; with a stride the last is near."""
    channels = 3 if stride > 1 else 16
    return built(
        INPUT,
        conv("first", "0", "1", (8, 16), (1, 1)),
        op("nn.ReLU", "relu", "1", "2"),
        conv("expand", "2", "3", (16, 40), (1, 1)),
        op("nn.ReLU6", "clip", "3", "4"),
        conv("depth", "4", "5", (40, 40), groups=40, stride=(stride, stride), **{"padding": (1, 1), **given}),
        op("nn.ReLU6", "clip2", "5", "6"),
        conv("project", "6", "7", (40, channels), (1, 1)),
        *([op("pnnx.Expression", "sum", "7 2", "8", expr="add(@0,@1)")] if stride == 1 else []),
        op(OUT, "out", "8" if stride == 1 else "7"),
        _0=(1, 8, size, size - 3),
    )


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("stride", [1, 2])
def test_expansion_depthwise_and_projection_have_the_same_bits_in_bands(level: str, stride: int) -> None:
    assert check(inverted(23, stride), level, [["conv", "depthwise", "conv"][: 4 - stride]])


@pytest.mark.parametrize("level", LEVELS)
def test_infinities_and_nan_come_through_where_they_are_and_nowhere_else(level: str) -> None:
    x = np.zeros((1, 8, 23, 20), F32)
    x[0, 3, 5, 7], x[0, 2, 22, 0], x[0, 1, 0, 19] = np.nan, np.inf, -np.inf
    check(inverted(23, 1), level, None, x)


CASES: dict[str, tuple[Callable[[], list[Operator]], tuple[int, ...], list[str]]] = {
    "stem and maximum": (
        lambda: [
            conv("a", "0", "1", (3, 24), (7, 7), stride=(2, 2), padding=(3, 3)),
            op("nn.ReLU", "r", "1", "2"),
            pool("b", "2", "3"),
        ],
        (1, 3, 50, 47),
        ["conv", "pool"],
    ),
    "windows beyond the last row": (
        lambda: [conv("a", "0", "1", (3, 20), (1, 1)), pool("b", "1", "2", padding=(0, 0), ceil_mode=True)],
        (2, 3, 24, 30),
        ["conv", "pool"],
    ),
    "means that leave out what is outside": (
        lambda: [
            conv("a", "0", "1", (3, 20), (1, 1)),
            pool("b", "1", "2", "nn.AvgPool2d", count_include_pad=False),
        ],
        (1, 3, 31, 26),
        ["conv", "pool"],
    ),
    "a map before": (
        lambda: [
            conv("a", "0", "1", (3, 19), (1, 1)),
            op("nn.Hardswish", "m", "1", "2"),
            conv("b", "2", "3", (19, 19), (1, 1)),
            op("pnnx.Expression", "c", "3 1", "4", expr="add(@0,@1)"),
        ],
        (1, 3, 30, 24),
        ["map", "conv"],
    ),
    "holes and one side": (
        lambda: [
            conv("a", "0", "1", (4, 33), (1, 1)),
            conv("b", "1", "2", (33, 7), (3, 2), dilation=(2, 1), padding=(2, 0)),
        ],
        (3, 4, 18, 12),
        ["conv", "conv"],
    ),
    "groups and a large filter": (
        lambda: [
            conv("a", "0", "1", (6, 24), (3, 3), groups=3, padding=(1, 1)),
            conv("b", "1", "2", (24, 24), (5, 5), groups=24, stride=(2, 1), padding=(2, 2)),
        ],
        (1, 6, 21, 17),
        ["conv", "depthwise"],
    ),
    "few channels": (
        lambda: [conv("a", "0", "1", (3, 40), (1, 1)), conv("b", "1", "2", (40, 1), padding=(1, 1))],
        (1, 3, 30, 24),
        ["conv", "dots"],
    ),
    "narrow groups": (
        lambda: [
            conv("a", "0", "1", (3, 40), (1, 1)),
            conv("b", "1", "2", (40, 40), (3, 3), groups=20, stride=(2, 1), padding=(1, 0)),
        ],
        (1, 3, 30, 24),
        ["conv", "grouped"],
    ),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("case", CASES)
def test_bands_have_the_same_bits(level: str, case: str) -> None:
    make, shape, kinds = CASES[case]
    operators = make()
    assert check(built(INPUT, *operators, op(OUT, "out", operators[-1].outputs[0]), _0=shape), level, [kinds])


def random_chain(random: Random) -> RuntimeGraph:
    """Some layers after each other, each of which may be a link."""
    channels = random.choice([3, 8, 17])
    shape = (random.choice([1, 1, 2]), channels, random.randint(9, 34), random.randint(5, 30))
    operators, at = [INPUT], 0
    rows, columns = shape[2:]
    for number in range(random.randint(2, 5)):
        kind, name = random.choice(["wide", "wide", "depthwise", "narrow", "square", "pool", "act"]), f"op{number}"
        source, target = str(at), str(at + 1)
        k, s, d = random.choice([1, 2, 3, 5]), random.choice([1, 1, 2]), random.choice([1, 1, 2])
        p = random.randint(0, k // 2 * d)
        reach = (k - 1) * d + 1
        if min(rows, columns) + 2 * p < reach:
            kind = "act"
        given: dict[str, Any] = {"stride": (s, random.choice([1, s])), "padding": (p, p), "dilation": (d, d)}
        if kind == "wide":
            size = random.choice([16, 24, 40, 61])
            operators.append(conv(name, source, target, (channels, size), (1, 1)))
            channels = size
        elif kind == "square":
            size = random.choice([5, 16, 32])
            operators.append(conv(name, source, target, (channels, size), (k, k), **given))
            channels = size
        elif kind in ("depthwise", "narrow"):
            groups = channels // 2 if kind == "narrow" and channels % 2 == 0 else channels
            operators.append(conv(name, source, target, (channels, channels), (k, k), groups=groups, **given))
        elif kind == "pool" and k > 1:
            p = min(p, k // 2)
            given = {"kernel_size": (k, k), "stride": given["stride"], "padding": (p, p)}
            operators.append(pool(name, source, target, random.choice(["nn.MaxPool2d", "nn.AvgPool2d"]), **given))
            d, reach = 1, k
        else:
            operators.append(op(random.choice(["nn.SiLU", "nn.ReLU", "nn.Hardswish"]), name, source, target))
        if kind in ("square", "depthwise", "narrow") or (kind == "pool" and k > 1):
            rows, columns = (
                (size + 2 * p - reach) // step + 1 for size, step in zip((rows, columns), given["stride"], strict=True)
            )
        at += 1
    return built(*operators, op(OUT, "out", str(at)), _0=shape)


def test_random_chains_have_the_same_bits_in_bands() -> None:
    found = sum(check(random_chain(Random(seed)), LEVELS[0], None, second_bytes=20 << 10) for seed in range(12))
    assert found >= 4


def test_what_a_strip_computes_agrees_with_the_reference() -> None:
    graph = inverted(23, 1)
    x = np.random.default_rng(5).standard_normal((1, 8, 23, 20)).astype(F32)
    (found,) = computed(lowered(graph, eager(LEVELS[0])), LEVELS[0], x, at_end=True)
    (wanted,) = Session(graph, backend="reference").run([x])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def mobile_block() -> RuntimeGraph:
    return built(
        INPUT,
        conv("first", "0", "1", (3, 16), (3, 3), stride=(2, 2), padding=(1, 1)),
        conv("expand", "1", "2", (16, 96), (1, 1)),
        op("nn.ReLU6", "clip", "2", "3"),
        conv("depth", "3", "4", (96, 96), groups=96, stride=(2, 2), padding=(1, 1)),
        op("nn.ReLU6", "clip2", "4", "5"),
        conv("project", "5", "6", (96, 24), (1, 1)),
        op(OUT, "out", "6"),
        _0=(1, 3, 224, 224),
    )


def test_what_the_second_level_holds_or_a_fast_last_level_returns_is_computed_step_by_step() -> None:
    assert not strips(lowered(mobile_block(), MACHINES["Zen 4"]))
    near = MACHINES["Emerald Rapids"]
    near = replace(near, memory=replace(near.memory, second_bytes=16 << 20))
    assert not strips(lowered(mobile_block(), near))


def test_where_the_last_level_is_slow_an_expansion_never_leaves_the_second() -> None:
    host = MACHINES["Emerald Rapids"]
    lowering = lowered(mobile_block(), host)
    (strip,) = strips(lowering)
    assert [stage.kernel.kind for stage in strip.stages][:2] == ["conv", "depthwise"]
    assert strip.chunks >= host.wanted_chunks // 2
    between = sum(4 * stage.target.floats for stage in strip.stages if stage.target)
    assert between <= host.memory.second_bytes // 2
    assert lowering.fusions[STRIPS][0] == "depth"
    whole = make_blueprint(lowered(mobile_block(), host, passes_off=frozenset({STRIPS}))).arena_bytes
    assert make_blueprint(lowering).arena_bytes < whole - 1_000_000


def test_work_is_counted_once_however_often_rows_are_computed() -> None:
    host = MACHINES["Emerald Rapids"]
    steps = [lowered(mobile_block(), host, passes_off=frozenset(off)).steps for off in ((), (STRIPS,))]
    ours, theirs = ([step for step in each if isinstance(step, KernelStep)] for each in steps)
    assert sum(step.kernel.flops for step in ours) == sum(step.kernel.flops for step in theirs)
    assert [name for step in ours for name in step.operators] == [name for step in theirs for name in step.operators]
    saved = sum(step.bytes for step in theirs) - sum(step.bytes for step in ours)
    assert saved >= 2 * 4 * 96 * 112 * 112


def test_what_others_read_too_or_the_caller_gets_stays_in_memory() -> None:
    twice = [
        INPUT,
        conv("a", "0", "1", (4, 40), (1, 1)),
        conv("b", "1", "2", (40, 40), groups=40, padding=(1, 1)),
        conv("c", "1", "3", (40, 8), (1, 1)),
    ]
    graph = built(*twice, op(OUT, "out", "2"), op(OUT, "out2", "3"), _0=(1, 4, 20, 20))
    assert not strips(lowered(graph, eager(LEVELS[0])))
    graph = built(*twice[:3], op(OUT, "out", "1"), op(OUT, "out2", "2"), _0=(1, 4, 20, 20))
    assert not strips(lowered(graph, eager(LEVELS[0])))


def test_an_operator_that_is_to_be_made_alone_is_in_no_strip() -> None:
    graph = inverted(23, 1)
    ports = ([port.operand for port in ports] for ports in (graph.inputs, graph.outputs))
    specs = graph.infer([port.spec for port in graph.inputs])
    lowering = Lowering(graph.operators, specs, *ports, eager(LEVELS[0]), Options(), alone={"depth"})
    lower(lowering)
    assert all("depth" not in step.operators[1:] for step in lowering.steps if isinstance(step, KernelStep))
