"""What follows a waist is put into programs as it was made for another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

import engine
from engine.compiler.assembly import parts
from engine.compiler.assembly.objects import Made
from engine.compiler.blueprint import Blueprint
from engine.compiler.codegen import object_code
from engine.compiler.codegen.host import Host, describe, detect
from engine.compiler.native import NativeStep
from engine.compiler.runtime.program import Program
from engine.graph.waists import waists_of
from engine.pnnx import Operator
from engine.tensor import TensorSpec
from tests.engine.compiler.lowering.lowered import Lowered
from tests.engine.compiler.used_memory import among_others
from tests.engine.graph.build import F32, INPUT, built, conv, op

POOL = {"kernel_size": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": True}
SIZES = [(61, 70), (62, 70), (61, 69), (90, 33), (89, 34), (62, 69)]


def stages() -> list[Operator]:
    """Strides with residuals, a channelwise layer, an algorithm that is alarmed, and pixels that become rows."""
    return [
        INPUT,
        conv("stem", "0", "1", (3, 16), stride=(2, 2), padding=(1, 1)),
        op("nn.ReLU", "cut_off", "1", "2"),
        conv("inner", "2", "3", (16, 16), padding=(1, 1)),
        op("pnnx.Expression", "sum", "2 3", "4", expr="add(@0,@1)"),
        op("nn.MaxPool2d", "small", "4", "5", dilation=(1, 1), return_indices=False, **POOL),
        conv("depth", "5", "6", (16, 16), padding=(1, 1), groups=16),
        conv("wide", "6", "7", (16, 64), (1, 1)),
        conv("smaller", "7", "8", (64, 64), padding=(1, 1), stride=(2, 2)),
        conv("deep", "8", "9", (64, 64), padding=(1, 1)),
        op("nn.SiLU", "bent", "9", "10"),
        op("pnnx.Expression", "sum_1", "8 10", "11", expr="add(@0,@1)"),
        conv("last", "11", "12", (64, 8), (1, 1)),
    ]


def backbone() -> engine.RuntimeGraph:
    """As a classifier has it."""
    weight = np.random.default_rng(1).standard_normal((5, 8)).astype(F32)
    return built(
        *stages(),
        op("nn.AdaptiveAvgPool2d", "mean", "12", "13", output_size=(1, 1)),
        op("torch.flatten", "flat", "13", "14", start_dim=1, end_dim=-1),
        op("nn.Linear", "head", "14", "15", in_features=8, out_features=5, bias=False, weight=weight),
        op("pnnx.Output", "out", "15"),
        _0=(1, 3, None, None),
    )


def maps() -> engine.RuntimeGraph:
    """All pixels are returned, and those before the last layer."""
    return built(*stages(), op("pnnx.Output", "out", "12"), op("pnnx.Output", "out_1", "11"), _0=(1, 3, None, None))


def picture(size: tuple[int, int]) -> list[TensorSpec]:
    return [TensorSpec((1, 3, *size), F32)]


def answers(blueprint: Blueprint, x: np.ndarray) -> list[np.ndarray]:
    """What a program answers, in memory that others have used, and the run before."""
    code = object_code.loaded(blueprint.code, detect(), is_apart=True)
    instance = among_others(Program(blueprint=blueprint, code=code, operators={}, known={}))
    for each in (np.full_like(x, 3), x):
        outputs = instance.run([each])
    return outputs


def kernels(blueprint: Blueprint) -> list[NativeStep]:
    """Steps without what says where anything lies."""
    return [replace(each, arguments=()) for each in blueprint.steps if each.kind != "border"]


def warm(graph: engine.RuntimeGraph, host: Host | None = None) -> Lowered:
    """All sizes were met often."""
    lowered = Lowered(graph, host)
    for size in SIZES:
        lowered.blueprint(picture(size), is_known=False)
    for size in SIZES * 3:
        lowered.blueprint(picture(size), recalls=True, ends=True)
    return lowered


def little(host: Host) -> Host:
    """One whose second-level cache holds nothing, so that images with borders share memory with any other."""
    return replace(host, memory=replace(host.memory, second_bytes=1024))


@pytest.mark.parametrize("graph", [backbone, maps])
@pytest.mark.parametrize("host", [detect(), little(detect())], ids=["host", "little"])
def test_programs_with_endings_are_those_without(graph, host) -> None:  # type: ignore[no-untyped-def]
    lowered = Lowered(graph(), host)
    for size in SIZES:
        lowered.blueprint(picture(size), is_known=False)
    ended = []
    for size in SIZES * 4:
        found = lowered.blueprint(picture(size), recalls=True, ends=True)
        ended.append(lowered.lowering.rest is not None)
        expected = lowered.blueprint(picture(size), recalls=True)
        x = np.random.default_rng(sum(size)).standard_normal((1, 3, *size)).astype(F32)
        for ours, theirs in zip(answers(found, x), answers(expected, x), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert kernels(found) == kernels(expected)
        assert [each.shape for each in found.outputs] == [each.shape for each in expected.outputs]  # type: ignore[union-attr]
        assert (found.segments, found.operators, found.passes) == (
            tuple(replace(each, last=len(found.steps)) for each in expected.segments),
            expected.operators,
            expected.passes,
        )
    assert not ended[0] and all(ended[-len(SIZES) :])


@pytest.mark.parametrize("graph", [backbone, maps])
def test_what_is_alive_at_one_time_shares_no_byte(graph) -> None:  # type: ignore[no-untyped-def]
    lowered = warm(graph())
    blueprint = lowered.blueprint(picture(SIZES[0]), recalls=True, ends=True)
    assert lowered.lowering.rest is not None
    held = [(each.first, each.last, each.offset, each.offset + each.bytes) for each in blueprint.buffers]
    assert {name for each in blueprint.buffers for name in each.operands} >= {"2", "5", "6", "8", "11"}
    for k, (first, last, low, high) in enumerate(held):
        assert 0 <= low < high <= blueprint.arena_bytes and 0 <= first <= last <= len(blueprint.steps)
        for other in held[:k]:
            is_same = other[2] == low and other[1] <= first  # what is passed on is told of by both parts
            assert is_same or other[0] > last or first > other[1] or other[2] >= high or low >= other[3]


def test_what_follows_is_found_for_a_size_that_the_whole_has_not_met() -> None:
    lowered = warm(backbone())
    lowered.blueprint(picture((90, 34)), recalls=True, is_known=False)
    lowered.recipes.asked.clear()
    lowered.blueprint(picture((90, 34)), recalls=True, ends=True)
    assert lowered.lowering.rest is not None and not {"wide", "deep", "last", "head"} & {*lowered.recipes.asked}


def test_behind_a_cut_nothing_is_known_of_what_was_before() -> None:
    lowered = Lowered(backbone())
    lowered.blueprint(picture(SIZES[0]), is_known=False)
    lowered.blueprint(picture(SIZES[0]), ends=True)
    lowered.blueprint(picture(SIZES[0]), ends=True)
    lowering = lowered.lowering
    before = {each.name for op in lowering.operators[: lowering.cuts[-1].number - 1] for each in op.outputs}
    assert {"0", "1", "2", "4"} <= before
    assert not before & {*lowering.views, *lowering.values}


def test_where_other_things_are_known_than_before_nothing_is_found() -> None:
    lowered = warm(backbone())
    lowered.settle("of another host")
    lowered.blueprint(picture(SIZES[0]), recalls=True, ends=True)
    assert lowered.lowering.rest is None


def test_what_was_not_the_best_is_good_until_there_is_the_code_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered = Lowered(backbone())
    lowered.blueprint(picture(SIZES[0]), is_known=False)
    found = []
    for better in (None, None, None, ("another", ()), ("better", ())):
        monkeypatch.setattr(Made, "has", lambda self, wanted, better=better: wanted == better)
        lowered.settle(others={"deep": ("better", ())})
        lowered.blueprint(picture(SIZES[0]), ends=True)
        after = lowered.lowering.rest.ending.pieces if lowered.lowering.rest else ()
        found.append({name for piece in after for step in piece.steps for name in step.operators})
    assert found[:2] == [set(), set()] and "deep" in found[2] & found[3]
    assert "deep" not in found[4] and "head" in found[4]


def test_behind_a_waist_that_an_operator_of_numpy_follows_nothing_is_kept_nor_tried_again() -> None:
    graph = built(
        *stages(), op("Tensor.to", "text", "12", "13", copy=False, dtype="torch.complex128"),
        op("pnnx.Output", "out", "13"), _0=(1, 3, None, None),
    )  # fmt: skip
    lowered = Lowered(graph)
    lowered.blueprint(picture(SIZES[0]), is_known=False)
    cuts = []
    for _ in range(4):
        blueprint = lowered.blueprint(picture(SIZES[0]), ends=True)
        cuts.append(len(lowered.lowering.cuts))
    assert blueprint.calls == {"text"} and cuts == [0, 0, 0, 0] and not len(lowered.endings)


def test_parts_that_have_memory_in_common_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_are_apart", lambda lowering, parts: len(parts) == 1)
    lowered = warm(backbone())
    assert lowered.lowering.rest is None and not len(lowered.endings)


def test_hundreds_of_sizes_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.graph.waists.MOST_KEPT", 1)
    lowered = warm(backbone())
    assert 0 < len(lowered.endings) <= len(waists_of(lowered.lowering.operators, lowered.lowering.outputs))


def forever(sizes: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    random = np.random.default_rng(4)
    for _ in range(120):
        yield sizes[random.integers(len(sizes))]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("graph", [backbone, maps])
def test_a_session_answers_as_the_reference_does_whatever_sizes_come(graph, threads: int) -> None:  # type: ignore[no-untyped-def]
    sizes = [(height, width) for height in range(60, 66) for width in range(60, 66)]
    opened, random = graph(), np.random.default_rng(5)
    session = engine.Session(opened, threads=threads, cache=None)
    session.prepare(specs=picture((65, 65)))
    reference = engine.Session(opened, backend="reference")
    for number, size in enumerate(forever(sizes)):
        x = random.standard_normal((1, 3, *size)).astype(F32)
        if number % 10 == 9:
            x[0, 1, 30, 31] = np.inf  # an algorithm that would spread it gives up
        for ours, theirs in zip(session.run([x]), reference.run([x]), strict=True):
            finite = np.abs(theirs[np.isfinite(theirs)])
            np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5 * finite.max(initial=0))
    session.close()


def lines() -> engine.RuntimeGraph:
    """Lines of text whose recurrent layers are computed side by side."""
    random = np.random.default_rng(6)
    given = {
        "hidden_size": 64, "num_layers": 1, "bidirectional": False, "bias": False, "batch_first": True, "proj_size": 0,
    }  # fmt: skip

    def layer(name: str, source: str, target: str) -> Operator:
        weights = {key: random.standard_normal((256, 64)).astype(F32) / 8 for key in ("weight_ih_l0", "weight_hh_l0")}
        return op("nn.LSTM", name, source, target, input_size=64, **given, **weights)

    return built(
        INPUT,
        conv("stem", "0", "1", (3, 64), (8, 2), stride=(8, 2)),
        op("torch.squeeze", "flat", "1", "2", dim=2),
        op("Tensor.permute", "turned", "2", "3", dims=(0, 2, 1)),
        layer("first", "3", "4"),
        layer("second", "4", "5"),
        op("pnnx.Output", "out", "5"),
        _0=(1, 3, 8, None),
    )


def test_behind_a_waist_that_layers_side_by_side_follow_nothing_is_kept_nor_tried_again() -> None:
    lowered, specs = Lowered(lines(), describe("avx512")), [TensorSpec((1, 3, 8, 120), F32)]
    lowered.blueprint(specs, is_known=False)
    plain = lowered.blueprint(specs)
    assert any({"first", "second"} <= {*each.operators} for each in plain.steps)
    cuts = []
    for _ in range(4):
        blueprint = lowered.blueprint(specs, ends=True)
        cuts.append((len(lowered.lowering.cuts), len(lowered.endings)))
        assert kernels(blueprint) == kernels(plain)
    assert cuts == [(0, 0)] * 4
