"""The verb: choose a reader for the source, complete the config from the graph, write the model to the store."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import engine
import exporter
from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.cli.moving_in import hugging_face, onnx_file, torchserve
from app.cli.moving_in.found import Found, Request
from app.messages import cut, printable
from app.models.folder.config import parse_config
from app.models.folder.layout import CONFIG, NAME_RULE, is_model_name
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Read the model, write it to the store as the next version, and report."""
    with tempfile.TemporaryDirectory() as scratch:
        request = Request(
            source=Path(args.source).absolute(),
            scratch=Path(scratch),
            shapes=tuple(args.shape),
            file=args.file,
            may_run_code=args.run_code,
        )
        found = _reader(request.source)(request)
        graph = engine.load(*found.model)
        onnx_file.complete(found, graph)
        name = args.name or found.name
        if not is_model_name(name):
            raise UsageError(f"--name: found '{cut(name)}', expected {NAME_RULE}")
        folder = _placed(found, models.local_store(settings), name)
    lines = [f"{folder}: task {found.config.get('task', 'tensor')}, {len(graph.operators)} operators"]
    lines += [f"{port.name} {port.spec}" for port in (*graph.inputs, *graph.outputs)]
    lines += [f"note: {note}" for note in found.notes]
    sys.stdout.write("\n".join([*map(printable, lines), ""]))
    return 0


def _reader(source: Path) -> Callable[[Request], Found]:
    if source.is_dir():
        return hugging_face.read
    if not source.exists():
        raise UsageError(f"{source.name}: not found")
    readers = {".mar": torchserve.read, ".onnx": onnx_file.read}
    if source.suffix not in readers:
        raise UsageError(f"{source.name}: expected a folder of Hugging Face, a .mar archive or an .onnx file")
    return readers[source.suffix]


def _placed(found: Found, store: Path, name: str) -> Path:
    """Copy the files into the store as the next version; it appears whole or not at all."""
    parse_config(json.dumps(found.config))  # so that what is written is served
    if (store / name / CONFIG).exists():
        found.notes.append(f"{name}/{CONFIG} was there and stays as it is")
    return exporter.install(found.files, store, name, toml_text(found.config))


def toml_text(config: Mapping[str, Any]) -> str:
    """Return a config.toml; values are written as JSON, of which TOML's are a superset here."""
    keys = [f"{key} = {json.dumps(value)}" for key, value in config.items() if not isinstance(value, dict)]
    lines = [*keys]
    for name, table in config.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"
