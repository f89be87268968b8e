"""explain() tells how a graph became runnable."""

from __future__ import annotations

import pytest

import engine
from tests.engine.graph.build import INPUT, built, graph, op


@pytest.fixture
def story() -> str:
    net = built(
        INPUT,
        op("nn.ReLU", "relu", "0", "1"),
        op("pnnx.Expression", "sum", "0 1", "2", expr="add(@0,mul(@1,2))"),
        op("pnnx.Output", "out", "2"),
        _0=(1, 3),
    )
    return engine.explain(net)


@pytest.mark.parametrize(
    "line",
    [
        "init(): NEED_INIT → NEED_BUILD",
        "4 operators read from the text, 1 shapes announced by it",
        "  operand 0: made by pnnx_input_0, used by relu, sum",
        "    0  pnnx_input_0                 then ready: relu",
        "  nn.ReLU                  [1, 3] float32  →  [1, 3] float32",
        "the graph is COMPLETE",
        "  sum: add(@0,mul(@1,2))",
        "    = 0 + 1 * 2",
        "    ├─ @0",
        "    2 = [1, 3] [3, 3, 3]",
        "at most 24 bytes are alive at once",
    ],
)
def test_every_stage_is_shown(story: str, line: str) -> None:
    assert line in story.splitlines()


def test_long_chapters_are_cut() -> None:
    chain = [op("nn.ReLU", f"r{k}", str(k), str(k + 1)) for k in range(9)]
    text = engine.explain(built(INPUT, *chain, op("pnnx.Output", "out", "9"), _0=(1, 3)), limit=3)
    assert "  … and 8 more" in text.splitlines()


def test_a_graph_that_is_not_built_is_refused() -> None:
    with pytest.raises(engine.GraphError, match="cannot run yet"):
        engine.explain(graph(INPUT, op("pnnx.Output", "out", "0")))
