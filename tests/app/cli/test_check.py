"""``check``: every reason why a model cannot be served, at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from tests.app.cli.conftest import LINEAR, WEIGHT, write


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


def open_model(folder: Path, *operators: str, shape: str = "(?,3,?)") -> str:
    lines = [
        f"pnnx.Input in0 0 1 0 #0={shape}f32",
        *operators,
        "pnnx.Output out0 1 0 9",
    ]
    return str(write(folder, lines))


def checked(path: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the whole output with the status in front."""
    return f"{main(['check', path])} " + "\n".join(lines(capsys))


# What inference knows nothing of, and every run refuses.
NEVER = "pnnx.Expression e 1 1 0 n expr=size(@0,0)", "aten::__getitem__ g 2 1 n n 9"
# Sizes whose number only few inputs have.
RARE = {
    "a window": ("Tensor.reshape r 1 1 0 9 shape=(-1,21)",),
    "halves of halves": (
        "F.avg_pool1d a 1 1 0 1 kernel_size=16 stride=16 padding=0 ceil_mode=False count_include_pad=True",
        "Tensor.reshape r 1 1 1 9 shape=(-1,3,4)",
    ),
    "few": ("Tensor.select s 1 1 0 9 dim=2 index=40",),
}


def test_a_model_of_dynamic_size_that_never_runs_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = checked(open_model(tmp_path / "never", *NEVER), capsys)
    assert said.startswith("0 ")
    assert "g (aten::__getitem__)" in said
    assert "warning: not run: sizes are dynamic, and zeros are rejected at all sizes tried" in said


@pytest.mark.parametrize("operators", RARE.values(), ids=RARE)
def test_sizes_that_do_are_looked_for(
    operators: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = open_model(tmp_path / "rare", *operators)
    assert checked(path, capsys) == f"0 {path}: ok"


def test_sizes_of_several_inputs_may_have_to_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        "pnnx.Input in0 0 1 0 #0=(1,?)f32",
        "pnnx.Input in1 0 1 1 #1=(1,?)f32",
        "F.avg_pool1d a 1 1 0 2 kernel_size=4 stride=4 padding=0 ceil_mode=False count_include_pad=True",
        "pnnx.Expression e 2 1 2 1 3 expr=add(@0,@1)",
        "Tensor.reshape r 1 1 3 9 shape=(4,2)",
        "pnnx.Output out0 1 0 9",
    ]
    path = str(write(tmp_path / "two", lines))
    assert checked(path, capsys) == f"0 {path}: ok"


def test_a_model_of_which_nothing_is_known_is_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(write(tmp_path / "null", ["pnnx.Input in0 0 1 0", "F.relu r 1 1 0 9", "pnnx.Output out0 1 0 9"]))
    said = checked(path, capsys)
    assert said.startswith("0 ")
    assert "warning: not run: the file does not declare 'in0'" in said
