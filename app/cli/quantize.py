"""``pnnx-serve quantize``: compute layers of a model with int8 where that is faster and accurate enough."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import engine
import exporter
from app.cli.arguments import files, models
from app.cli.arguments.options import UsageError
from app.cli.arguments.samples import Samples, read_recorded, read_samples
from app.cli.output import display_name, write_json
from app.codec.answers import dump_json
from app.messages import printable
from app.models.folder.layout import BIN, PARAM, QUANTISATION
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.progress import telling
from app.render.formatting import counted, time_text
from app.render.table import aligned
from app.settings import Settings
from app.tasks.registry import find_task
from app.thread_limits import thread_budget

_TITLES: Final = ("precision", "float32", "int8", "SQNR", "error", "restore", "layer", "")
_NUMBERS: Final = frozenset({"float32", "int8", "SQNR", "error", "restore"})


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Calibrate, choose, write and report; return 1 if no layer is worth quantising."""
    settings = files.without_limits(settings)
    found, version, model = models.load(args.model, settings)
    if args.recorded is None:
        samples = read_samples(args.samples, model, settings)
    else:
        samples = read_recorded(args.recorded, found, version, model, settings)
    store = None if args.output is not None else _store(found, settings)
    with telling(f"quantizing {found.name}") as show:

        def tell(doing: str, done: int, of: int) -> None:
            show(f"{doing} {done + 1} of {of}" if of > 1 else doing)

        threads = thread_budget(settings.threads).threads
        result = engine.quantise(model.session.graph, samples, keep=args.keep, threads=threads, progress=tell)
        accuracy = _accuracy(model, result, samples, threads, tell)
    document = _document(result, accuracy)
    folder = _written(result, document, args.output, store, found.name, version) if result.quantised_layers else None
    if args.json:
        where = None if folder is None else str(folder)
        write_json({"model": found.name, "folder": where, **document})
    else:
        sys.stdout.write(report(result, accuracy, found.name, folder))
    return int(folder is None)


def _accuracy(
    model: Model, result: engine.QuantisedModel, samples: Samples, threads: int, tell: engine.Progress
) -> engine.AccuracyChange | None:
    """Return the accuracy on labelled samples before and after; None without labels or without int8 layers."""
    if samples.labels is None or not result.quantised_layers:
        return None
    task = find_task(model.task)
    named = getattr(model.config.table(task), "output", None)
    output = 0 if named is None else model.signature.output_names.index(named)
    given = (model.session.graph, result.graph, samples, samples.labels)
    return engine.compare_accuracy(*given, output=output, threads=threads, progress=tell)


def _document(result: engine.QuantisedModel, accuracy: engine.AccuracyChange | None) -> dict[str, Any]:
    return {**result.describe(), "accuracy": None if accuracy is None else accuracy.describe()}


def report(
    result: engine.QuantisedModel, accuracy: engine.AccuracyChange | None, name: str, folder: Path | None
) -> str:
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
            *([] if accuracy is None else [_accuracy_text(accuracy)]),
            f"written to {folder}",
        ]
    return "\n".join([*map(printable, lines), ""])


def _accuracy_text(found: engine.AccuracyChange) -> str:
    before, after = (f"{100 * each / found.samples:.2f} %" for each in (found.before, found.after))
    low, high = (f"{100 * each:+.2f}" for each in found.interval)
    return (
        f"accuracy {before} -> {after} on {counted(found.samples, 'labelled sample')}: {found.lost} lost,"
        f" {found.gained} gained; change {100 * found.change:+.2f} points, 95 % confidence {low} to {high}"
    )


def _cells(layer: engine.LayerReport) -> tuple[str, ...]:
    return (
        layer.precision,
        time_text(layer.float_us),
        time_text(layer.int8_us),
        f"{layer.sqnr_db:.1f} dB",
        f"{100 * layer.share:.1f} %",
        _restore_text(layer),
        f"{layer.name} ({layer.type})",
        layer.reason,
    )


def _restore_text(layer: engine.LayerReport) -> str:
    """Return what the layer would cost in float32 again, and the share of the error that would vanish."""
    if layer.precision != "int8":
        return ""
    return f"+{time_text(layer.restore_us)}, -{100 * layer.restore_share:.1f} %"


def _store(found: ModelFiles, settings: Settings) -> Path:
    """Return the local store that holds the model.

    Raises:
        UsageError: the store is remote, or the model was given by its path.
    """
    store = models.local_store(settings)
    if found.is_pair or found.folder.parent.resolve() != store.resolve():
        raise UsageError(f"'{found.name}' is not a folder of the store: expected --output")
    return store


def _written(
    result: engine.QuantisedModel,
    document: dict[str, Any],
    output: str | None,
    store: Path | None,
    name: str,
    version: VersionFiles,
) -> Path:
    """Write the pair, the report and the version's other files to a folder, or to the store as the next version."""
    others = [path for path in (version.warmup, version.tokenizer, version.hooks) if path is not None and path.exists()]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(output or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        result.graph.save(folder / PARAM, folder / BIN)
        (folder / QUANTISATION).write_bytes(dump_json(document))
        for path in others:
            shutil.copyfile(path, folder / path.name)
        if store is None:
            return folder
        return exporter.place(folder, store, name, result.graph, (QUANTISATION, *(path.name for path in others)))
