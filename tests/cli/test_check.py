"""``check``: every reason why a model cannot be served, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from tests.cli.conftest import LINEAR, WEIGHT, write


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out.splitlines()


def test_sound_models_are_ok(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(store / "linear/1/model.pnnx.param")
    assert main(["check", "linear", "brightness", path]) == 0
    assert lines(capsys) == ["linear: ok", "brightness: ok", f"{path}: ok"]


def test_one_bad_model_fails_the_call_and_hides_no_other(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "nothing", "linear"]) == 1
    first, second = lines(capsys)
    assert first.startswith("nothing: error: no model 'nothing'")
    assert second == "linear: ok"


def test_every_unsupported_operator_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = ["pnnx.Input in0 0 1 0 #0=(1,3)f32", "my.Op a 1 1 0 1", "nn.Relu b 1 1 1 2", "pnnx.Output out0 1 0 2"]
    path = str(write(tmp_path / "unknown", chain))
    assert main(["check", path]) == 1
    (line,) = lines(capsys)
    assert "'my.Op' (a" in line
    assert "'nn.Relu' (b; did you mean 'nn.ReLU'?)" in line


def test_a_damaged_weight_is_found_by_its_checksum(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = store / "linear/1/model.pnnx.bin"
    content = bytearray(weights.read_bytes())
    content[content.index(WEIGHT.tobytes())] ^= 1
    weights.write_bytes(content)
    assert main(["check", "linear"]) == 1
    (line,) = lines(capsys)
    assert line.startswith("linear: error: ")
    assert "fc.weight" in line


def test_a_missing_file_is_a_finding(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "linear/1/model.pnnx.bin").unlink()
    assert main(["check", "linear"]) == 1
    assert "model.pnnx.bin" in lines(capsys)[0]


def test_a_config_that_does_not_fit_the_graph_is_a_finding(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "brightness/config.toml").write_text('task = "classification"\nlabels = ["only one"]\n')
    assert main(["check", "brightness"]) == 1
    assert lines(capsys) == ["brightness: error: labels: found 1, expected 2, one for each class of the model"]


def test_a_config_that_cannot_be_read_is_a_finding(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (store / "linear/config.toml").write_text("task = \n")
    assert main(["check", "linear"]) == 1
    assert lines(capsys)[0].startswith("linear: error: config.toml: ")


def test_a_mismatch_with_the_files_annotations_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = odd(tmp_path / "odd")
    assert main(["check", path]) == 0
    warning, verdict = lines(capsys)
    assert warning.startswith(f"{path}: warning: ")
    assert verdict == f"{path}: ok"


def odd(folder: Path) -> str:
    """A model whose file says another shape than its operator makes."""
    changed = [LINEAR[0], *(line.replace("#1=(1,2)f32", "#1=(1,5)f32") for line in LINEAR[1:])]
    return str(write(folder, changed, fc__bias=WEIGHT[:, 0].copy(), fc__weight=WEIGHT))


def test_a_strict_check_makes_it_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = odd(tmp_path / "odd")
    assert main(["check", "--strict", path]) == 1
    (line,) = lines(capsys)
    problem = "fc (nn.Linear): operand '1' contradicts the file: found [1, 2] float32, expected [1, 5] float32"
    assert line.startswith(f"{path}: error: {problem}")


@pytest.mark.parametrize(("config", "flag", "status"), [("true", "--no-strict", 1), ("false", "--strict", 0)])
def test_a_models_own_strict_wins(store: Path, config: str, flag: str, status: int) -> None:
    odd(store / "odd" / "1")
    (store / "odd/config.toml").write_text(f"strict = {config}\n")
    assert main(["check", flag, "odd"]) == status


def test_versions_are_checked_one_by_one(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store / "linear" / "2", LINEAR)
    (store / "linear/config.toml").write_text('versions = "all"')
    assert main(["check", "linear"]) == 1
    first, second = lines(capsys)
    assert first == "linear version 1: ok"
    assert second.startswith("linear version 2: error: ")
