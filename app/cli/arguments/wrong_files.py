"""What is said of a file or folder that is no model, where one was named: what it is, and what to do with it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

import engine

_HEAD: Final = 64
_EXPORT: Final = "turn it into a pair with 'pnnx-serve export {} --shape ...'"


def advice(path: Path) -> str | None:
    """``'net.onnx' is an ONNX model: turn it into a pair with ...``; None where there is nothing of that name."""
    try:
        found = _folder(path) if path.is_dir() else _file(path) if path.is_file() else None
    except OSError:
        return None
    return found and f"'{path}' is {found}"


def _folder(path: Path) -> str:
    pairs = sorted(each.name for each in path.glob("*.param"))
    named = f", such as '{path / pairs[0]}'" if pairs else ""
    return f"a folder: name the .pnnx.param file in it{named}, or a model of the store"


def _file(path: Path) -> str:
    with path.open("rb") as file:
        kind = engine.kind_of_file(file.read(_HEAD))
    if kind == "an ONNX model":
        return "an ONNX model: its name has to end in .onnx"
    if zipfile.is_zipfile(path):
        return _archive(path)
    if kind == "the text of a pair":
        return "the text of a pair: its name has to end in .param"
    if kind == "a compressed file":
        return "a compressed file: unpack it first"
    return f"{kind or 'no model'}: a model is a pair, of which the .pnnx.param file is named"


def _archive(path: Path) -> str:
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    if any("/code/" in name for name in names):
        return f"a TorchScript model: {_EXPORT.format(path)}"
    if any(name.endswith("/data.pkl") for name in names):
        return "a file of PyTorch's weights, without the model: export the Python file of the model"
    return "an archive of weights: name the .pnnx.param file beside it"
