"""Export of ONNX files as they are: the answers equal those of onnxruntime."""

from __future__ import annotations

import gzip
import io
import sys
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import exporter
from app.cli import main
from exporter import SourceError


@pytest.fixture
def onnx_file(torch: Any, tmp_path: Path) -> Path:
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    path = tmp_path / "two-convs.onnx"
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 3, 3)).eval()
    with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        axes = {"x": {0: "n", 2: "h", 3: "w"}}
        torch.onnx.export(
            model, (torch.randn(1, 1, 8, 8),), str(path), dynamo=False, input_names=["x"], dynamic_axes=axes
        )
    return path


def test_an_onnx_file_becomes_a_pair(
    onnx_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(onnx_file), "--shape", "1,1,8,8", "--shape2", "2,1,12,10", "--output", "out"]) == 0
    said = capsys.readouterr().out
    assert "same answers as onnxruntime at [1,1,8,8]f32 and [2,1,12,10]f32" in said
    assert "x [?, 1, ?, ?] float32" in said


@pytest.fixture
def scattered(onnx_file: Path) -> Path:
    """The same with its weights in a file of another name."""
    import onnx

    path = onnx_file.with_name("scattered.onnx")
    onnx.save(onnx.load(onnx_file), path, save_as_external_data=True, location="weights", size_threshold=0)
    return path


def test_weights_in_other_files_are_put_in(scattered: Path, tmp_path: Path) -> None:
    model = exporter.load_source(str(scattered))
    exported = exporter.export(model, exporter.parse_inputs(["1,1,8,8"]), tmp_path / "out")
    assert exported.tried == ("[1,1,8,8]f32",)


def test_without_onnx_weights_in_other_files_are_refused_with_what_to_do(
    scattered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = exporter.load_source(str(scattered))
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(SourceError, match=r"scattered\.onnx: the weights are in other files.*pip install onnx, or"):
        exporter.export(model, exporter.parse_inputs(["1,1,8,8"]), tmp_path / "out")


def test_another_number_of_inputs_is_refused(onnx_file: Path, tmp_path: Path) -> None:
    model = exporter.load_source(str(onnx_file))
    with pytest.raises(SourceError, match=r"the model has 1 inputs \(x\), given are 2"):
        exporter.export(model, exporter.parse_inputs(["1,1,8,8", "2"]), tmp_path / "out")


def test_an_onnx_file_under_another_name_is_told(onnx_file: Path, tmp_path: Path) -> None:
    other = onnx_file.rename(tmp_path / "model.pt")
    with pytest.raises(SourceError, match="an ONNX model under another name"):
        exporter.load_source(str(other))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"garbage", "not an ONNX model that can be run"),
        (gzip.compress(b"onnx"), "not an ONNX model: found a compressed file"),
        (b"", "not an ONNX model: found an empty file"),
    ],
    ids=["garbage", "compressed", "empty"],
)
def test_what_is_no_onnx_model_is_told(content: bytes, message: str, torch: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=message):
        exporter.load_source(str(path))
