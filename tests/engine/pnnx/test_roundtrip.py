"""Nothing is lost: whatever is read can be written, and what is written reads the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from engine import pnnx
from engine.pnnx import Graph
from tests.engine.pnnx.build import pair
from tests.engine.pnnx.strategies import graphs

SHARED = Path(__file__).parents[4] / "shared"
CORPUS = sorted(SHARED.glob("corpus/cases/*/*.param")) + sorted(SHARED.glob("models/*/*.param"))


@given(graph=graphs())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_any_graph_survives_writing_and_reading(tmp_path: Path, graph: Graph) -> None:
    pnnx.write(graph, tmp_path / "m.pnnx.param")
    assert pnnx.read(tmp_path / "m.pnnx.param", verify=True) == graph


def test_old_dialect_is_written_as_todays(tmp_path: Path) -> None:
    lines = [
        "Input x 0 1 x.1",
        "nn.BatchNorm1d bn 1 1 x.1 input.3 affine=False eps=1.000000e-05 @running_mean=(2)f32 @running_var=(2)f32",
        "Expression e 1 1 input.3 5 expr=add(@0,1.000000e+00)",
        "Output y 1 0 5",
    ]
    path = pair(tmp_path, lines, {"bn.running_mean": bytes(8), "bn.running_var": bytes(8)}, zip64=False)
    graph = pnnx.read(path, verify=True)
    pnnx.write(graph, tmp_path / "new.pnnx.param")
    assert pnnx.read(tmp_path / "new.pnnx.param", verify=True) == graph
    assert (tmp_path / "new.pnnx.param").read_text().splitlines()[2] == f"{'pnnx.Input':<24} {'x':<24} 0 1 x.1"


@pytest.mark.corpus
@pytest.mark.skipif(not CORPUS, reason="the corpus is not beside the project")
@pytest.mark.parametrize("path", CORPUS, ids=[path.parent.name for path in CORPUS])
def test_converter_output_survives_to_the_letter(tmp_path: Path, path: Path) -> None:
    graph = pnnx.read(path, verify=True)
    pnnx.write(graph, tmp_path / "m.pnnx.param")
    assert pnnx.read(tmp_path / "m.pnnx.param", verify=True) == graph
    assert (tmp_path / "m.pnnx.param").read_bytes() == path.read_bytes()
