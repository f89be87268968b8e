"""Archives of TorchServe (.mar): an ONNX file, a TorchScript file, or weights with the Python file of their model."""

from __future__ import annotations

import shutil
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import exporter
from app.cli.arguments.options import UsageError
from app.cli.moving_in.found import MAX_JSON, Found, Request, in_order, model_name, parse_object
from app.cli.moving_in.onnx_file import onnx_data, onnx_files
from app.errors import ConfigError
from app.messages import cut
from app.models.folder.layout import BIN, PARAM
from app.progress import progress

_MANIFEST: Final = "MAR-INF/MANIFEST.json"
_LABELS: Final = "index_to_name.json"
_HANDLERS: Final = {
    "image_classifier": "classification",
    "object_detector": "detection",
    "image_segmenter": "segmentation",
}
# Handlers whose preprocessing of texts has no counterpart here.
_TEXT_HANDLERS: Final = ("text_classifier", "text_handler")
# What the handlers for pictures give to the model.
_PICTURE: Final = "1,3,224,224"
_IMAGENET: Final = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}


def read(request: Request) -> Found:
    """Return the model of a .mar archive.

    Raises:
        ConfigError: it is no such archive, or its model cannot be imported.
        UsageError: a flag is missing.
        ExportError: PyTorch's model cannot be exported.
    """
    try:
        archive = zipfile.ZipFile(request.source)
    except (zipfile.BadZipFile, NotImplementedError) as exc:
        raise ConfigError(f"{request.source.name}: not a zip archive: {exc}") from None
    with archive:
        members = archive.namelist()
        if _MANIFEST not in members:
            raise ConfigError(f"{request.source.name}: found no {_MANIFEST}, expected an archive of TorchServe")
        model = _object(archive, _MANIFEST).get("model")
        if not isinstance(model, dict):
            raise ConfigError(f'{_MANIFEST}: expected an object "model"')
        handler = Path(str(model.get("handler", ""))).name.partition(":")[0].removesuffix(".py")
        if handler in _TEXT_HANDLERS:
            raise ConfigError(
                f"{request.source.name}: found handler '{handler}', whose vocabulary is not supported; import the"
                " folder of Hugging Face that the model comes from"
            )
        files = _files(archive, model, request, handler)
        labels = _object(archive, _LABELS) if _LABELS in members else {}
    found = Found(files=files, config={}, name=model_name(str(model.get("modelName") or request.source.stem)))
    _configure(found, handler, labels)
    return found


def _files(archive: zipfile.ZipFile, model: dict[str, Any], request: Request, handler: str) -> dict[str, Path]:
    """Return the files of the model for the store."""
    serialized, source = str(model.get("serializedFile") or ""), str(model.get("modelFile") or "")
    for name in filter(None, (serialized, source)):
        if name not in archive.namelist():
            raise ConfigError(f"{request.source.name}: found no '{cut(name)}', which {_MANIFEST} names")
    if serialized.endswith(".onnx") and not source:
        for name in onnx_data(serialized):
            if name in archive.namelist():
                _extract(archive, name, request.scratch / name)
        return onnx_files(_extract(archive, serialized, request.scratch / Path(serialized).name))
    if not serialized.endswith((".pt", ".pth", ".pts", ".bin")):
        raise ConfigError(
            f"{request.source.name}: found '{cut(serialized) or 'no serialized file'}', expected an ONNX file, a"
            " TorchScript file, or weights with a model file"
        )
    shapes = request.shapes or ((_PICTURE,) if handler in _HANDLERS else ())
    if not shapes:
        raise UsageError(
            f"--shape: missing, expected once for each input of the model: handler '{cut(handler)}' does not tell it"
        )
    weights = _extract(archive, serialized, request.scratch / "weights.pt")
    return _pair(weights, _code(archive, source, request) if source else None, shapes, request.scratch)


def _code(archive: zipfile.ZipFile, source: str, request: Request) -> Path:
    """Extract the Python files at the top of the archive; return the one of the model.

    Raises:
        UsageError: the user did not allow it to run.
    """
    if not request.may_run_code:
        raise UsageError(
            f"--run-code: missing, expected because '{cut(source)}' is Python code that must run to make the model;"
            " read it before"
        )
    folder = request.scratch / "code"
    folder.mkdir()
    for name in archive.namelist():
        if name.endswith(".py") and "/" not in name and "\\" not in name:
            _extract(archive, name, folder / name)
    return folder / Path(source).name


def _pair(weights: Path, code: Path | None, shapes: tuple[str, ...], scratch: Path) -> dict[str, Path]:
    """Export a TorchScript file, or a model with its weights; return the pair."""
    missing = [name for name in ("torch", "pnnx") if find_spec(name) is None]
    if missing:
        raise ConfigError(f"a PyTorch model is exported by torch and pnnx: pip install {' '.join(missing)}")
    with progress("loading the model"):
        model = exporter.load_source(str(weights if code is None else code))
        if code is not None:
            exporter.load_weights(model, weights)
    folder = scratch / "pair"
    exporter.export(model, exporter.parse_inputs(list(shapes), []), folder, progress=progress)
    return {name: folder / name for name in (PARAM, BIN)}


def _configure(found: Found, handler: str, labels: dict[str, Any]) -> None:
    """Add what the handler does."""
    if handler not in _HANDLERS:
        found.notes.append(f"handler '{cut(handler)}' is not imported: what it does belongs in the client")
        return
    found.config["task"] = _HANDLERS[handler]
    names = [each[-1] if isinstance(each, list) and each else each for each in in_order(labels)]
    if names:
        found.config["labels"] = [str(each) for each in names]
    if handler == "image_classifier":
        found.config["preprocess"] = {"size": [224, 224], "resize": "crop", "crop_fraction": 0.875, **_IMAGENET}
    if handler == "image_segmenter":
        found.config["preprocess"] = {"size": [224, 224], "resize": "crop", "crop_fraction": 0.875, **_IMAGENET}


def _extract(archive: zipfile.ZipFile, name: str, path: Path) -> Path:
    """Write a member to a file.

    Raises:
        ConfigError: it is larger than the disk has room, damaged or encrypted.
    """
    size, free = archive.getinfo(name).file_size, shutil.disk_usage(path.parent).free
    if size > free:
        raise ConfigError(f"'{cut(name)}': found {size:,} bytes, expected at most {free:,}, the free space of the disk")
    try:
        with archive.open(name) as packed, path.open("wb") as file:
            shutil.copyfileobj(packed, file)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as exc:
        raise ConfigError(f"'{cut(name)}': cannot be unpacked: {cut(str(exc))}") from None
    return path


def _object(archive: zipfile.ZipFile, name: str) -> dict[str, Any]:
    size = archive.getinfo(name).file_size
    if size > MAX_JSON:
        raise ConfigError(f"{name}: found {size:,} bytes, expected at most {MAX_JSON:,}")
    try:
        return parse_object(archive.read(name), name)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as exc:
        raise ConfigError(f"{name}: cannot be unpacked: {cut(str(exc))}") from None
