"""Tests of `pnnx-serve import`."""

from __future__ import annotations

import json
import shutil
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cli import main
from app.models.folder.config import read_config
from tests.app.client import serving
from tests.app.text_models import ANSWERS, DATA

onnx = pytest.importorskip("onnx")


def hugging_face(folder: Path, task: str, architecture: str, **files: object) -> Path:
    """Write a folder as transformers and Optimum do."""
    folder.mkdir()
    shutil.copy(DATA / f"{task}.onnx", folder / "model.onnx")
    shutil.copy(DATA / "tokenizer.json", folder)
    description = {"architectures": [architecture], "model_type": "bert", "max_position_embeddings": 64}
    for name, content in {"config": description, **files}.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        value = {**description, **content} if name == "config" and isinstance(content, dict) else content
        path.write_text(json.dumps(value))
    return folder


def imported(source: Path, store: Path, *argv: str) -> dict[str, Any]:
    assert main(["import", str(source), "--store", str(store), *argv]) == 0
    (folder,) = (path for path in store.iterdir() if not path.name.startswith("."))
    read_config(folder)
    return tomllib.loads((folder / "config.toml").read_text())


def picture_model(path: Path, shape: list[int], labels: list[str] | None = None) -> Path:
    """Write an ONNX file whose output of zeros has a shape."""
    helper, image = onnx.helper, onnx.TensorProto.FLOAT
    size = onnx.numpy_helper.from_array(np.array(shape, np.int64), "size")
    nodes = [helper.make_node("ConstantOfShape", ["size"], ["out"])]
    graph = helper.make_graph(
        [*nodes, helper.make_node("Identity", ["images"], ["unused"])],
        "g",
        [helper.make_tensor_value_info("images", image, [1, 3, 32, 64])],
        [helper.make_tensor_value_info("out", image, shape)],
        [size],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if labels is not None:
        helper.set_model_props(model, {"names": str(dict(enumerate(labels))), "stride": "32"})
    path.write_bytes(model.SerializeToString())
    return path


def test_a_sentence_model_is_served_as_its_files_say(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="needs the extra text")
    source = hugging_face(
        tmp_path / "mini-lm", "embedding", "BertModel",
        modules=[{"type": f"sentence_transformers.models.{each}"} for each in ("Transformer", "Normalize")],
        **{"1_Pooling__config": {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}},
        sentence_bert_config={"max_seq_length": 48},
    )  # fmt: skip
    config = imported(source, tmp_path / "store")
    assert config == {
        "task": "embedding",
        "text": {"max_tokens": 48},
        "embedding": {"pooling": "mean", "normalise": True},
    }
    with serving(tmp_path / "store") as client:
        body = {"model": "mini-lm", "input": ANSWERS["sentences"][0]}
        vector = client.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    assert vector == pytest.approx(ANSWERS["embedding"][0], abs=1e-5)


@pytest.mark.parametrize(
    ("data", "architecture", "more", "expected"),
    [
        (
            "text-classification",
            "BertForSequenceClassification",
            {"id2label": {str(i): label for i, label in enumerate(ANSWERS["labels"])}},
            {"task": "text-classification", "labels": ANSWERS["labels"], "text": {"max_tokens": 64}},
        ),
        (
            "rerank",
            "BertForSequenceClassification",
            {"id2label": {"0": "LABEL_0"}},
            {"task": "rerank", "text": {"max_tokens": 64}},
        ),
        (
            "token-classification",
            "RobertaForTokenClassification",
            {"id2label": {str(i): label for i, label in enumerate(ANSWERS["labels"])}, "model_type": "roberta"},
            {"task": "token-classification", "labels": ANSWERS["labels"], "text": {"max_tokens": 62}},
        ),
        (
            "question-answering",
            "BertForQuestionAnswering",
            {},
            {"task": "question-answering", "text": {"max_tokens": 64}},
        ),
        (
            "fill-mask",
            "BertForMaskedLM",
            {},
            {"task": "fill-mask", "text": {"max_tokens": 64}, "fill-mask": {"mask": "[MASK]"}},
        ),
    ],
)
def test_the_task_follows_from_the_architecture(
    tmp_path: Path, data: str, architecture: str, more: dict[str, Any], expected: dict[str, Any]
) -> None:
    source = hugging_face(tmp_path / "source", data, architecture, config=more)
    assert imported(source, tmp_path / "store") == expected


def test_an_image_processor_becomes_the_table_preprocess(tmp_path: Path) -> None:
    source = tmp_path / "vit"
    source.mkdir()
    picture_model(source / "model.onnx", [1, 2])
    labels = {"0": "cat", "1": "dog"}
    (source / "config.json").write_text(
        json.dumps({"architectures": ["ViTForImageClassification"], "id2label": labels})
    )
    (source / "preprocessor_config.json").write_text(
        json.dumps(
            {
                "size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True,
                "resample": 3, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5], "rescale_factor": 0.5,
            }
        )
    )  # fmt: skip
    assert imported(source, tmp_path / "store") == {
        "task": "classification",
        "labels": ["cat", "dog"],
        "preprocess": {
            "size": [224, 224], "resize": "crop", "crop_fraction": 0.875, "interpolation": "bicubic", "scale": 0.5,
            "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5],
        },
    }  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "decoder"), [([1, 6, 21], "yolov8"), ([1, 21, 7], "yolov5"), ([1, 2], None), ([1, 5, 5], None)]
)
def test_the_output_of_an_ultralytics_file_tells_its_decoder(
    tmp_path: Path, shape: list[int], decoder: str | None
) -> None:
    source = picture_model(tmp_path / "yolo.onnx", shape, ["cat", "dog"])
    config = imported(source, tmp_path / "store", "--name", "yolo")
    if decoder is None:
        assert config.get("task") == ("classification" if len(shape) == 2 else None)
    else:
        preprocess = {"size": [32, 64], "resize": "letterbox"}
        assert config == {"task": "detection", "detection": {"decoder": decoder}, "preprocess": preprocess}


