"""``bench``: what is measured, and against whom. Times themselves are not checked."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

from app.cli import bench, main
from app.cli.verbs import RIVALS
from app.measuring import contest
from app.measuring.contest import Rival
from tests.app.cli.conftest import BIAS, WEIGHT, write

Run = Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]


def right(inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the output of the model ``linear``."""
    return [inputs[0] @ WEIGHT.T + BIAS]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Run], None]:
    """Replace an engine by another function under its name."""

    def replace(name: str, run: Run) -> None:
        rival = Rival(module="json", distribution="numpy", kind=contest.RIVALS[name].kind, make=lambda *_: run)
        monkeypatch.setitem(contest.RIVALS, name, rival)

    return replace


def measured(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    """Status, lines of stdout, stderr."""
    status = main(["bench", *argv, "--seconds", "0.02"])
    captured = capsys.readouterr()
    return status, captured.out.splitlines(), captured.err


def test_the_report_has_latency_throughput_arithmetic_and_kernels(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, error = measured("linear", "--threads", "1", capsys=capsys)
    assert (status, error) == (0, "")
    time = r"[\d.]+ (µs|ms|s)"
    patterns = [
        r"linear · 1 item · compiled back end · 1 thread · within \de[+-]\d\d of the reference",
        "",
        rf"latency     min {time} · median {time} · p99 {time} · \d+ runs",
        r"throughput  [\d,.]+ items/s",
        r"arithmetic  \d+ FLOP · .* · [\d.]+ % of the float32 peak of one core \([\d.]+ GFLOP/s each\)",
        "",
        " +µs  GFLOP/s +of peak +GB/s +kernel +operators",
    ]
    for pattern, line in zip(patterns, lines, strict=False):
        assert re.fullmatch(pattern, line), line
    assert any(re.search(r"\bfc\b", line) for line in lines[len(patterns) : -1])
    assert re.fullmatch(r" *[\d.]+ +in \d+ kernels?", lines[-1])


def test_a_batch_is_measured_as_one(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, lines, _ = measured("linear", "--batch", "5", capsys=capsys)
    assert lines[0].startswith("linear · 5 items · ")


def test_the_reference_is_measured_operator_by_operator(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, _ = measured("linear", "--backend", "reference", capsys=capsys)
    assert status == 0
    assert "reference back end" in lines[0]
    assert any(re.fullmatch(r" *[\d.]+ +reference +fc", line) for line in lines)


def test_engines_are_compared(
    store: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[str, Run], None]
) -> None:
    stand_in("onnxruntime", right)
    (store / "linear/1/model.onnx").write_text("")
    status, lines, error = measured("linear", "--against", "onnxruntime", capsys=capsys)
    assert (status, error) == (0, "")
    title, ours, theirs = lines[-3:]
    assert title.split() == ["min", "median", "p99", "times", "ours", "error", "engine"]
    assert re.search(r" 1\.00  \de[+-]\d\d  pnnx-serve$", ours)
    assert re.search(rf" [\d.]+  \de[+-]\d\d  onnxruntime {re.escape(np.__version__)}$", theirs)


def test_files_of_other_engines_may_lie_elsewhere(
    store: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[str, Run], None]
) -> None:
    stand_in("openvino", right)
    Path("other.onnx").write_text("")
    assert measured("linear", "--against", "openvino", "--onnx", "other.onnx", capsys=capsys)[0] == 0


def fail(_: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
    raise RuntimeError("no kernel\nfor this")


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (lambda inputs: [right(inputs)[0] + 1], "wrong answer: it differs by 1.0e-01 of the largest magnitude"),
        (lambda inputs: right(inputs) * 2, "wrong answer: it differs by inf of the largest magnitude"),
        (fail, "cannot run it: RuntimeError: no kernel"),
    ],
)
def test_an_engine_that_does_not_answer_rightly_is_not_timed(
    run: Run, message: str, store: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[str, Run], None]
) -> None:
    stand_in("ncnn", run)
    (store / "linear/1/model.ncnn.param").write_text("")
    status, lines, error = measured("linear", "--against", "ncnn", capsys=capsys)
    assert status == 1
    assert re.sub(r"by \d\.\de-\d\d", "by 1.0e-01", error) == f"ncnn: {message}\n"
    assert lines[-1].endswith("kernels") or lines[-1].endswith("kernel")


