"""``pnnx-serve export``: from PyTorch to a model that can be served."""

from __future__ import annotations

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from app.cli.arguments.options import UsageError, add_setting, read_settings
from app.progress import progress

if TYPE_CHECKING:
    import exporter
    from app.settings import Settings

SUMMARY: Final = "turn a PyTorch or ONNX model into a checked PNNX pair"
EXAMPLES: Final = """  pnnx-serve export model.py:Net --shape 1,3,224,224
  pnnx-serve export net.pt --shape 1,3,224,224 --shape2 4,3,320,320 --name segmenter
  pnnx-serve export model.py:make_encoder --shape 1,77 --dtype int64 --shape 1,77,512 --dtype float32
  pnnx-serve export model.py --shape 1,16 --output exported --reference ref.npz

SOURCE is a Python file and a class, function or module in it (FILE.py:NAME; without a name it must have just one
model), the same in an installed package (package.module:NAME), a file written by torch.jit.save, or an ONNX file, which
is held against onnxruntime. Importing a Python file runs it. Without --output the pair becomes the next version of a
model in the store, but only if it gives the model's own answers.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """What to export, with which inputs, where to."""
    parser.add_argument(
        "source", metavar="SOURCE", help="FILE.py[:NAME], package.module:NAME, a TorchScript file or FILE.onnx"
    )
    for flag, text in (
        ("--shape", "shape of an input, such as 1,3,224,224; once for each input"),
        ("--dtype", "dtype of the inputs; once for all, or once for each. Default: float32."),
        ("--shape2", "another shape of each input: dimensions that differ become dynamic"),
    ):
        parser.add_argument(flag, action="append", default=[], metavar=flag[2:7].upper(), help=text)
    parser.add_argument("--name", help="name of the model in the store. Default: that of the class or file.")
    parser.add_argument("--output", metavar="DIR", help="write the pair into this folder, not into the store")
    parser.add_argument("--reference", metavar="FILE", help="also record PyTorch's values, for 'pnnx-serve compare'")
    parser.add_argument(
        "--opt-level",
        type=int,
        choices=(0, 1, 2),
        default=2,
        help="simplification. Default: 2; 1 keeps what it loses at times.",
    )
    parser.add_argument(
        "--module-operator",
        action="append",
        default=[],
        metavar="CLASS",
        help="keep this class (package.module.Class) as one operator; a plugin must know it",
    )
    parser.add_argument(
        "--rtol", type=float, metavar="SHARE", help="allowed error as a share of an output's largest magnitude"
    )
    for name in ("store", "plugins"):
        add_setting(parser, name)


def execute(args: argparse.Namespace) -> int:
    """Export, check, place, report."""
    settings = read_settings(args)
    if not args.shape:
        raise UsageError("--shape is needed, once for each input")
    _require_extra()
    import exporter

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


def _require_extra() -> None:
    """Say which extra to install, rather than which module is missing."""
    missing = [name for name in ("exporter", "torch", "pnnx") if find_spec(name) is None]
    if missing:
        from app.errors import ConfigError

        raise ConfigError(f"export needs {' and '.join(missing)}: pip install 'pnnx-serve[export]'")


def _placed(exported: exporter.Exported, args: argparse.Namespace, settings: Settings) -> Path:
    import exporter

    if args.output is not None:
        return exported.folder
    name = args.name or exporter.model_name(args.source)
    return exporter.place(exported.folder, settings.store, name, exported.graph)


def _report(exported: exporter.Exported, folder: Path, source: str) -> str:
    from app.render.wording import printable

    graph = exported.graph
    rival = "onnxruntime" if source.endswith(".onnx") else "PyTorch"
    lines = [f"{folder}: {len(graph.operators)} operators, same answers as {rival} at {' and '.join(exported.tried)}"]
    lines += [f"{port.name} {port.spec}" for port in (*graph.inputs, *graph.outputs)]
    lines += [f"note: {remark}" for remark in exported.remarks]
    return "\n".join([*map(printable, lines), ""])
