"""``graph``: the renderings, on stdout or in a file."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from app.cli import main


def test_the_default_is_a_table(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "linear"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("#  type         name  inputs -> outputs")
    assert lines[2].split()[:7] == ["1", "nn.Linear", "fc", "0", "->", "1", "1×2"]
    assert lines[-1].startswith("3 operators · 8 parameters · 32 B")


def test_an_expression_is_shown_infix(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["graph", "difference"])
    assert "@0 - @1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("format", "start"), [("svg", "<svg "), ("dot", 'digraph "linear" {'), ("mermaid", "flowchart TD"), ("json", "{")]
)
def test_every_format_goes_to_stdout(format: str, start: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "linear", "--format", format]) == 0
    assert capsys.readouterr().out.startswith(start)


def test_json_is_the_description_under_the_models_name(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["graph", "linear", "--format", "json"])
    description = json.loads(capsys.readouterr().out)
    assert description["name"] == "linear"
    assert [operator["name"] for operator in description["operators"]] == ["in0", "fc", "out0"]


def test_param_is_the_models_own_file(store: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    main(["graph", "linear", "--format", "param"])
    assert capsysbinary.readouterr().out == (store / "linear/1/model.pnnx.param").read_bytes()


def test_a_profile_adds_times(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "linear", "--profile", "--format", "json"]) == 0
    operators = json.loads(capsys.readouterr().out)["operators"]
    assert operators[1]["time_us"] > 0


def test_output_goes_to_a_file(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "linear", "--format", "svg", "--output", "g.svg"]) == 0
    assert capsys.readouterr().out == ""
    assert ElementTree.parse("g.svg").getroot().tag.endswith("svg")


def test_a_profile_of_the_models_own_file_is_a_wrong_call(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "linear", "--profile", "--format", "param"]) == 2
    assert "which has no times" in capsys.readouterr().err


def test_a_graph_is_shown_even_if_its_config_does_not_fit(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "linear" / "config.toml").write_text('task = "detection"')
    assert main(["graph", "linear"]) == 0
    assert "nn.Linear" in capsys.readouterr().out


def test_explain_tells_how_the_graph_came_to_be(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "difference", "--explain"]) == 0
    text = capsys.readouterr().out
    assert "init(): NEED_INIT → NEED_BUILD" in text
    assert "expressions: text → tree → value" in text


def test_explain_is_text_of_its_own(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["graph", "linear", "--explain", "--format", "svg"]) == 2
    assert "--explain: found with --profile or --format" in capsys.readouterr().err
