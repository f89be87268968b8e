"""``pnnx-serve import``: put a model of another tool into the store, with a config.toml made from its files."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import engine
import exporter
from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.errors import ConfigError
from app.messages import cut, printable
from app.models.folder.config import parse_config
from app.models.folder.layout import CONFIG, NAME_RULE, ONNX, ONNX_DATA, is_model_name
from app.settings import Settings
from app.text.text import TOKENIZER
from app.text_files import read_text

# Most bytes of a JSON file of a model, except its tokenizer.
_MAX_JSON: Final = 32 * 2**20
# Folders in which Hugging Face's tools put the ONNX file.
_ONNX_FOLDERS: Final = ("", "onnx")
_NO_LIMIT: Final = 10**6
_IMAGENET: Final = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
_INTERPOLATIONS: Final = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}
# Tasks by the ending of the architecture's name in Hugging Face's config.json.
_TASKS: Final = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForImageClassification": "classification",
}
_HANDLERS: Final = {
    "image_classifier": "classification",
    "object_detector": "detection",
    "image_segmenter": "segmentation",
}


@dataclass(slots=True, kw_only=True)
class Found:
    """Model of another tool.

    Attributes:
        model: its ONNX file.
        config: contents of config.toml; tables are dictionaries.
        tokenizer: its tokenizer.json, or None.
        name: default name in the store.
        notes: what the user should know.
    """

    model: Path
    config: dict[str, Any]
    name: str
    tokenizer: Path | None = None
    notes: list[str] = field(default_factory=list)


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Read the model, write it to the store as the next version, and report."""
    source = Path(args.source)
    with tempfile.TemporaryDirectory() as scratch:
        found = _reader(source)(source, Path(scratch))
        graph = engine.load(found.model)
        _complete(found, graph)
        name = args.name or found.name
        if not is_model_name(name):
            raise UsageError(f"--name: found '{cut(name)}', expected {NAME_RULE}")
        folder = _placed(found, models.local_store(settings), name)
    lines = [f"{folder}: task {found.config.get('task', 'tensor')}, {len(graph.operators)} operators"]
    lines += [f"{port.name} {port.spec}" for port in (*graph.inputs, *graph.outputs)]
    lines += [f"note: {note}" for note in found.notes]
    sys.stdout.write("\n".join([*map(printable, lines), ""]))
    return 0


def _reader(source: Path) -> Callable[[Path, Path], Found]:
    if source.is_dir():
        return read_hugging_face
    if not source.exists():
        raise UsageError(f"{source.name}: not found")
    if source.suffix == ".mar":
        return read_torchserve
    if source.suffix == ".onnx":
        return read_onnx
    raise UsageError(f"{source.name}: expected a folder of Hugging Face, a .mar archive or an .onnx file")


def read_onnx(source: Path, scratch: Path) -> Found:
    """Read an ONNX file, such as one that Ultralytics exported; its labels stay in the file."""
    return Found(model=source, config={}, name=_name(source.stem))


def read_hugging_face(source: Path, scratch: Path) -> Found:
    """Read a folder of transformers, sentence-transformers or Optimum with an ONNX file.

    Raises:
        ConfigError: a file is missing or cannot be read.
    """
    onnx = next((path for each in _ONNX_FOLDERS if (path := source / each / ONNX).exists()), None)
    if onnx is None:
        raise ConfigError(
            f"{source.name}: found no {ONNX}, expected one in the folder or in onnx/; export it with"
            " optimum-cli export onnx"
        )
    description = _json(source / "config.json")
    tokenizer = source / TOKENIZER
    architecture = str((description.get("architectures") or [""])[0])
    is_sentence_model = (source / "modules.json").exists()
    endings = [task for ending, task in _TASKS.items() if architecture.endswith(ending)]
    task = "embedding" if is_sentence_model else (endings or ["embedding" if tokenizer.exists() else "tensor"])[0]
    labels = _labels(description.get("id2label"))
    if task == "text-classification" and len(labels) == 1:
        task = "rerank"
    config: dict[str, Any] = {"task": task}
    if labels and task in ("classification", "text-classification", "token-classification"):
        config["labels"] = labels
    if tokenizer.exists():
        config["text"] = {"max_tokens": _max_tokens(source, description)}
    if task == "embedding":
        config["embedding"] = _pooling(source, is_sentence_model)
    if task == "fill-mask":
        config["fill-mask"] = {"mask": _mask(source)}
    if (source / "preprocessor_config.json").exists():
        config["preprocess"] = _preprocess(_json(source / "preprocessor_config.json"))
    found = Found(model=onnx, config=config, name=_name(source.resolve().name))
    found.tokenizer = tokenizer if tokenizer.exists() else None
    return found


