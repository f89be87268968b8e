"""``compile``: the cache filled ahead of time."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from app.cli import main
from tests.app.cli.conftest import write
from tests.app.cli.test_main import Terminal

DRAWN = [
    "pnnx.Input in0 0 1 0 #0=(1,3)f32",
    "F.relu relu 1 1 0 1 #0=(1,3)f32 #1=(1,3)f32",
    "aten::exponential drawn 1 1 1 2 #1=(1,3)f32 #2=(1,3)f32",
    "pnnx.Output out0 1 0 2 #2=(1,3)f32",
]
OPEN = [line.replace("(1,3)", "(?,?)") for line in (DRAWN[0], DRAWN[1], "pnnx.Output out0 1 0 1 #1=(1,3)f32")]
PLAIN = [*DRAWN[:2], "pnnx.Output out0 1 0 1 #1=(1,3)f32"]
UNKNOWN = [DRAWN[0], "no.Such op 1 1 0 1", "pnnx.Output out0 1 0 1"]


@pytest.fixture(autouse=True)
def sources_that_stay_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat the sources as unchanged, whatever is being edited in the folder of the tests."""
    monkeypatch.setattr("engine.compiler.builder.is_unchanged", lambda: True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of the cache."""
    monkeypatch.setenv("PNNX_SERVE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_ino for path in folder.iterdir()} if folder.exists() else {}


def compiled(*argv: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    """Return the status, the lines of stdout, and stderr without progress lines, which a busy machine prints."""
    status = main(["compile", *argv])
    captured = capsys.readouterr()
    error = re.sub(r"^compiling .+ \.\.\. \d+ s\n", "", captured.err, flags=re.MULTILINE)
    return status, captured.out.splitlines(), error


def test_a_model_is_compiled_once(store: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, (first,), error = compiled("linear", capsys=capsys)
    assert (status, error) == (0, "")
    assert re.fullmatch(r"linear · compiled in [\d.]+ (ms|s) · [\d.]+ kB · \d+ kernels?", first)
    _, (second,), _ = compiled("linear", capsys=capsys)
    assert re.fullmatch(r"linear · found in the cache, loaded in [\d.]+ (µs|ms|s) · [\d.]+ kB · \d+ kernels?", second)
    assert len(files(folder)) == 1


def test_force_compiles_what_is_there(store: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    compiled("linear", capsys=capsys)
    before = files(folder)
    _, (line,), _ = compiled("linear", "--force", capsys=capsys)
    assert "compiled in" in line
    assert files(folder).keys() == before.keys()
    assert files(folder) != before


def test_what_was_compiled_is_what_run_finds(
    store: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled("linear", "--threads", "1", capsys=capsys)
    monkeypatch.setattr("engine.compiler.codegen.object_code.assemble", None)
    np.save("x.npy", np.zeros((1, 3), np.float32))
    assert main(["run", "linear", "--input", "x.npy", "--threads", "2"]) == 0


def test_batches_of_more_than_one_item_share_an_entry(
    store: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines, _ = compiled("linear", "--batch", "1", "4", "16", capsys=capsys)
    assert [line.split(" · ")[:2] for line in lines] == [["linear", f"batch {n}"] for n in (1, 4, 16)]
    assert len(files(folder)) == 2


def test_every_version_of_a_model_is_compiled(store: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store / "many" / "1", PLAIN)
    write(store / "many" / "3", DRAWN)
    (store / "many" / "config.toml").write_text('versions = "all"')
    _, lines, _ = compiled("many", capsys=capsys)
    assert [line.split(" · ")[0] for line in lines] == ["many version 1", "many version 3"]


def test_operators_without_a_kernel_are_counted(store: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store / "drawn" / "1", DRAWN)
    _, (line,), _ = compiled("drawn", capsys=capsys)
    assert line.endswith(" · 1 operator on the reference")


def test_dynamic_sizes_leave_nothing_to_do(store: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(store / "open" / "1", OPEN)
    status, (line,), _ = compiled("open", capsys=capsys)
    assert (status, line.split(": ")[0]) == (0, "open · nothing to compile ahead")


def test_what_cannot_be_compiled_stops_no_other_model(
    store: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(store / "unknown" / "1", UNKNOWN)
    status, lines, error = compiled("unknown", "nothing", "linear", capsys=capsys)
    assert (status, len(lines)) == (1, 1)
    told = error.splitlines()
    assert told[0].startswith("unknown: error: no layer for 1 operator type: 'no.Such' (op)")
    assert told[1].startswith("nothing: error: no model 'nothing'")


def test_a_batch_the_model_does_not_take_is_an_error(
    store: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["pnnx.Input in0 0 1 0 #0=(2,3)f32", "torch.sum sum 1 1 0 1 dim=(0,1) keepdim=False #0=(2,3)f32 #1=()f32"]
    write(store / "whole" / "1", [*lines, "pnnx.Output out0 1 0 1 #1=()f32"])
    status, out, error = compiled("whole", "--batch", "4", capsys=capsys)
    assert (status, out) == (1, [])
    assert "whole: error: the graph does not take other batch sizes" in error


def test_a_cache_that_takes_nothing_is_told(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("")
    status, (line,), _ = compiled("linear", "--cache-dir", str(tmp_path / "taken"), capsys=capsys)
    assert status == 1
    assert " · not kept: the cache takes nothing · " in line
    assert len(caplog.messages) == 1


@pytest.mark.parametrize("batch", ["0", "-1", "x", "1.5"])
def test_a_batch_is_a_positive_number(batch: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["compile", "linear", f"--batch={batch}"])
    assert exit.value.code == 2
    assert f"argument --batch: found '{batch}', expected a positive whole number" in capsys.readouterr().err


def test_a_terminal_is_shown_how_far_it_is(
    store: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    assert main(["compile", "brightness"]) == 0
    shown = [text.removesuffix(" ...") for text in screen.getvalue().replace("\r", "").split("\x1b[2K") if text]
    stages = dict.fromkeys(re.sub(r" \d+ of \d+$", "", text) for text in shown)
    assert list(stages) == [f"compiling brightness: {stage}" for stage in ("passes", "lowering", "assembling")]
    assert len(shown) > 2


def test_sizes_that_the_model_leaves_open_are_named(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "open", OPEN)
    argv = ["open", "--shape", "2,3"]
    status, (line,), _ = compiled(*argv, capsys=capsys)
    assert status == 0 and line.startswith("open/model.pnnx.param · [2, 3] · compiled in ")
    _, (line,), _ = compiled(*argv, capsys=capsys)
    assert line.startswith("open/model.pnnx.param · [2, 3] · found in the cache")


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["--shape", "1,3", "--batch", "2"], 2, "--shape and --batch"),
        (["--shape", "1,3", "--shape", "1,3"], 2, "--shape: found 2, expected one for each input: 'in0'"),
        (["--shape", "3"], 2, "--shape: found [3], which does not fit 'in0' ([1, 3] float32)"),
        (["--shape", "1,4"], 2, "--shape: found [1, 4], which does not fit 'in0'"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    tmp_path: Path, arguments: list[str], status: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "plain", PLAIN)
    found, lines, text = compiled("plain", *arguments, capsys=capsys)
    assert (found, lines) == (status, []) and told in text


@pytest.mark.parametrize("shape", ["", "1,x", "0,3", "1,,3", "-1"])
def test_what_is_no_shape_is_a_wrong_call(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        main(["compile", "m", f"--shape={shape}"])
    assert exit.value.code == 2 and "expected sizes by comma" in capsys.readouterr().err


def test_all_models_of_the_store_are_compiled(store: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, error = compiled("--all", capsys=capsys)
    assert {line.split(" · ")[0] for line in lines} <= {path.name for path in store.iterdir()}
    assert (status, error) == (0, "") and len(lines) > 1


@pytest.mark.parametrize("words", [["--force"], ["--all", "linear"]])
def test_models_are_named_or_all_of_them(words: list[str], store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, error = compiled(*words, capsys=capsys)
    assert status == 2 and "MODEL or --all: found" in error


def test_an_empty_store_is_told(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    status, _, error = compiled("--all", "--store", str(tmp_path / "empty"), capsys=capsys)
    assert status != 0 and "is empty: found no model" in error
