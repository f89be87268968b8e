"""Samples in ``examples/`` of a model's folder, and inputs of a profile."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
from app.errors import ConfigError, InvalidRequestError, NotFoundError
from app.memory.reservation import would_fit
from app.messages import cut, quoted
from app.models.folder.config import check_links
from app.models.folder.repository import ModelFiles
from app.models.model import Model
from app.models.request import InferRequest
from app.models.warmup import fits

TYPES: Final[Mapping[str, str]] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".npy": "application/x-npy",
}
_MOST: Final = 48
_MAX_BYTES: Final = 4 << 20
_SHAPE: Final = re.compile(r"\d{1,10}(,\d{1,10}){0,31}|scalar")


def list_samples(files: ModelFiles) -> list[dict[str, object]]:
    """Return name, type and size of each sample; none for a pair without a folder of its own."""
    inside = [(path, size) for path, size in _found(files) if _is_inside(path, files)]
    return [{"name": path.name, "type": TYPES[path.suffix.lower()], "bytes": size} for path, size in inside]


def read_sample(files: ModelFiles, name: str) -> tuple[bytes, str]:
    """Return the contents and type of a sample.

    Raises:
        NotFoundError: there is no such sample.
    """
    for path, _ in _found(files):
        if path.name == name:
            try:
                check_links(path, files.roots)
                return bytes(engine.read_file(path, _MAX_BYTES)), TYPES[path.suffix.lower()]
            except ConfigError as exc:
                raise NotFoundError(f"model '{files.name}': {exc}") from None
            except engine.EngineError:  # removed meanwhile, or not a file any more
                break
    raise NotFoundError(f"model '{files.name}' has no sample '{cut(name)}'")


def _is_inside(path: Path, files: ModelFiles) -> bool:
    """Return whether a file is inside the model's folder; the size of an outside file must not leak."""
    try:
        check_links(path, files.roots)
    except ConfigError:
        return False
    return True


def _found(files: ModelFiles) -> list[tuple[Path, int]]:
    if files.name != files.folder.name:
        return []
    try:
        paths = sorted(
            path for path in (files.folder / "examples").iterdir() if path.suffix.lower() in TYPES and path.is_file()
        )[:_MOST]
        sizes = [(path, path.stat().st_size) for path in paths]
    except OSError:  # no such folder, or removed meanwhile
        return []
    return [(path, size) for path, size in sizes if size <= _MAX_BYTES]


Read = Callable[[bytes, str], InferRequest]
Measured = tuple[dict[str, NDArray[Any]], str]


def inputs_to_measure(
    model: Model, files: ModelFiles, read: Read, shapes: Sequence[str] = (), sample: str | None = None
) -> Measured:
    """Return inputs and their description.

    Args:
        model: model to run.
        files: files of the model.
        read: converts a sample and its type to a request.
        shapes: shapes such as ``1,3,224,224``, one per input.
        sample: name of a sample; by default the first one if sizes are dynamic.

    Raises:
        InvalidRequestError: a shape does not fit, or sizes are dynamic and nothing is given.
        NotFoundError: there is no such sample.
        ServiceError, EngineError: as for a request.
    """
    if shapes:
        return _zeros(model, shapes), "zeros"
    if sample is None:
        zeros = model.example_inputs()
        if zeros is not None:
            return zeros, "zeros"
        named = list_samples(files)
        if not named:
            raise InvalidRequestError(
                f"profile: {model.missing_example} and has no sample, expected such as shape=1,3,224,224"
            )
        sample = str(named[0]["name"])
    return model.prepare(read(*read_sample(files, sample))).tensors, f"sample {sample}"


def _zeros(model: Model, texts: Sequence[str]) -> dict[str, NDArray[Any]]:
    ports = model.signature.inputs
    if len(texts) != len(ports):
        names = quoted(port.name for port in ports)
        raise InvalidRequestError(f"shape: found {len(texts)}, expected one for each input: {names}")
    specs = []
    for port, text in zip(ports, texts, strict=True):
        if not _SHAPE.fullmatch(text):
            raise InvalidRequestError(f"shape: found '{cut(text)}', expected sizes by comma, such as 1,3,224,224")
        shape = () if text == "scalar" else tuple(map(int, text.split(",")))
        if port.spec is None or not fits(port, shape):
            raise InvalidRequestError(f"shape: found {list(shape)}, which does not fit '{port.name}' ({port.spec})")
        specs.append((port.name, shape, port.spec.dtype))
    would_fit(sum(math.prod(shape) * dtype.itemsize for _, shape, dtype in specs))
    return {name: np.zeros(shape, dtype) for name, shape, dtype in specs}