def test_an_engine_without_a_file_is_told_which_one_it_needs(
    store: Path, capsys: pytest.CaptureFixture[str], stand_in: Callable[[str, Run], None]
) -> None:
    stand_in("onnxruntime", right)
    status, _, error = measured("linear", "--against", "onnxruntime", capsys=capsys)
    assert status == 1
    assert re.fullmatch(
        r"onnxruntime: no file '.*/model\.onnx', expected the same network in its format \(--onnx FILE\)\n", error
    )


def test_an_engine_that_is_not_installed_is_told_how_to_get_it(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openvino", None)
    status, _, error = measured("linear", "--against", "openvino", capsys=capsys)
    assert status == 1
    assert error.startswith("openvino: not installed: pip install openvino (")


def test_a_file_an_engine_cannot_load_is_named(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(*_: object) -> Any:
        raise ValueError("bad magic")

    monkeypatch.setitem(
        contest.RIVALS, "onnxruntime", Rival(module="json", distribution="numpy", kind="onnx", make=make)
    )
    Path("bad.onnx").write_text("")
    _, _, error = measured("linear", "--against", "onnxruntime", "--onnx", "bad.onnx", capsys=capsys)
    assert error == "onnxruntime: cannot load 'bad.onnx': ValueError: bad magic\n"


def test_unknown_engines_are_a_wrong_call(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "linear", "--against", "torch,ncnn"]) == 2
    assert "--against: found torch, expected some of onnxruntime, openvino, ncnn" in capsys.readouterr().err


def test_the_engines_that_help_names_are_those_there_are() -> None:
    assert tuple(contest.RIVALS) == RIVALS


def test_dynamic_sizes_are_a_wrong_call(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store / "open" / "1", ["pnnx.Input a 0 1 0 #0=(?,?)f32", "F.relu r 1 1 0 1", "pnnx.Output b 1 0 1"])
    assert main(["bench", "open"]) == 2
    assert "missing, expected a shape for the model's dynamic input sizes" in capsys.readouterr().err


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "long"])
def test_seconds_are_a_positive_number(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "linear", f"--seconds={seconds}"])
    assert f"found '{seconds}', expected a positive number of seconds" in capsys.readouterr().err


def test_a_model_that_answers_wrongly_is_not_measured(
    store: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_reference", lambda model, _: type("Wrong", (), {"run": lambda *_: [np.ones((1, 2))]}))
    status, lines, error = measured("linear", capsys=capsys)
    assert (status, lines) == (1, [])
    assert "the model's outputs differ from the reference's" in error


def test_sizes_that_the_model_leaves_open_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["pnnx.Input in0 0 1 0 #0=(?,?)f32", "F.relu op 1 1 0 1 #0=(?,?)f32 #1=(?,?)f32",
             "pnnx.Output out0 1 0 1 #1=(?,?)f32"]  # fmt: skip
    write(tmp_path / "open", lines)
    status, (head, *_), _ = measured("open", "--shape", "4,3", capsys=capsys)
    assert status == 0 and head.startswith("open/model.pnnx.param · 4 items · compiled back end")
    assert measured("open", "--shape", "4,3", "--batch", "2", capsys=capsys)[0] == 2


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_times_are_bars_on_the_terminal_and_in_a_file(
    kind: str, store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / f"times.{kind}"
    status, lines, _ = measured("linear", "--plot", str(target), capsys=capsys)
    assert status == 0 and any("█" in line for line in lines)
    if kind == "png":
        with Image.open(target) as picture:
            assert picture.size[0] > 800
    else:
        drawing = ElementTree.parse(target)
        words = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert "Kernels" in words and any("fc" in str(word) for word in words)


def test_a_plot_of_another_kind_is_a_wrong_call(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, error = measured("linear", "--plot", "times.gif", capsys=capsys)
    assert (status, lines) == (2, []) and ".svg or .png" in error
