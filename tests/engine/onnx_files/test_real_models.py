"""Models of packages that people have (benchmarks/onnx_models.py fetches them): what onnxruntime answers, so do we."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FOLDER = os.environ.get("ONNX_MODELS")
MODELS = sorted(Path(FOLDER).rglob("*.onnx")) if FOLDER else []


@pytest.mark.skipif(
    not MODELS, reason="ONNX_MODELS names no folder of models: python benchmarks/onnx_models.py --fetch"
)
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.name)
def test_it_answers_as_onnxruntime_does(path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from benchmarks.onnx_models import compare

    # Its LSTM rounds what goes into it to bytes as it runs; ours takes it as it is.
    assert compare(path)[0] <= (2e-2 if path.stem == "common_old" else 1e-3)
