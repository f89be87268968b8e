"""ONNX files: what their metadata and their graph tell, as those of Ultralytics and of skl2onnx."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Final

import engine
from app.cli.moving_in.found import Found, Request, model_name
from app.errors import ConfigError
from app.messages import cut
from app.models.folder.layout import ONNX, ONNX_DATA

# Size of the pictures of a YOLO network that tells none.
_YOLO_SIZE: Final = 640
_MAX_METADATA: Final = 2**20
# Preprocessing of PP-OCR, which is not in the file.
_TEXT_LINES: Final[dict[str, Any]] = {
    "size": [48, 0], "resize": "letterbox", "min_side": 320, "fill": 127.5, "color": "bgr", "mean": [0.5], "std": [0.5]
}  # fmt: skip


def read(request: Request) -> Found:
    """Return an ONNX file; its labels stay in the file."""
    source = request.source
    return Found(files=onnx_files(source), config={}, name=model_name(source.stem))


def onnx_files(model: Path) -> dict[str, Path]:
    """Return an ONNX file and the files of its tensors by their names in the store."""
    return {ONNX: model, **{name: path for name in onnx_data(model.name) if (path := model.with_name(name)).exists()}}


def onnx_data(name: str) -> list[str]:
    """Return the names that files with tensors of an ONNX file may have."""
    return [*ONNX_DATA, f"{name}.data", f"{name}_data"]


def complete(found: Found, graph: engine.RuntimeGraph) -> None:
    """Add what only the graph tells: outputs of sentence models, the task of Ultralytics' models.

    Raises:
        ConfigError: the metadata tell of a task that is not supported.
    """
    names = [port.name for port in graph.outputs]
    if found.config.get("task") == "embedding" and "sentence_embedding" in names:
        found.config["embedding"]["output"] = "sentence_embedding"
    if "task" in found.config:
        return
    metadata = _metadata(found.files[ONNX]) if ONNX in found.files else {}
    if metadata.get("producer") == "skl2onnx":
        found.notes.append("the pipeline takes and returns tensors; labels are in its output")
    elif "character" in metadata and graph.labels:
        found.config |= {"task": "text-recognition", "preprocess": _TEXT_LINES}
    elif len(graph.labels) >= 1 and len(graph.inputs) == 1:
        _complete_ultralytics(found, graph, metadata)


def _metadata(path: Path) -> dict[str, str]:
    """Return the metadata of a file, and its producer."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    found = {each.key: each.value for each in model.metadata_props if len(each.value) < _MAX_METADATA}
    return {**found, "producer": model.producer_name}


def _complete_ultralytics(found: Found, graph: engine.RuntimeGraph, metadata: dict[str, str]) -> None:
    """Add task and preprocessing: the task from the metadata or the shape of the output, sizes from either."""
    image, output = graph.inputs[0].spec, graph.outputs[0].spec
    if image is None or output is None or len(image.shape) != 4 or image.shape[1] != 3:
        return
    task, classes = metadata.get("task", ""), len(graph.labels)
    if task not in ("", "detect", "classify", "segment", "pose", "obb"):
        found.notes.append(f"metadata: task '{cut(task)}' is not supported; the model returns its outputs as tensors")
        return
    sizes = _sizes(image.shape[2:], metadata)
    if len(output.shape) == 2 and task != "detect" and output.shape[1] in (classes, None):
        found.config["task"] = "classification"
        if task == "classify":  # trained and run on pixels from 0 to 1, the shorter side resized
            found.config["preprocess"] = {"size": sizes, "resize": "crop"}
        return
    more, table = _columns(graph, metadata, task)
    decoder = _decoder(output.shape, classes, more, task)
    if decoder is not None:
        if task == "obb" and decoder == "yolov10":
            table["box_format"] = "cxcywh"
        found.config |= {"task": "detection", "detection": {"decoder": decoder, **table}}
        found.config["preprocess"] = {"size": sizes, "resize": "letterbox"}
    elif task not in ("", "classify"):
        found.notes.append(
            f"output '{graph.outputs[0].name}': found shape {list(output.shape)}, expected"
            f" (N, {4 + classes + more}, anchors) or (N, boxes, {6 + more}); the model returns its outputs as tensors"
        )


def _columns(graph: engine.RuntimeGraph, metadata: dict[str, str], task: str) -> tuple[int, dict[str, Any]]:
    """Return the number of columns beside boxes and classes, and the keys that tell of them.

    Raises:
        ConfigError: the metadata do not have the shape of key points.
    """
    if task == "pose":
        return _key_points(metadata)
    return (1, {"rotated": True}) if task == "obb" else _masks(graph)


def _masks(graph: engine.RuntimeGraph) -> tuple[int, dict[str, Any]]:
    """Return the number of prototypes of masks and the key that names their output; 0 if there is no such output."""
    for port in graph.outputs[1:]:
        if port.spec is not None and len(port.spec.shape) == 4 and isinstance(port.spec.shape[1], int):
            return port.spec.shape[1], {"prototypes": port.name}
    return 0, {}


def _key_points(metadata: dict[str, str]) -> tuple[int, dict[str, Any]]:
    """Return the number of values of all key points and the key with their shape.

    Raises:
        ConfigError: the metadata do not have their number and that of the values of each.
    """
    told = metadata.get("kpt_shape", "")
    try:
        count, values = (int(size) for size in ast.literal_eval(told))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ConfigError(f"metadata: found kpt_shape '{cut(told)}', expected two numbers") from None
    return count * values, {"keypoints": [count, values]}


def _decoder(shape: tuple[Any, ...], classes: int, more: int, task: str) -> str | None:
    """Return the decoder for the shape of an output; only files of YOLOv5's own export tell no task."""
    if len(shape) != 3:
        return None
    if task and shape[2] == 6 + more:
        return "yolov10"
    if shape[1] == 4 + classes + more:
        return "yolov8"
    return "yolov5" if not task and shape[2] == 5 + classes + more else None


def _sizes(shape: tuple[Any, ...], metadata: dict[str, str]) -> list[int]:
    """Return height and width: those of the input, else of the metadata, multiples of the stride.

    Raises:
        ConfigError: the metadata have other sizes than numbers.
    """
    if all(isinstance(size, int) for size in shape):
        return list(shape)
    try:
        told = ast.literal_eval(metadata.get("imgsz", str(_YOLO_SIZE)))
        sizes = [int(size) for size in (told if isinstance(told, list | tuple) else (told, told))]
        stride = max(int(float(metadata.get("stride", "1"))), 1)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ConfigError(
            f"metadata: found imgsz '{cut(metadata.get('imgsz', ''))}' and stride '{cut(metadata.get('stride', ''))}',"
            " expected numbers"
        ) from None
    sizes = [-(-size // stride) * stride for size in (sizes * 2)[:2]]
    return [size if isinstance(size, int) else told for size, told in zip(shape, sizes, strict=True)]