def archive(path: Path, serialized: str, handler: str, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as written:
        manifest = {"model": {"modelName": "animals", "serializedFile": serialized, "handler": handler}}
        written.writestr("MAR-INF/MANIFEST.json", json.dumps(manifest))
        for name, content in files.items():
            written.writestr(name, content)
    return path


def test_an_archive_of_torchserve_with_an_onnx_file_is_imported(tmp_path: Path) -> None:
    onnx_file = picture_model(tmp_path / "m.onnx", [1, 2]).read_bytes()
    labels = json.dumps({"0": ["n1", "cat"], "1": ["n2", "dog"]}).encode()
    source = archive(
        tmp_path / "x.mar", "m.onnx", "image_classifier", {"m.onnx": onnx_file, "index_to_name.json": labels}
    )
    config = imported(source, tmp_path / "store")
    assert (config["task"], config["labels"], config["preprocess"]["size"]) == (
        "classification",
        ["cat", "dog"],
        [224, 224],
    )
    assert (tmp_path / "store" / "animals" / "1" / "model.onnx").read_bytes() == onnx_file


def test_a_second_import_is_the_next_version_and_keeps_the_config(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = picture_model(tmp_path / "yolo.onnx", [1, 6, 21], ["cat", "dog"])
    imported(source, tmp_path / "store")
    (tmp_path / "store" / "yolo" / "config.toml").write_text("# own\n")
    assert imported(source, tmp_path / "store") == {}
    assert (tmp_path / "store" / "yolo" / "2" / "model.onnx").exists()
    assert "stays as it is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: at / "nothing", "nothing: not found"),
        (lambda at: at, "found no model.onnx"),
        (lambda at: (at / "x.txt", (at / "x.txt").write_text(""))[0], "expected a folder of Hugging Face"),
        (lambda at: (at / "x.mar", (at / "x.mar").write_text("no"))[0], "not a zip archive"),
        (lambda at: archive(at / "x.mar", "m.pt", "image_classifier", {"m.pt": b""}), "run pnnx-serve export"),
        (lambda at: archive(at / "x.mar", "../m.onnx", "h", {}), "expected an ONNX file"),
    ],
)
def test_what_cannot_be_imported_is_told_in_a_line(
    tmp_path: Path, make: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = make(tmp_path)
    assert main(["import", str(source), "--store", str(tmp_path / "store")]) != 0
    text = capsys.readouterr().err
    assert message in text
    assert text.count("\n") == 1


def test_pooling_that_does_not_exist_here_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = hugging_face(
        tmp_path / "x", "embedding", "BertModel", modules=[], **{"1_Pooling__config": {"pooling_mode_max_tokens": True}}
    )
    assert main(["import", str(source), "--store", str(tmp_path / "store")]) != 0
    assert "found pooling by max_tokens, expected mean, cls or last" in capsys.readouterr().err