def read_torchserve(source: Path, scratch: Path) -> Found:
    """Read a .mar archive that holds an ONNX file.

    Raises:
        ConfigError: it is no such archive, or it holds a PyTorch model, which must be exported first.
    """
    try:
        archive = zipfile.ZipFile(source)
    except zipfile.BadZipFile as exc:
        raise ConfigError(f"{source.name}: not a zip archive: {exc}") from None
    with archive:
        members = archive.namelist()
        if "MAR-INF/MANIFEST.json" not in members:
            raise ConfigError(f"{source.name}: found no MAR-INF/MANIFEST.json, expected an archive of TorchServe")
        model = _member(archive, "MAR-INF/MANIFEST.json").get("model", {})
        serialized, handler = str(model.get("serializedFile", "")), str(model.get("handler", ""))
        if not serialized.endswith(".onnx") or serialized not in members:
            raise ConfigError(
                f"{source.name}: found '{cut(serialized) or 'no serialized file'}', expected an ONNX file;"
                " a .mar file is a zip archive: unpack it, and run pnnx-serve export on the model in it"
            )
        path = scratch / ONNX
        with archive.open(serialized) as packed, path.open("wb") as file:
            shutil.copyfileobj(packed, file)
        labels = _member(archive, "index_to_name.json") if "index_to_name.json" in members else {}
    name = Path(handler).name.partition(":")[0].removesuffix(".py")
    found = Found(model=path, config={}, name=_name(str(model.get("modelName") or source.stem)))
    if name in _HANDLERS:
        found.config["task"] = _HANDLERS[name]
    else:
        found.notes.append(f"handler '{cut(handler)}' is not imported: what it does belongs in the client")
    names = [each[-1] if isinstance(each, list) else each for each in _in_order(labels)]
    if names and name in _HANDLERS:
        found.config["labels"] = [str(each) for each in names]
    if name == "image_classifier":
        found.config["preprocess"] = {"size": [224, 224], "resize": "crop", "crop_fraction": 0.875, **_IMAGENET}
    return found


def _complete(found: Found, graph: engine.RuntimeGraph) -> None:
    """Add what only the graph tells: outputs of sentence models, and the decoder of Ultralytics' models."""
    names = [port.name for port in graph.outputs]
    if found.config.get("task") == "embedding" and "sentence_embedding" in names:
        found.config["embedding"]["output"] = "sentence_embedding"
    if "task" in found.config or len(graph.labels) < 1 or len(graph.inputs) != 1:
        return
    image, output = graph.inputs[0].spec, graph.outputs[0].spec
    if image is None or output is None or len(image.shape) != 4 or image.shape[1] != 3:
        return
    classes = len(graph.labels)
    if len(output.shape) == 2 and output.shape[1] == classes:
        found.config["task"] = "classification"
    elif len(output.shape) == 3 and classes + 4 == output.shape[1]:
        found.config |= {"task": "detection", "detection": {"decoder": "yolov8"}}
    elif len(output.shape) == 3 and classes + 5 == output.shape[2]:
        found.config |= {"task": "detection", "detection": {"decoder": "yolov5"}}
    if found.config.get("task") == "detection":
        sizes = [size if isinstance(size, int) else 640 for size in image.shape[2:]]
        found.config["preprocess"] = {"size": sizes, "resize": "letterbox"}


def _placed(found: Found, store: Path, name: str) -> Path:
    """Copy the files into the store as the next version; it appears whole or not at all."""
    parse_config(json.dumps(found.config))  # so that what is written is served
    if (store / name / CONFIG).exists():
        found.notes.append(f"{name}/{CONFIG} was there and stays as it is")
    data = [found.model.with_name(each) for each in ONNX_DATA]
    files = {ONNX: found.model, **{each.name: each for each in data if each.exists()}}
    if found.tokenizer is not None:
        files[TOKENIZER] = found.tokenizer
    return exporter.install(files, store, name, toml_text(found.config))


