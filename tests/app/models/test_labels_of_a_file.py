"""Labels that an ONNX file has in its metadata are a served model's, unless its config says others."""

from __future__ import annotations

from pathlib import Path

from app.models.folder.config import ModelConfig
from app.models.folder.repository import VersionFiles
from app.models.model import Model
from app.settings import Settings
from tests.engine.onnx_files.test_labels import graph_with


def test_a_served_model_has_them_unless_its_config_says_others(tmp_path: Path) -> None:
    graph, settings = graph_with(tmp_path, names="a\nb"), Settings(backend="reference")
    files = VersionFiles(number=1, param=tmp_path, bin=tmp_path)
    own, others = (
        Model("m", graph, ModelConfig(), each, threads=1, settings=settings, files=files) for each in (None, ("c", "d"))
    )
    assert (own.labels, others.labels) == (("a", "b"), ("c", "d"))
