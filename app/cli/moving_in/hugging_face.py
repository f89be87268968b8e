"""Folders of transformers, sentence-transformers and Optimum: an ONNX file, or weights to export to one."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import exporter
from app.cli.arguments.options import UsageError
from app.cli.moving_in.found import Found, Request, in_order, model_name, read_json
from app.cli.moving_in.onnx_file import onnx_files
from app.cli.moving_in.sentence_models import MODULES, SentenceModel, read_sentence_model
from app.errors import ConfigError
from app.messages import cut, quoted
from app.models.folder.layout import ONNX
from app.text.text import TOKENIZER

# Folders in which Hugging Face's tools put ONNX files.
_ONNX_FOLDERS: Final = ("", "onnx")
_WEIGHTS: Final = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
_NO_LIMIT: Final = 10**6
_INTERPOLATIONS: Final = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box"}
# Tasks by the ending of the architecture's name in Hugging Face's config.json.
_TASKS: Final = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForImageClassification": "classification",
}
_PACKAGES: Final = ("torch", "transformers", "onnx")


def read(request: Request) -> Found:
    """Return the model of a folder; without an ONNX file, PyTorch exports its weights to one.

    Raises:
        ConfigError: a file is missing or cannot be read, or the model has no counterpart here.
        ExportError: PyTorch cannot export the weights.
    """
    source = request.source
    description = read_json(source / "config.json")
    architecture = str((description.get("architectures") or [""])[0])
    is_sentence_model = (source / MODULES).exists()
    has_tokenizer = (source / TOKENIZER).exists()
    task = _task(architecture, is_sentence_model, has_tokenizer)
    labels = [str(label) for label in in_order(description.get("id2label"))]
    if task == "text-classification" and len(labels) == 1:
        task = "rerank"
    sentence_model = read_sentence_model(source) if task == "embedding" else None
    config: dict[str, Any] = {"task": task}
    if labels and task in ("classification", "text-classification", "token-classification"):
        config["labels"] = labels
    if has_tokenizer:
        config["text"] = {"max_tokens": _max_tokens(source, description)}
    if sentence_model is not None:
        config["embedding"] = sentence_model.table
    if task == "fill-mask":
        config["fill-mask"] = {"mask": _mask(source)}
    if (source / "preprocessor_config.json").exists():
        config["preprocess"] = _preprocess(read_json(source / "preprocessor_config.json"))
    found = Found(files={}, config=config, name=model_name(source.resolve().name))
    found.files = onnx_files(_onnx(request) or _exported(request, architecture, found))
    if sentence_model is not None:
        _add_sentence_model(found, sentence_model, request.scratch)
    if has_tokenizer:
        found.files[TOKENIZER] = source / TOKENIZER
    elif task != "tensor" and task != "classification":
        raise ConfigError(f"{source.name}: found no {TOKENIZER}, expected one, because the model takes texts")
    return found


def _task(architecture: str, is_sentence_model: bool, has_tokenizer: bool) -> str:
    """Return the task that the architecture names, embedding for other models of texts, else tensor."""
    if is_sentence_model:
        return "embedding"
    endings = [task for ending, task in _TASKS.items() if architecture.endswith(ending)]
    return endings[0] if endings else "embedding" if has_tokenizer else "tensor"


def _onnx(request: Request) -> Path | None:
    """Return the ONNX file of a folder: the named one, model.onnx, or the only one; None if there is none.

    Raises:
        UsageError: there are several and none is named, or there is none of that name.
    """
    folders = [request.source / each for each in _ONNX_FOLDERS]
    files = [path for folder in folders for path in sorted(folder.glob("*.onnx"))]
    wanted = [path for path in files if path.name == (request.file or ONNX)]
    if wanted or (len(files) == 1 and request.file is None):
        return (wanted or files)[0]
    if files or request.file is not None:
        names = quoted([path.name for path in files]) or "an ONNX file in the folder"
        raise UsageError(f"--file: found '{cut(request.file or '')}', expected one of {names}")
    return None


def _exported(request: Request, architecture: str, found: Found) -> Path:
    """Return the ONNX file that PyTorch exported from the weights of a folder.

    Raises:
        ConfigError: there are no weights, or packages are missing.
        ExportError: PyTorch cannot export the model, or the results differ.
    """
    source = request.source
    weights = next((name for name in _WEIGHTS if (source / name).exists()), None)
    if weights is None:
        raise ConfigError(
            f"{source.name}: found no {ONNX} and no {_WEIGHTS[0]}, expected one of them in the folder, or the first in"
            " onnx/"
        )
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"{source.name}: found {weights} but no {ONNX}; exporting it needs pip install {' '.join(missing)}"
        )
    path = request.scratch / ONNX
    exporter.export_transformer(source, architecture, path, has_tokens=(source / TOKENIZER).exists())
    found.notes.append(f"{weights} was exported to ONNX; the answers equal those of transformers")
    return path


def _add_sentence_model(found: Found, model: SentenceModel, scratch: Path) -> None:
    """Append dense layers to the graph, unless it has them, and tell what the user should know.

    Raises:
        ExportError: the layers do not fit the graph.
    """
    found.notes += model.notes
    if model.layers:
        data = {name: path for name, path in found.files.items() if name != ONNX}
        path = exporter.append_dense(found.files[ONNX], model.layers, model.pooling, scratch / "sentence_model.onnx")
        found.files = {ONNX: path} if path != found.files[ONNX] else {ONNX: path, **data}


def _max_tokens(source: Path, description: Mapping[str, Any]) -> int:
    """Return the most tokens of a text: the least of what the files tell, or 512."""
    known = [read_json(source / "sentence_bert_config.json").get("max_seq_length")]
    if known == [None]:
        positions = description.get("max_position_embeddings")
        # RoBERTa and its kin begin to count positions behind the padding token.
        is_shifted = str(description.get("model_type")) in ("roberta", "xlm-roberta", "camembert", "mpnet")
        known = [positions - 2 if is_shifted and isinstance(positions, int) else positions]
        known.append(read_json(source / "tokenizer_config.json").get("model_max_length"))
    limits = [int(each) for each in known if isinstance(each, (int, float)) and 2 <= each < _NO_LIMIT]
    return min(limits, default=512)


def _mask(source: Path) -> str:
    token = read_json(source / "special_tokens_map.json").get("mask_token") or "[MASK]"
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
