"""``pnnx-serve export``: turn a PyTorch or ONNX model into a pair that can be served."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import engine
import exporter
from app.cli.arguments import models
from app.cli.arguments.options import UsageError
from app.errors import ConfigError
from app.messages import printable
from app.models.folder.layout import BIN, PARAM
from app.progress import progress
from app.settings import Settings

# By default, pip takes the build of torch with 4 GB of CUDA libraries.
_COMMANDS: Final = {
    "torch": "pip install torch (the CPU build: https://pytorch.org/get-started/locally)",
    "pnnx": "pip install pnnx",
}


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Export, verify, place in the store and report."""
    if not args.shape and args.source.endswith(".onnx"):
        return _rewrite(args, settings)
    if not args.shape:
        raise UsageError("--shape: missing, expected once for each input")
    _require_extra()
    inputs = exporter.parse_inputs(args.shape, args.dtype)
    second = exporter.parse_inputs(args.shape2, args.dtype) if args.shape2 else ()
    with progress(f"loading {args.source}"):
        model = exporter.load_source(args.source)
    with tempfile.TemporaryDirectory() as scratch:
        exported = exporter.export(
            model,
            inputs,
            Path(args.output or scratch),
            second=second,
            opt_level=args.opt_level,
            module_operators=args.module_operator,
            rtol=args.rtol,
            reference=args.reference,
            progress=progress,
        )
        folder = _placed(exported, args, settings)
    sys.stdout.write(_report(exported, folder, args.source))
    return 0


def _rewrite(args: argparse.Namespace, settings: Settings) -> int:
    """Read an ONNX file as the server would and write it as a pair."""
    with progress(f"reading {args.source}"):
        graph = engine.load(args.source)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.output or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        graph.save(folder / PARAM, folder / BIN)
        exported = engine.load(folder / PARAM, folder / BIN)
        if args.output is None:
            folder = exporter.place(
                folder, models.local_store(settings), args.name or exporter.model_name(args.source), exported
            )
    lines = [f"{folder}: {len(exported.operators)} operators"]
    lines += [f"{port.name} {port.spec}" for port in (*exported.inputs, *exported.outputs)]
    sys.stdout.write("\n".join([*map(printable, lines), ""]))
    return 0


def _require_extra() -> None:
    """Raise ConfigError with the commands that install the packages that are missing."""
    missing = [name for name in _COMMANDS if find_spec(name) is None]
    if missing:
        raise ConfigError(f"export needs {' and '.join(missing)}: {'; '.join(_COMMANDS[name] for name in missing)}")


def _placed(exported: exporter.Exported, args: argparse.Namespace, settings: Settings) -> Path:
    if args.output is not None:
        return exported.folder
    name = args.name or exporter.model_name(args.source)
    return exporter.place(exported.folder, models.local_store(settings), name, exported.graph)


def _report(exported: exporter.Exported, folder: Path, source: str) -> str:
    graph = exported.graph
    rival = "onnxruntime" if source.endswith(".onnx") else "PyTorch"
    lines = [f"{folder}: {len(graph.operators)} operators, same answers as {rival} at {' and '.join(exported.tried)}"]
    lines += [f"{port.name} {port.spec}" for port in (*graph.inputs, *graph.outputs)]
    lines += [f"note: {remark}" for remark in exported.remarks]
    return "\n".join([*map(printable, lines), ""])
