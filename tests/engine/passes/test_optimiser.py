"""Passes run in order, again and again until nothing changes, and say what they did."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine import GraphError, ParameterError, RuntimeGraph
from engine.graph import execute
from engine.passes import PASSES, PassReport, optimise
from tests.engine.graph.build import F32, INPUT, built, graph, op
from tests.engine.passes.applying import assert_answers, assert_same_ports, drawn, names


def net() -> RuntimeGraph:
    """Two dropouts hide what a dead operator hides from the folding of a constant."""
    weight = np.eye(3, dtype=F32)
    return built(
        INPUT,
        op("nn.Linear", "fc", "0", "1", bias=False, in_features=3, out_features=3, weight=weight),
        op("nn.Dropout", "drop", "1", "2", p=0.5),
        op("pnnx.Attribute", "c", "", "3", data=np.ones(3, F32)),
        op("nn.Identity", "same", "3", "4"),
        op("nn.Sigmoid", "dead", "2", "5"),
        op("torch.maximum", "larger", "2 4", "6"),
        op("pnnx.Output", "out", "6"),
        _0=(2, 3),
    )


def test_it_computes_the_same_and_changes_nothing_that_was_given() -> None:
    before = net()
    source = before.source
    after, _ = optimise(before)
    assert before.source is source
    assert_same_ports(before, after)
    assert_answers(execute(after.plan, drawn(before)), execute(before.plan, drawn(before)))
    assert not {"drop", "same", "dead"} & set(names(after))


def test_an_unchanged_operator_keeps_its_layer() -> None:
    before = net()
    after, _ = optimise(before)
    layers = [next(o.layer for o in each.operators if o.name == "fc") for each in (before, after)]
    assert layers[0] is layers[1]


def test_there_is_one_report_a_pass_in_order() -> None:
    _, reports = optimise(net())
    assert [report.name for report in reports] == list(PASSES)
    by_name = {report.name: report for report in reports}
    assert by_name["dead_operators"].removed >= 1
    assert "dead" in by_name["dead_operators"].changed
    assert by_name["identity_removal"].removed == 2
    assert set(by_name["identity_removal"].changed) == {"drop", "same"}
    assert by_name["fold_batch_norm"] == PassReport(name="fold_batch_norm", time_ms=by_name["fold_batch_norm"].time_ms)
    assert all(report.time_ms > 0 for report in reports)


def test_a_report_is_plain_data() -> None:
    _, reports = optimise(net())
    described = [report.describe() for report in reports]
    assert json.loads(json.dumps(described)) == described
    assert described[0].keys() == {"name", "removed", "added", "changed", "time_ms"}


def test_a_pass_that_is_off_does_not_run() -> None:
    after, reports = optimise(net(), off=["identity_removal"])
    assert {"drop", "same"} & set(names(after)) == {"drop"}
    assert "identity_removal" not in [report.name for report in reports]


def test_with_all_passes_off_the_graph_comes_back() -> None:
    before = net()
    assert optimise(before, off=list(PASSES)) == (before, [])


def test_where_nothing_can_be_done_the_graph_comes_back() -> None:
    before = built(INPUT, op("nn.ReLU", "relu", "0", "1"), op("pnnx.Output", "out", "1"), _0=(2, 3))
    after, reports = optimise(before)
    assert after is before
    assert not any(report.changed for report in reports)


def test_an_unknown_pass_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ParameterError, match="unknown pass: found fuse_all, expected one of dead_operators, ident"):
        optimise(net(), off=["fuse_all"])


def test_a_graph_that_is_not_built_is_refused() -> None:
    with pytest.raises(GraphError, match="cannot run yet"):
        optimise(graph(INPUT, op("pnnx.Output", "out", "0"), _0=(2, 3)))


def test_an_error_names_the_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(graph: RuntimeGraph) -> object:
        raise GraphError("no")

    monkeypatch.setattr("engine.passes.optimiser.PASSES", {"broken": broken})
    with pytest.raises(GraphError, match="pass broken: no"):
        optimise(net())
