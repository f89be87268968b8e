"""The file that an ONNX model's tensors lie in is part of the model, whichever name its exporter gave it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.models.folder.identity import contents_of, identify
from app.models.folder.repository import FoundModel, read_model


@pytest.mark.parametrize("name", ["model.onnx.data", "model.onnx_data"])
def test_another_file_of_tensors_is_another_model(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "net/1"
    folder.mkdir(parents=True)
    for each in ("model.onnx", name):
        (folder / each).write_bytes(b"a")
    found = FoundModel(name="net", path=tmp_path / "net")
    files = read_model(found)
    before = identify(files, files.versions[0]), contents_of(found)
    (folder / name).write_bytes(b"ab")
    assert files.versions[0].bin == folder / name
    assert identify(files, files.versions[0]) != before[0]
    assert contents_of(found) != before[1]
