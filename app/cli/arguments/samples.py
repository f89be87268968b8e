"""Samples for quantising: pictures, arrays or recorded requests, with or without labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

import engine
from app.cli.arguments import files
from app.cli.arguments.options import UsageError
from app.messages import cut, quoted
from app.models.folder.layout import is_version
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.models.recorder import recorded_files, recorded_folder
from app.models.request import InferRequest
from app.settings import Settings
from app.signature import Inputs

Read = Callable[[], Inputs]


class Samples(Sequence[list[NDArray[Any]]]):
    """Inputs of the network, each read and converted when it is asked for, so that one at a time is in memory.

    Attributes:
        labels: index of each sample's class; None without labels.

    Args:
        model: the model that they are converted for.
        items: functions that return the inputs of a sample by name, pictures still encoded.
    """

    def __init__(self, model: Model, items: Sequence[Read], labels: Sequence[int] | None = None) -> None:
        self.labels = labels
        self._model = model
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        inputs = self._items[index]()
        return list(self._model.prepare(InferRequest(decode=lambda _: inputs, parameters={})).tensors.values())


def read_samples(path: str, model: Model, settings: Settings) -> Samples:
    """Return the samples in a folder of pictures, a folder of such folders for each class, or a file of arrays.

    Raises:
        UsageError: the file does not hold what the model takes, or a label is no class.
    """
    if Path(path).is_dir():
        return _pictures(Path(path), model, settings)
    inputs, labels = files.read_labelled(path, model.signature, settings)
    arrays = {name: np.asarray(value) for name, value in inputs.items()}
    items = {port.name: _rows(arrays[port.name], port) for port in model.signature.inputs}
    counts = {name: len(each) for name, each in items.items()}
    if len(set(counts.values())) != 1:
        raise UsageError(f"--samples: found {counts} items, expected the same number for each input")
    rows = [dict(zip(items, each, strict=True)) for each in zip(*items.values(), strict=True)]
    classes = None if labels is None else _classes(labels, len(rows), model.labels)
    return Samples(model, [partial(dict, row) for row in rows], classes)


def read_recorded(
    count: int, found: ModelFiles, version: VersionFiles, model: Model, settings: Settings, copy: IO[bytes]
) -> Samples:
    """Return the items of the last requests that a server recorded for a version, or for one quantised from it.

    Args:
        count: number of requests.
        found, version: the model and the version.
        model: the version, loaded.
        settings: where the requests are.
        copy: file that they are copied to, and read from when they are needed: a server removes its files.

    Raises:
        UsageError: none are recorded.
    """
    folder = recorded_folder(settings, found.name, version.number)
    numbers = [int(path.name) for path in folder.parent.glob("*") if is_version(path.name)]
    later = [folder.with_name(str(number)) for number in numbers if number >= version.number]
    paths = sorted((path for each in later for path in recorded_files(each)), key=lambda path: path.name)
    items: list[Read] = []
    for path in paths[-count:]:
        with suppress(FileNotFoundError):  # a running server has removed it since
            items += [_stored(row, copy) for row in _recorded_rows(path, model, settings)]
    if not items:
        raise UsageError(
            f"--recorded: found no requests in '{folder}', expected those of a server with record_requests"
        )
    return Samples(model, items)


def _stored(row: Inputs, file: IO[bytes]) -> Read:
    """Append the inputs of a sample to a file, and return a function that reads them."""
    start = file.tell()
    for value in row.values():
        np.save(file, np.asarray(value))
    return partial(_load, file, start, tuple(row))


def _load(file: IO[bytes], start: int, names: Sequence[str]) -> Inputs:
    file.seek(start)
    return {name: np.load(file) for name in names}


def _pictures(folder: Path, model: Model, settings: Settings) -> Samples:
    """Return the pictures of a folder; if it has none, those of its folders, which are named after classes."""

    def reads(paths: Sequence[str]) -> list[Read]:
        return [partial(files.read_inputs, [], [path], model.signature, settings) for path in paths]

    inside = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if not inside or any(files.is_picture(path) for path in folder.iterdir()):
        return Samples(model, reads(files.find_pictures([str(folder)])))
    items: list[Read] = []
    labels: list[int] = []
    for path in inside:
        index = _class_index(path.name, model.labels)
        items += reads(files.find_pictures([str(path)]))
        labels += [index] * (len(items) - len(labels))
    return Samples(model, items, labels)


def _recorded_rows(path: Path, model: Model, settings: Settings) -> list[Inputs]:
    arrays = files.read_archive(str(path), settings)
    ports = model.signature.inputs
    if arrays.keys() != {port.name for port in ports}:
        raise UsageError(f"'{path}': found inputs {quoted(arrays)}, expected {quoted(port.name for port in ports)}")
    if all(_is_whole(arrays[port.name], port) for port in ports):
        return [dict(arrays)]
    rows = [_rows(arrays[port.name], port) for port in ports]
    return [dict(zip(arrays, each, strict=True)) for each in zip(*rows, strict=True)]


def _is_whole(array: NDArray[Any], port: engine.Port) -> bool:
    """Return whether an array is the input of one run, whatever its batch axis."""
    known = array.shape if port.spec is None else port.spec.shape
    return len(known) == array.ndim and all(
        size in (None, found) for size, found in zip(known, array.shape, strict=True)
    )


def _rows(array: NDArray[Any], port: engine.Port) -> list[NDArray[Any]]:
    """Return the items of an array: along a leading axis of its own, or along the batch axis of the input."""
    shape = () if port.spec is None else port.spec.shape
    if array.ndim == len(shape) + 1:
        return list(array)
    size = shape[0] if shape and isinstance(shape[0], int) else 1
    if array.ndim != len(shape) or not shape or len(array) % size:
        found, expected = list(array.shape), f"items of {port.spec}"
        raise UsageError(f"--samples: found shape {found} for '{port.name}', expected {expected}")
    return [array[start : start + size] for start in range(0, len(array), size)]


def _classes(labels: NDArray[Any], count: int, names: Sequence[str] | None) -> list[int]:
    """Return the indices of the classes in an array of them."""
    if labels.shape != (count,) or labels.dtype.kind not in "iu":
        found = f"{list(labels.shape)} {labels.dtype}"
        raise UsageError(f"--samples: found labels {found}, expected the index of a class for each of {count} items")
    return [_known_class(int(label), names) for label in labels]


def _class_index(label: str, names: Sequence[str] | None) -> int:
    if names is not None and label in names:
        return names.index(label)
    if not label.isdecimal():
        expected = "the index of a class" if names is None else f"its index or one of {cut(quoted(names), 200)}"
        raise UsageError(f"--samples: found the class '{cut(label)}', expected {expected}")
    return _known_class(int(label), names)


def _known_class(index: int, names: Sequence[str] | None) -> int:
    if names is not None and not 0 <= index < len(names):
        raise UsageError(f"--samples: found the class {index}, expected 0 to {len(names) - 1}")
    return index
