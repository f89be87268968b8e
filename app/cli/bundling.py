"""``pnnx-serve compile MODEL --bundle DIR``: model and compiled programs in one folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

import engine
from app.cli.arguments import models
from app.cli.arguments.models import example_specs
from app.cli.arguments.options import UsageError
from app.models.folder.layout import CONFIG
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.progress import compiling
from app.render.spelling import count_text, counted
from app.settings import Settings

_OCI: Final = "oci:"
_TAG: Final = "latest"
_MAX_BYTES: Final = 8 << 20


def write(name: str, args: argparse.Namespace, settings: Settings) -> Iterator[str]:
    """Write the bundle; yield a line for each program and one for the whole.

    Raises:
        EngineError, ConfigError, ServiceError: it cannot be written.
    """
    files = models.find(name, settings)
    version = models.newest(files)
    model = models.prepare(files, version, models.load(version, settings), settings)
    shapes = list(_shapes(model, args))
    if args.tune:
        with compiling(files.name) as show:
            for batch, specs in product(args.batch, shapes):
                model.compile(batch, specs=specs, tune=True, progress=show)
    folder = args.bundle.removeprefix(_OCI)
    tag = _TAG if args.oci or args.bundle.startswith(_OCI) else None
    with compiling(files.name) as show:
        made = model.session.save_bundle(
            Path(folder),
            shapes,
            batches=[each for each in args.batch if each is not None],
            name=_name(files),
            files=_beside(files, version),
            target=args.target,
            tag=tag,
            replace=args.force,
            progress=show,
        )
    for row in made:
        inputs = " and ".join(f"{each['shape']}" for each in row["inputs"])
        yield f"{files.name} · {inputs} · {count_text(row['bytes'], 'B')}"
    machines = "machines such as this one" if args.target is None else f"every machine with {args.target}"
    kind = "bundle" if tag is None else f"OCI layout, tag {tag}"
    yield f"{folder} · {kind} with {counted(len(made), 'program')} for {machines}"


def _shapes(model: Model, args: argparse.Namespace) -> Iterator[list[engine.TensorSpec]]:
    """Yield the input specs of each program; --shape may be given several times for all inputs."""
    inputs = len(model.signature.inputs)
    sets = [args.shape[at : at + inputs] for at in range(0, len(args.shape), inputs)] if args.shape else [[]]
    for each in sets:
        specs = example_specs(model, each)
        if specs is None:
            raise UsageError(
                "the model leaves its input's size open, so there is nothing to compile: --shape names one"
            )
        yield specs


def _name(files: ModelFiles) -> str:
    """Return the name of the model; for a path the file's name without folder and endings."""
    return Path(files.name).name.removesuffix(".param").removesuffix(".pnnx").removesuffix(".onnx")


def _beside(files: ModelFiles, version: VersionFiles) -> dict[str, bytes]:
    """Return the config and the label file of a model of the store."""
    if files.is_pair:
        return {}
    names = [CONFIG, *([files.config.labels] if isinstance(files.config.labels, str) else [])]
    return {name: engine.read_file(files.folder / name, _MAX_BYTES) for name in names if (files.folder / name).exists()}
