"""``pnnx-serve quantize``: compute layers of a model with fewer bits where that pays and is accurate enough."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, Final

import engine
import exporter
from app.cli.arguments import files, models
from app.cli.arguments.options import UsageError
from app.cli.arguments.samples import Samples, read_recorded, read_samples
from app.cli.output import display_name, write_json
from app.codec.answers import dump_json
from app.console.quantisation import measured_times
from app.messages import printable
from app.models.folder.layout import BIN, PARAM, QUANTISATION
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.progress import telling
from app.render.formatting import count_text, counted, time_text
from app.render.table import aligned
from app.settings import Settings
from app.tasks.registry import find_task
from app.thread_limits import thread_budget

_LABELS: Final = ("layer", "")
_NUMBERS: Final = ("SQNR", "error", "restore", "saved")


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Calibrate, choose, write and report; return 1 if no layer is worth quantising."""
    settings = files.without_limits(settings)
    found, version, model = models.load(args.model, settings, models.newest_original)
    store = None if args.output is not None else _store(found, settings)
    _check_writable(Path(args.output) if store is None else store / found.name)
    with tempfile.TemporaryFile() as copy, telling(f"quantizing {found.name}") as show:
        samples = _samples(args, found, version, model, settings, copy)

        def tell(doing: str, done: int, of: int) -> None:
            show(f"{doing} {done + 1} of {of}" if of > 1 else doing)

        threads = thread_budget(settings.threads).threads
        options: dict[str, Any] = {"precision": args.precision, "keep": args.keep, "threads": threads}
        result = engine.quantise(model.session.graph, samples, **options, progress=tell)
        accuracy = _accuracy(model, result, samples, threads, tell)
    document = _document(result, accuracy)
    folder = _written(result, document, args.output, store, found.name, version) if result.quantised_layers else None
    if args.json:
        where = None if folder is None else str(folder)
        write_json({"model": found.name, "version": version.number, "folder": where, **document})
    else:
        sys.stdout.write(report(result, accuracy, args.precision, _source_text(found, version), folder))
    return int(folder is None)


def _samples(
    args: argparse.Namespace,
    found: ModelFiles,
    version: VersionFiles,
    model: Model,
    settings: Settings,
    copy: IO[bytes],
) -> Samples:
    """Return the samples; none for a precision that needs none.

    Raises:
        UsageError: there are no samples for int8 or auto.
    """
    if args.recorded is not None:
        return read_recorded(args.recorded, found, version, model, settings, copy)
    if args.samples is not None:
        return read_samples(args.samples, model, settings)
    if args.precision in ("int8", "auto"):
        raise UsageError(f"--precision {args.precision}: expected --samples or --recorded")
    return Samples(model, ())


def _accuracy(
    model: Model, result: engine.QuantisedModel, samples: Samples, threads: int, tell: engine.Progress
) -> engine.AccuracyChange | None:
    """Return the accuracy on labelled samples before and after; None without labels or without quantised layers."""
    if samples.labels is None or not result.quantised_layers:
        return None
    task = find_task(model.task)
    named = getattr(model.config.table(task), "output", None)
    output = 0 if named is None else model.signature.output_names.index(named)
    given = (model.session.graph, result.graph, samples, samples.labels)
    return engine.compare_accuracy(*given, output=output, threads=threads, progress=tell)


def _document(result: engine.QuantisedModel, accuracy: engine.AccuracyChange | None) -> dict[str, Any]:
    return {**result.describe(), "accuracy": None if accuracy is None else accuracy.describe()}


def _source_text(found: ModelFiles, version: VersionFiles) -> str:
    """Return the name of the model, with the version unless that is the newest."""
    is_newest = version == models.newest(found)
    return found.name if is_newest else f"{found.name} version {version.number}"