def toml_text(config: Mapping[str, Any]) -> str:
    """Return a config.toml; values are written as JSON, of which TOML's are a superset here."""
    keys = [f"{key} = {json.dumps(value)}" for key, value in config.items() if not isinstance(value, dict)]
    lines = [*keys]
    for name, table in config.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        value = json.loads(read_text(path, _MAX_JSON))
    except (ValueError, RecursionError, ConfigError) as exc:
        raise ConfigError(f"{path.name}: cannot be read: {cut(str(exc))}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{path.name}: found {type(value).__name__}, expected an object")
    return value


def _member(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    if archive.getinfo(name).file_size > _MAX_JSON:
        raise ConfigError(f"{name}: found {archive.getinfo(name).file_size:,} bytes, expected at most {_MAX_JSON:,}")
    try:
        value = json.loads(archive.read(name))
    except (ValueError, RecursionError, zipfile.BadZipFile) as exc:
        raise ConfigError(f"{name}: cannot be read: {cut(str(exc))}") from None
    return value if isinstance(value, dict) else {}


def _name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", text).lstrip("._-") or "model"


def _in_order(table: Mapping[str, Any]) -> list[Any]:
    """Return the values of keys 0, 1, 2, ...; none if the keys are others."""
    keys = [str(index) for index in range(len(table))]
    return [table[key] for key in keys] if set(keys) == set(table) else []


def _labels(table: object) -> list[str]:
    return [str(label) for label in _in_order(table)] if isinstance(table, dict) else []


def _max_tokens(source: Path, description: Mapping[str, Any]) -> int:
    """Return the most tokens of a text: the least of what the files tell, or 512."""
    known = [_json(source / "sentence_bert_config.json").get("max_seq_length")]
    if known == [None]:
        positions = description.get("max_position_embeddings")
        # RoBERTa and its kin begin to count positions behind the padding token.
        is_shifted = str(description.get("model_type")) in ("roberta", "xlm-roberta", "camembert", "mpnet")
        known = [positions - 2 if is_shifted and isinstance(positions, int) else positions]
        known.append(_json(source / "tokenizer_config.json").get("model_max_length"))
    limits = [int(each) for each in known if isinstance(each, (int, float)) and 2 <= each < _NO_LIMIT]
    return min(limits, default=512)


def _pooling(source: Path, is_sentence_model: bool) -> dict[str, Any]:
    table = _json(source / "1_Pooling" / "config.json")
    modes = {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}
    used = [
        key.removeprefix("pooling_mode_") for key, value in table.items() if key.startswith("pooling_mode_") and value
    ]
    if any(mode not in modes for mode in used) or len(used) > 1:
        raise ConfigError(
            f"1_Pooling/config.json: found pooling by {', '.join(map(cut, used))}, expected mean, cls or last"
        )
    normalises = True
    if is_sentence_model:
        normalises = "Normalize" in read_text(source / "modules.json", _MAX_JSON)
    return {"pooling": modes[used[0]] if used else "mean", "normalise": normalises}


def _mask(source: Path) -> str:
    token = _json(source / "special_tokens_map.json").get("mask_token") or "[MASK]"
    return str(token.get("content", "[MASK]") if isinstance(token, dict) else token)


def _preprocess(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table [preprocess] for an image processor of transformers."""
    found: dict[str, Any] = {}
    size, crop = _size(table.get("size")), _size(table.get("crop_size"))
    if table.get("do_center_crop") and crop is not None:
        shorter = size[0] if size is not None else crop[0]
        found |= {"size": crop, "resize": "crop", "crop_fraction": round(crop[0] / shorter, 6)}
    elif size is not None:
        found |= {"size": size, "resize": "stretch"}
    if table.get("resample") in _INTERPOLATIONS:
        found["interpolation"] = _INTERPOLATIONS[table["resample"]]
    found["scale"] = float(table.get("rescale_factor", 1 / 255)) if table.get("do_rescale", True) else 1.0
    if table.get("do_normalize", True) and "image_mean" in table and "image_std" in table:
        found |= {"mean": table["image_mean"], "std": table["image_std"]}
    return found


def _size(value: object) -> list[int] | None:
    """Return height and width of a size in any of transformers' forms."""
    if isinstance(value, dict):
        edge = value.get("shortest_edge")
        height, width = value.get("height", edge), value.get("width", edge)
    else:
        height = width = value
    return [height, width] if isinstance(height, int) and isinstance(width, int) else None
