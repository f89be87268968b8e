"""Tests that the code of docs/custom-operators.md runs, and that flags in it and docs/exporting.md exist."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import engine
from app.cli import main
from tests.engine.pnnx.build import pair

ROOT = Path(__file__).parents[2]
CUSTOM = (ROOT / "docs/custom-operators.md").read_text(encoding="utf-8")
EXPORTING = (ROOT / "docs/exporting.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", CUSTOM, re.MULTILINE | re.DOTALL)


def test_the_layer_of_the_page_computes_the_stated_values(tmp_path: Path) -> None:
    lines = [
        "pnnx.Input in0 0 1 0 #0=(2)f32",
        "pnnx.custom_op.mine.scaled_tanh op 1 1 0 1 arg_1=2.0 $arg_0=0 #0=(2)f32 #1=(2)f32",
        "pnnx.Output out0 1 0 1 #1=(2)f32",
    ]
    with engine.registry.extended():
        exec(compile(BLOCKS[0], "custom-operators.md", "exec", dont_inherit=True), {"__name__": __name__})
        graph = engine.load(pair(tmp_path, lines, {}))
    (found,) = engine.Session(graph).run([np.array([0, 1], np.float32)])
    np.testing.assert_allclose(found, [0, 2 * 0.7615942], rtol=1e-6)
    assert graph.warnings == ()


def test_the_second_layer_of_the_page_is_in_the_example() -> None:
    assert BLOCKS[1] in (ROOT / "examples/custom_operator.py").read_text(encoding="utf-8")


def test_the_graph_line_of_the_page_is_in_the_example() -> None:
    line = " ".join(re.findall(r"^custom_operator_model.Sub.*\n.*$", CUSTOM, re.MULTILINE)[0].split())
    assert line in " ".join((ROOT / "examples/custom_operator.py").read_text(encoding="utf-8").split())


@pytest.mark.parametrize("page", [EXPORTING, CUSTOM], ids=["exporting", "custom-operators"])
def test_every_flag_of_the_page_exists(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["export", "--help"])
    known = capsys.readouterr().out
    assert [flag for flag in re.findall(r"--[a-z][a-z0-9-]+", page) if flag not in known] == []