def report(
    result: engine.QuantisedModel,
    accuracy: engine.AccuracyChange | None,
    precision: str,
    name: str,
    folder: Path | None,
) -> str:
    """Return the table of layers with a summary."""
    count = counted(len(result.layers), "layer")
    skipped = f", {result.skipped} left out: values are not finite" if result.skipped else ""
    inputs = counted(result.samples, "sample") if result.samples else "made-up inputs"
    lines = [f"{display_name(name)} · {count} · {inputs}{skipped}", ""]
    times = measured_times([each.describe() for each in result.layers])
    numbers = (*times, *_NUMBERS)
    rows = [("precision", *numbers, *_LABELS), *(_cells(each, times.values()) for each in result.layers)]
    lines += aligned(rows, frozenset(numbers))
    lines += [""]
    if folder is None:
        smaller = ", and no layer a megabyte smaller" if precision.endswith("-weights") else ""
        budget = "" if result.kept is None else " within the budget"
        lines += [f"Nothing was written: with {precision} the network is not faster{smaller}{budget}."]
    else:
        before, after = (time_text(1e3 * each) for each in (result.float_ms, result.int8_ms))
        kinds = " and ".join(sorted({each.precision for each in result.layers} - {"float32"}))
        saved = f", weights {_bytes_text(result.saved_bytes)} smaller" if result.saved_bytes else ""
        lines += [
            f"{result.quantised_layers} of {count} in {kinds}: {before} -> {after} a run{saved}"
            f"{_kept_text(result.kept)}",
            *([] if accuracy is None else [_accuracy_text(accuracy)]),
            f"written to {folder}",
        ]
    return "\n".join([*map(printable, lines), ""])


def _bytes_text(count: int) -> str:
    return count_text(count, "B")


def _kept_text(kept: float | None) -> str:
    return "" if kept is None else f", {100 * kept:.3f} % of the outputs' energy kept"


def _accuracy_text(found: engine.AccuracyChange) -> str:
    before, after = (f"{100 * each / found.samples:.2f} %" for each in (found.before, found.after))
    low, high = (f"{100 * each:+.2f}" for each in found.interval)
    return (
        f"accuracy {before} -> {after} on {counted(found.samples, 'labelled sample')}: {found.lost} lost,"
        f" {found.gained} gained; change {100 * found.change:+.2f} points, 95 % confidence {low} to {high}"
    )


def _cells(layer: engine.LayerReport, times: Iterable[str]) -> tuple[str, ...]:
    measured = (getattr(layer, each) for each in times)
    return (
        layer.precision,
        *("" if each is None else time_text(each) for each in measured),
        f"{layer.sqnr_db:.1f} dB",
        f"{100 * layer.share:.1f} %",
        _restore_text(layer),
        _bytes_text(layer.saved_bytes) if layer.precision not in ("float32", "bf16") else "",
        f"{layer.name} ({layer.type})",
        layer.reason,
    )


def _restore_text(layer: engine.LayerReport) -> str:
    """Return what the layer would cost in float32 again, and the share of the error that would vanish."""
    if layer.precision == "float32":
        return ""
    return (
        f"{'-' if layer.restore_us < 0 else '+'}{time_text(abs(layer.restore_us))}, -{100 * layer.restore_share:.1f} %"
    )


def _store(found: ModelFiles, settings: Settings) -> Path:
    """Return the local store that holds the model.

    Raises:
        UsageError: the store is remote, or the model was given by its path.
    """
    store = models.local_store(settings)
    if found.is_pair or found.folder.parent.resolve() != store.resolve():
        raise UsageError(f"'{found.name}' is not a folder of the store: expected --output")
    return store


def _check_writable(folder: Path) -> None:
    """Refuse a folder that cannot be written before the layers are measured, which may take minutes.

    Raises:
        UsageError: it cannot be written or made.
    """
    existing = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UsageError(f"'{existing}' is not a folder that can be written")


def _written(
    result: engine.QuantisedModel,
    document: dict[str, Any],
    output: str | None,
    store: Path | None,
    name: str,
    version: VersionFiles,
) -> Path:
    """Write the pair, the report and the version's other files to a folder, or to the store as the next version."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch if output is None else output)
        folder.mkdir(parents=True, exist_ok=True)
        result.graph.save(folder / PARAM, folder / BIN)
        (folder / QUANTISATION).write_bytes(dump_json(document))
        for path in version.beside:
            shutil.copyfile(path, folder / path.name)
        if store is None:
            return folder
        others = (QUANTISATION, *(path.name for path in version.beside))
        return exporter.place(folder, store, name, result.graph, others)
