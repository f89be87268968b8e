"""``pnnx-serve quantize``: compute layers of a model with int8 where that is faster and accurate enough."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import engine
import exporter
from app.cli.arguments import files, models
from app.cli.arguments.options import UsageError
from app.cli.output import display_name, write_json
from app.messages import printable
from app.models.folder.layout import BIN, PARAM
from app.models.folder.repository import ModelFiles
from app.models.model import Model
from app.models.request import InferRequest
from app.progress import telling
from app.render.formatting import counted, time_text
from app.render.table import aligned
from app.settings import Settings
from app.signature import Inputs
from app.thread_limits import thread_budget

_TITLES: Final = ("precision", "float32", "int8", "SQNR", "error", "layer", "")
_NUMBERS: Final = frozenset({"float32", "int8", "SQNR", "error"})


class Samples(Sequence[list[NDArray[Any]]]):
    """Inputs of the network, each converted when it is asked for, so that one at a time is in memory.

    Args:
        model: the model that they are converted for.
        items: inputs by name, pictures still encoded.
    """

    def __init__(self, model: Model, items: Sequence[Inputs]) -> None:
        self._model = model
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: Any) -> Any:
        inputs = self._items[index]
        return list(self._model.prepare(InferRequest(decode=lambda _: inputs, parameters={})).tensors.values())


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Calibrate, choose, write and report; return 1 if no layer is worth quantising."""
    settings = files.without_limits(settings)
    found, _, model = models.load(args.model, settings)
    samples = Samples(model, _items(args.samples, model, settings))
    store = None if args.output is not None else _store(found, settings)
    with telling(f"quantizing {found.name}") as show:

        def tell(doing: str, done: int, of: int) -> None:
            show(f"{doing} {done + 1} of {of}" if of > 1 else doing)

        threads = thread_budget(settings.threads).threads
        result = engine.quantise(model.session.graph, samples, keep=args.keep, threads=threads, progress=tell)
    folder = _written(result, args.output, store, found.name) if result.quantised_layers else None
    if args.json:
        where = None if folder is None else str(folder)
        write_json({"model": found.name, "folder": where, **result.describe()})
    else:
        sys.stdout.write(report(result, found.name, folder))
    return int(folder is None)


def report(result: engine.QuantisedModel, name: str, folder: Path | None) -> str:
    """Return the table of layers with a summary."""
    count = counted(len(result.layers), "layer")
    lines = [f"{display_name(name)} · {count} · {counted(result.samples, 'sample')}", ""]
    lines += aligned([_TITLES, *map(_cells, result.layers)], _NUMBERS)
    lines += [""]
    if folder is None:
        lines += ["Nothing was written: with int8 no layer is faster on this machine within the budget."]
    else:
        before, after = (time_text(1e3 * each) for each in (result.float_ms, result.int8_ms))
        lines += [
            f"{result.quantised_layers} of {count} in int8: {before} -> {after} a run, "
            f"{100 * result.kept:.3f} % of the outputs' energy kept",
            f"written to {folder}",
        ]
    return "\n".join([*map(printable, lines), ""])


def _cells(layer: engine.LayerReport) -> tuple[str, ...]:
    return (
        layer.precision,
        time_text(layer.float_us),
        time_text(layer.int8_us),
        f"{layer.sqnr_db:.1f} dB",
        f"{100 * layer.share:.1f} %",
        f"{layer.name} ({layer.type})",
        layer.reason,
    )


def _items(path: str, model: Model, settings: Settings) -> list[Inputs]:
    """Return the inputs of every sample, by name.

    Raises:
        UsageError: the file does not hold what the model takes.
    """
    if Path(path).is_dir():
        found = files.find_pictures([path])
        return [files.read_inputs([], [picture], model.signature, settings) for picture in found]
    arrays = {
        name: np.asarray(value) for name, value in files.read_inputs([path], [], model.signature, settings).items()
    }
    items = {port.name: _split(arrays[port.name], port) for port in model.signature.inputs}
    counts = {name: len(each) for name, each in items.items()}
    if len(set(counts.values())) != 1:
        raise UsageError(f"--samples: found {counts} items, expected the same number for each input")
    names, values = tuple(items), zip(*items.values(), strict=True)
    return [dict(zip(names, each, strict=True)) for each in values]


def _split(array: NDArray[Any], port: engine.Port) -> list[NDArray[Any]]:
    """Return the items of an array: along a leading axis of its own, or along the batch axis of the input."""
    shape = () if port.spec is None else port.spec.shape
    if array.ndim == len(shape) + 1:
        return list(array)
    size = shape[0] if shape and isinstance(shape[0], int) else 1
    if array.ndim != len(shape) or not shape or len(array) % size:
        found, expected = list(array.shape), f"items of {port.spec}"
        raise UsageError(f"--samples: found shape {found} for '{port.name}', expected {expected}")
    return [array[start : start + size] for start in range(0, len(array), size)]


def _store(found: ModelFiles, settings: Settings) -> Path:
    """Return the local store that holds the model.

    Raises:
        UsageError: the store is remote, or the model was given by its path.
    """
    store = models.local_store(settings)
    if found.is_pair or found.folder.parent.resolve() != store.resolve():
        raise UsageError(f"'{found.name}' is not a folder of the store: expected --output")
    return store


def _written(result: engine.QuantisedModel, output: str | None, store: Path | None, name: str) -> Path:
    """Write the pair to a folder, or to the store as the next version."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(output or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        result.graph.save(folder / PARAM, folder / BIN)
        return folder if store is None else exporter.place(folder, store, name, result.graph)
