"""Pipelines on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from app.cli import main
from tests.app.pipelines.conftest import write_pipeline
from tests.app.pipelines.test_replacement import TEXT
from tests.app.sample_models import write_classifier, write_detector


@pytest.fixture
def picture(tmp_path: Path) -> str:
    """A picture, beside a store with a pipeline and its models."""
    store = tmp_path / "model_store"
    write_detector(store)
    write_classifier(store)
    write_pipeline(store, "scan", TEXT)
    Image.fromarray(np.arange(96, dtype=np.uint8).reshape(4, 8, 3)).save(tmp_path / "picture.png")
    return str(tmp_path / "picture.png")


def test_models_lists_it(picture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("scan"))
    assert row.split() == ["scan", "1", "-", "pipeline"]


def test_run_prints_what_each_step_found(picture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "scan", "--image", picture]) == 0
    out = capsys.readouterr().out
    assert "find:" in out and "thing  score" in out and "kind:" in out
    assert main(["run", "scan", "--json", "--image", picture]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["predictions"]
    assert {"label", "probability", "index"} == answer["find"][0]["kind"][0].keys()


def test_run_takes_a_folder(picture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "model_store/scan", "--image", picture]) == 0
    assert "kind:" in capsys.readouterr().out


def test_check_reports_all_problems_of_its_models(picture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "scan"]) == 0
    assert capsys.readouterr().out == "scan: ok\n"
    (Path("model_store") / "shades" / "config.toml").write_text('task = "clasification"')
    assert main(["check", "scan"]) == 1
    assert capsys.readouterr().out.startswith("scan: shades: error: ")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('"shades"', '"shade"', "no model 'shade' (did you mean 'shades'?)"),
        ('"shades"', '"shades:7"', "model 'shades' has no version 7: it serves 1"),
        ('"shades"', '"scan"', "expected no pipeline that contains itself"),
        ("find.box", "find.bx", "expected STEP.box, STEP.polygon or STEP.spans"),
        ("crop", "corp", "unknown key (did you mean 'crop'?)"),
    ],
)
def test_check_reports_what_does_not_fit(
    picture: str, capsys: pytest.CaptureFixture[str], old: str, new: str, problem: str
) -> None:
    (Path("model_store") / "scan" / "pipeline.toml").write_text(TEXT.replace(old, new))
    assert main(["check", "scan"]) == 1
    assert problem in capsys.readouterr().out


def test_graph_shows_the_steps(picture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "scan"]) == 0
    assert "shades" in capsys.readouterr().out


@pytest.mark.parametrize("verb", [["bench"], ["tune"], ["graph", "--explain"], ["compile"]])
def test_verbs_for_graphs_name_the_models_of_the_steps(
    picture: str, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    assert main([*verb, "scan"]) in (1, 2)
    assert "is a pipeline, which has no graph: expected one of 'boxes', 'shades'" in capsys.readouterr().err


def test_compile_all_leaves_pipelines_out(picture: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compile", "--all"]) == 0
    assert "scan" not in capsys.readouterr().out
