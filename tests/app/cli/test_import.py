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


def picture_model(
    path: Path,
    shape: list[int],
    labels: list[str] | None = None,
    canvas: tuple[int | str, int | str] = (32, 64),
    prototypes: list[int] | None = None,
    **metadata: str,
) -> Path:
    """Write an ONNX file whose output of zeros has a shape, with a second output of prototypes if they have one."""
    helper, image = onnx.helper, onnx.TensorProto.FLOAT
    size = onnx.numpy_helper.from_array(np.array(shape, np.int64), "size")
    nodes = [helper.make_node("ConstantOfShape", ["size"], ["out"])]
    outputs, constants = [helper.make_tensor_value_info("out", image, shape)], [size]
    if prototypes is not None:
        nodes.append(helper.make_node("ConstantOfShape", ["second"], ["masks"]))
        outputs.append(helper.make_tensor_value_info("masks", image, prototypes))
        constants.append(onnx.numpy_helper.from_array(np.array(prototypes, np.int64), "second"))
    graph = helper.make_graph(
        [*nodes, helper.make_node("Identity", ["images"], ["unused"])],
        "g",
        [helper.make_tensor_value_info("images", image, [1, 3, *canvas])],
        outputs,
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if labels is not None:
        helper.set_model_props(model, {"names": str(dict(enumerate(labels))), "stride": "32", **metadata})
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


@pytest.mark.parametrize(
    ("shape", "metadata", "expected", "note"),
    [
        (
            [1, 6, 21],
            {"task": "detect", "imgsz": "[320, 400]"},
            {
                "task": "detection", "detection": {"decoder": "yolov8"},
                "preprocess": {"size": [320, 416], "resize": "letterbox"},
            },
            "",
        ),
        (
            [1, 2],
            {"task": "classify", "imgsz": "224"},
            {"task": "classification", "preprocess": {"size": [224, 224], "resize": "crop"}},
            "",
        ),
        (
            [1, 300, 6],
            {"task": "detect", "imgsz": "[640, 640]"},
            {
                "task": "detection", "detection": {"decoder": "yolov10"},
                "preprocess": {"size": [640, 640], "resize": "letterbox"},
            },
            "",
        ),
        ([1, 9, 21], {"task": "detect"}, {}, "expected (N, 6, anchors) or (N, boxes, 6)"),
        ([1, 9, 21], {"task": "depth"}, {}, "task 'depth' is not supported"),
    ],
)  # fmt: skip
def test_task_and_sizes_of_an_ultralytics_file_are_in_its_metadata(
    tmp_path: Path,
    shape: list[int],
    metadata: dict[str, str],
    expected: dict[str, Any],
    note: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = picture_model(tmp_path / "yolo.onnx", shape, ["cat", "dog"], ("height", "width"), **metadata)
    assert imported(source, tmp_path / "store") == expected
    assert note in capsys.readouterr().out


def test_masks_and_key_points_of_an_ultralytics_file_are_decoded(tmp_path: Path) -> None:
    labels = ["cat", "dog"]
    masks = picture_model(tmp_path / "seg.onnx", [1, 10, 21], labels, prototypes=[1, 4, 8, 16], task="segment")
    assert imported(masks, tmp_path / "a")["detection"] == {"decoder": "yolov8", "prototypes": "masks"}
    pose = picture_model(tmp_path / "pose.onnx", [1, 12, 21], labels, task="pose", kpt_shape="[2, 3]")
    assert imported(pose, tmp_path / "b")["detection"] == {"decoder": "yolov8", "keypoints": [2, 3]}
    old = picture_model(tmp_path / "v5.onnx", [1, 21, 11], labels, prototypes=[1, 4, 8, 16])
    assert imported(old, tmp_path / "c")["detection"] == {"decoder": "yolov5", "prototypes": "masks"}


# Shapes are those that ultralytics 8.4.190 writes for yolov8n-obb and for yolo26n-*, with two labels.
@pytest.mark.parametrize(
    ("shape", "metadata", "expected"),
    [
        ([1, 7, 21], {"task": "obb"}, {"decoder": "yolov8", "rotated": True}),
        ([1, 300, 7], {"task": "obb"}, {"decoder": "yolov10", "rotated": True, "box_format": "cxcywh"}),
        ([1, 300, 12], {"task": "pose", "kpt_shape": "[2, 3]"}, {"decoder": "yolov10", "keypoints": [2, 3]}),
        ([1, 300, 10], {"task": "segment"}, {"decoder": "yolov10", "prototypes": "masks"}),
    ],
)
def test_rotated_boxes_and_networks_exported_end_to_end_are_decoded(
    tmp_path: Path, shape: list[int], metadata: dict[str, str], expected: dict[str, Any]
) -> None:
    prototypes = [1, 4, 8, 16] if metadata["task"] == "segment" else None
    source = picture_model(tmp_path / "yolo.onnx", shape, ["cat", "dog"], prototypes=prototypes, **metadata)
    assert imported(source, tmp_path / "store")["detection"] == expected


def test_key_points_without_a_shape_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = picture_model(tmp_path / "pose.onnx", [1, 12, 21], ["cat", "dog"], task="pose", kpt_shape="[2, x]")
    assert main(["import", str(source), "--store", str(tmp_path / "store")]) != 0
    assert "metadata: found kpt_shape '[2, x]', expected two numbers" in capsys.readouterr().err


def test_a_text_recogniser_brings_its_dictionary(tmp_path: Path) -> None:
    source = picture_model(tmp_path / "rec.onnx", [1, 10, 5], [], (48, "width"), character="a\nb\nc")
    config = imported(source, tmp_path / "store")
    assert config["task"] == "text-recognition" and config["preprocess"]["size"] == [48, 0]


@pytest.mark.parametrize("metadata", [{"imgsz": "[a]"}, {"imgsz": "(" * 10_000}, {"stride": "x"}, {"imgsz": "{}"}])
def test_metadata_that_are_no_numbers_are_refused(
    tmp_path: Path, metadata: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    source = picture_model(tmp_path / "yolo.onnx", [1, 6, 21], ["cat", "dog"], ("height", "width"), **metadata)
    assert main(["import", str(source), "--store", str(tmp_path / "store")]) != 0
    assert "metadata: found imgsz" in capsys.readouterr().err


def test_one_of_several_files_must_be_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = hugging_face(tmp_path / "x", "embedding", "BertModel")
    (source / "onnx").mkdir()
    for name in ("model_fp16.onnx", "model_quantized.onnx"):
        shutil.copy(source / "model.onnx", source / "onnx" / name)
    (source / "model.onnx").unlink()
    assert main(["import", str(source), "--store", str(tmp_path / "store")]) != 0
    assert "--file: found '', expected one of 'model_fp16.onnx', 'model_quantized.onnx'" in capsys.readouterr().err
    assert imported(source, tmp_path / "store", "--file", "model_quantized.onnx")["task"] == "embedding"


def modules(*names: str) -> list[dict[str, str]]:
    """Return modules.json of sentence-transformers."""
    return [
        {"idx": str(index), "path": f"{index}_{name}" if index else "", "type": f"sentence_transformers.models.{name}"}
        for index, name in enumerate(names)
    ]


def safetensors(tensors: dict[str, np.ndarray]) -> bytes:
    """Return a file of safetensors, by its specification."""
    header, values = {}, b""
    for name, value in tensors.items():
        start, values = len(values), values + value.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": [start, len(values)]}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + values


@pytest.mark.parametrize("pooling", ["mean_tokens", "cls_token", "lasttoken"])
def test_dense_layers_behind_the_pooling_become_part_of_the_model(tmp_path: Path, pooling: str) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    tokenizers = pytest.importorskip("tokenizers")
    random = np.random.default_rng(0)
    weight, bias = random.normal(size=(8, 16)).astype(np.float32), random.normal(size=8).astype(np.float32)
    source = hugging_face(
        tmp_path / "labse", "embedding", "BertModel",
        modules=modules("Transformer", "Pooling", "Dense", "Normalize"),
        **{
            "1_Pooling__config": {f"pooling_mode_{pooling}": True},
            "2_Dense__config": {"activation_function": "torch.nn.modules.activation.Tanh"},
        },
    )  # fmt: skip
    (source / "2_Dense" / "model.safetensors").write_bytes(safetensors({"linear.weight": weight, "linear.bias": bias}))
    config = imported(source, tmp_path / "store")
    assert config["embedding"]["output"] == "sentence_embedding"

    tokens = tokenizers.Tokenizer.from_file(str(DATA / "tokenizer.json")).encode(ANSWERS["sentences"][0]).ids
    inputs = {"input_ids": np.array([tokens]), "attention_mask": np.ones((1, len(tokens)), np.int64)}
    inputs["token_type_ids"] = np.zeros_like(inputs["input_ids"])
    (hidden,) = onnxruntime.InferenceSession(str(DATA / "embedding.onnx")).run(None, inputs)[0]
    pooled = {"mean_tokens": hidden.mean(0), "cls_token": hidden[0], "lasttoken": hidden[-1]}[pooling]
    expected = np.tanh(weight @ pooled + bias)
    with serving(tmp_path / "store") as client:
        body = {"model": "labse", "input": [ANSWERS["sentences"][0], "short"]}
        vector = client.post("/v1/embeddings", json=body).json()["data"][0]["embedding"]
    np.testing.assert_allclose(vector, expected / np.linalg.norm(expected), atol=1e-5)


@pytest.mark.parametrize(
    ("names", "dense", "weights", "message"),
    [
        (("Transformer", "Pooling", "LayerNorm"), {}, None, "found Transformer → Pooling → LayerNorm"),
        (("Transformer", "Pooling", "Normalize", "Dense"), {}, None, "expected Transformer → Pooling → Dense"),
        (("StaticEmbedding",), {}, None, "found StaticEmbedding"),
        (("Transformer", "Pooling", "Dense"), {"activation_function": "x.GELU"}, b"", "found GELU"),
        (("Transformer", "Pooling", "Dense"), {}, b"\xff" * 16, "no weights of a dense layer"),
        (("Transformer", "Pooling", "Dense"), {}, safetensors({"w": np.ones((2, 2))}), "no weights of a dense layer"),
    ],
)
def test_modules_without_a_counterpart_are_refused(
    tmp_path: Path,
    names: tuple[str, ...],
    dense: dict[str, str],
    weights: bytes | None,
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source = hugging_face(
        tmp_path / "x", "embedding", "BertModel", modules=modules(*names), **{"2_Dense__config": dense}
    )
    if weights is not None:
        (source / "2_Dense" / "model.safetensors").write_bytes(weights)
    assert main(["import", str(source), "--store", str(tmp_path / "store")]) != 0
    assert message in capsys.readouterr().err


def test_prompts_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prompts = {"prompts": {"query": "query: ", "document": ""}}
    source = hugging_face(
        tmp_path / "e5", "embedding", "BertModel", modules=modules("Transformer", "Pooling"),
        config_sentence_transformers=prompts,
    )  # fmt: skip
    imported(source, tmp_path / "store")
    assert "clients put them in front: query 'query: '" in capsys.readouterr().out


def test_a_pipeline_of_scikit_learn_answers_as_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    random = np.random.default_rng(0)
    x = random.normal(size=(60, 4)).astype(np.float32)
    pipeline = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, np.where(x[:, 0] > 0, "yes", "no"))
    file = skl2onnx.to_onnx(pipeline, x[:1], options={"zipmap": False})
    (tmp_path / "churn.onnx").write_bytes(file.SerializeToString())
    assert imported(tmp_path / "churn.onnx", tmp_path / "store") == {}
    assert "takes and returns tensors" in capsys.readouterr().out
    with serving(tmp_path / "store") as client:
        outputs = client.post("/models/churn/infer", json={"inputs": x[:5].tolist()}).json()["outputs"]
    assert outputs["label"]["data"] == pipeline.predict(x[:5]).tolist()
    probabilities = np.reshape(outputs["probabilities"]["data"], (5, 2))
    np.testing.assert_allclose(probabilities, pipeline.predict_proba(x[:5]), atol=1e-5)


def archive(path: Path, serialized: str, handler: str, files: dict[str, bytes], **model: str) -> Path:
    with zipfile.ZipFile(path, "w") as written:
        manifest = {"model": {"modelName": "animals", "serializedFile": serialized, "handler": handler, **model}}
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


def test_an_onnx_file_in_an_archive_brings_its_tensors(tmp_path: Path) -> None:
    path = picture_model(tmp_path / "m.onnx", [1, 2])
    onnx.save(
        onnx.load(path),
        path,
        save_as_external_data=True,
        location="m.onnx.data",
        size_threshold=0,
        convert_attribute=True,
    )
    files = {name: (tmp_path / name).read_bytes() for name in ("m.onnx", "m.onnx.data")}
    imported(archive(tmp_path / "x.mar", "m.onnx", "handle.py", files), tmp_path / "store")
    assert (tmp_path / "store" / "animals" / "1" / "m.onnx.data").read_bytes() == files["m.onnx.data"]


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
        (lambda at: at, "found no model.onnx and no model.safetensors"),
        (lambda at: (at / "x.txt", (at / "x.txt").write_text(""))[0], "expected a folder of Hugging Face"),
        (lambda at: (at / "x.mar", (at / "x.mar").write_text("no"))[0], "not a zip archive"),
        (lambda at: archive(at / "x.mar", "../m.onnx", "h", {}), "found no '../m.onnx'"),
        (lambda at: archive(at / "x.mar", "m.joblib", "h", {"m.joblib": b""}), "expected an ONNX file, a TorchScript"),
        (lambda at: archive(at / "x.mar", "m.pt", "own:handle", {"m.pt": b""}), "--shape: missing"),
        (lambda at: archive(at / "x.mar", "m.pt", "text_classifier", {"m.pt": b""}), "found handler 'text_classifier'"),
        (lambda at: archive(at / "x.mar", "m.onnx", "h", {"m.onnx": b"", "index_to_name.json": b"[]"}), "found list"),
        (
            lambda at: archive(at / "x.mar", "m.onnx", "h", {"m.onnx": b"", "index_to_name.json": b"{"}),
            "cannot be read",
        ),
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
