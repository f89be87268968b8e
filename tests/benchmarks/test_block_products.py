"""Benchmark of weights in blocks: files are written once, answers are compared, and the report has every rate."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from benchmarks import block_products


def test_every_layer_is_reported_beside_onnxruntime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(block_products, "LAYERS", ((64, 32, 4, 32), (64, 16, 8, 16)))
    monkeypatch.setattr(block_products, "_FILE_BYTES", 4000)
    monkeypatch.setattr(block_products, "STEPS", ())
    monkeypatch.setattr(block_products, "_READ_BYTES", 1 << 20)
    argv = ["--folder", str(tmp_path), "--threads", "1", "--seconds", "0.01"]
    assert block_products.main(argv) == 0
    shown = capsys.readouterr().out
    assert "| 64 x 32 |" in shown and "| 64 x 16 |" in shown
    written = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "block_products").iterdir()}
    layers = ("64x32_4_32", "64x16_8_16")
    assert set(written) == {f"{name}{end}.onnx" for name in layers for end in ("", "_rounding")}
    assert block_products.main(argv) == 0
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "block_products").iterdir()} == written
