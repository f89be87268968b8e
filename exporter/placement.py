"""Installation of a pair in a model store, STORE/NAME/VERSION/, with a config.toml to fill in."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import engine
from app.models.folder.layout import BIN, CONFIG, NAME_RULE, PARAM, is_model_name
from exporter.errors import ExportError

_HEADER: Final = """# {name}: {inputs} -> {outputs}
# Every key is optional; without a task the model takes and returns tensors.
task = "tensor"
"""
_PICTURES: Final = """
# For pictures, remove the line above and say what the network was trained with:
#
# task = "classification"           # or "detection", "segmentation", "image"
# labels = "labels.txt"             # one a line, in the order of the classes
#
# [preprocess]                      # value = (pixel * scale - mean) / std, for each channel
# size = [{height}, {width}]        # height, width
# resize = "crop"                   # or "stretch", "letterbox"
# color = "{color}"
# scale = 0.00392156862745098       # 1 / 255
# mean = [{mean}]
# std = [{std}]
"""


def place(pair: Path, store: Path, name: str, graph: engine.RuntimeGraph, beside: Sequence[str] = ()) -> Path:
    """Copy a pair into a store as the next version of a model; earlier versions stay.

    Args:
        pair: the folder with model.pnnx.param and model.pnnx.bin.
        store: the folder of models; made if missing.
        name: the model's name.
        graph: the pair, loaded; a config.toml is written from its inputs unless there is one.
        beside: names of further files in the folder that belong to the version.

    Returns:
        The version's folder. It appears whole or not at all.

    Raises:
        ExportError: the name is invalid.
        OSError: the store cannot be written.
    """
    if not is_model_name(name):
        raise ExportError("invalid name of a model", found=f"'{name}'", expected=NAME_RULE)
    files = {file: pair / file for file in (PARAM, BIN, *beside)}
    return install(files, store, name, config_text(name, graph))


def install(files: Mapping[str, Path], store: Path, name: str, config: str) -> Path:
    """Copy files into a store as the next version of a model; earlier versions stay.

    Args:
        files: the files by their names in the version's folder.
        store: the folder of models; made if missing.
        name: the model's name, which is valid.
        config: text of its config.toml, written unless there is one.

    Returns:
        The version's folder. It appears whole or not at all.

    Raises:
        OSError: the store cannot be written.
    """
    folder = store / name
    folder.mkdir(parents=True, exist_ok=True)
    # The server ignores names with a leading dot while the copy is made.
    scratch = Path(tempfile.mkdtemp(prefix=".", dir=store))
    try:
        for file, source in files.items():
            shutil.copyfile(source, scratch / file)
        scratch.chmod(0o755)
        if not (folder / CONFIG).exists():
            (folder / CONFIG).write_text(config, encoding="utf-8")
        return scratch.rename(folder / str(_next_version(folder)))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def model_name(source: str) -> str:
    """Return the default name of a model: that of its class or function, or else of its file."""
    _, colon, attribute = source.rpartition(":")
    if colon:
        return re.sub(r"[^a-z0-9._-]", "_", attribute.lower()).lstrip("._-") or "model"
    stem = re.sub(r"\.(py|pt|pth|torchscript)$", "", Path(source).name)
    return re.sub(r"[^A-Za-z0-9._-]", "_", stem).lstrip("._-") or "model"


def config_text(name: str, graph: engine.RuntimeGraph) -> str:
    """Return a config.toml that serves tensors, with picture settings to fill in if the first input may be pictures."""
    inputs = ", ".join(f"{port.name} {port.spec}" for port in graph.inputs)
    outputs = ", ".join(f"{port.name} {port.spec}" for port in graph.outputs)
    text = _HEADER.format(name=name, inputs=inputs, outputs=outputs)
    spec = graph.inputs[0].spec if graph.inputs else None
    if spec is None or len(spec.shape) != 4 or spec.shape[1] not in (1, 3) or spec.dtype.kind != "f":
        return text
    channels, height, width = spec.shape[1:]
    colors, means, deviations = ("rgb", "0.485, 0.456, 0.406", "0.229, 0.224, 0.225")
    if channels == 1:
        colors, means, deviations = ("grey", "0.5", "0.5")
    return text + _PICTURES.format(height=height or 224, width=width or 224, color=colors, mean=means, std=deviations)


def _next_version(folder: Path) -> int:
    numbers = [int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal()]
    return max(numbers, default=0) + 1
