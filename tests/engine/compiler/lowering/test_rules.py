"""A rule is a function: it returns what it makes, and only the walk keeps it."""

from __future__ import annotations

from pathlib import Path

import pytest

import engine
from engine.compiler.codegen.host import describe
from engine.compiler.lowering import Lowering, lower
from engine.compiler.lowering.context import Context
from engine.compiler.lowering.rules.registry import KERNEL_RULES, KernelRule
from engine.compiler.lowering.steps import KernelStep, Lowered, NotLoweredError
from engine.layers.convolution.conv import Conv
from tests.engine.graph.build import F32, INPUT, built, op
from tests.engine.layers.samples import Sample, all_samples

SAMPLES = all_samples("networks")[::4]


def lowered(sample: Sample, folder: Path) -> Lowering:
    graph = engine.load(*sample.extract(folder))
    return lowered_graph(graph, [engine.TensorSpec(each.shape, each.dtype) for each in sample.sets[0].inputs])


def lowered_graph(graph: engine.RuntimeGraph, specs: list[engine.TensorSpec]) -> Lowering:
    values = graph.infer(specs)
    ports = ([port.operand for port in ports] for ports in (graph.inputs, graph.outputs))
    lowering = Lowering(graph.operators, values, *ports, host=describe("avx2"))
    lower(lowering)
    return lowering


def state(lowering: Lowering) -> list[object]:
    """Return the state of the walk."""
    kept = lowering.steps, lowering.results, lowering.constants, lowering.absorbed
    fusions = [(name, tuple(names)) for name, names in lowering.fusions.items()]
    return [*map(tuple, kept), dict(lowering.views), dict(lowering.reasons), fusions]


def made(steps: object) -> list[str]:
    return [str(step.kernel) if isinstance(step, KernelStep) else step.reason for step in steps]  # type: ignore[attr-defined]


def asked_twice(rule: KernelRule) -> KernelRule:
    """Return the rule, checked to return the same when it is called twice."""

    def ask(context: Context) -> Lowered:
        before = state(context.lowering)
        try:
            first, second = rule(context), rule(context)
        finally:
            assert state(context.lowering) == before
        assert made(first.steps) == made(second.steps)
        return second

    return ask


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
def test_rules_change_nothing_and_make_the_same_when_they_are_asked_again(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = made(lowered(sample, tmp_path).steps)
    for layer, rule in KERNEL_RULES.items():
        monkeypatch.setitem(KERNEL_RULES, layer, asked_twice(rule))
    assert made(lowered(sample, tmp_path).steps) == wanted


def test_nothing_remains_of_what_a_rule_made_before_it_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = KERNEL_RULES[Conv]

    def decline(context: Context) -> Lowered:
        raise NotLoweredError("not today")

    def decline_late(context: Context) -> Lowered:
        rule(context)
        raise NotLoweredError("not today")

    for sample in SAMPLES:
        found = []
        for each in (decline, decline_late):
            monkeypatch.setitem(KERNEL_RULES, Conv, each)
            lowering = lowered(sample, tmp_path)
            found.append([made(lowering.steps), lowering.reasons, lowering.fusions, lowering.absorbed])
        assert found[0] == found[1]


def test_a_concatenation_may_take_its_dimension_as_an_operand() -> None:
    graph = built(
        INPUT,
        op("pnnx.Expression", "axis", "", "1", expr="1"),
        op("nn.ReLU", "relu", "0", "2"),
        op("torch.cat", "join", "0 2 1", "3", labels=(None, None, "dim")),
        op("pnnx.Output", "out", "3"),
        _0=(1, 3, 4, 4),
    )
    lowering = lowered_graph(graph, [engine.TensorSpec((1, 3, 4, 4), F32)])
    assert not lowering.reasons
    assert {step.operators for step in lowering.steps if isinstance(step, KernelStep)} == {("relu",), ("join",)}
