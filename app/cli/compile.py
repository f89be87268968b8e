"""``pnnx-serve compile``: fill the cache or a bundle ahead of time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import engine
from app.cli.arguments import models
from app.cli.arguments.models import example_specs
from app.cli.arguments.options import UsageError
from app.cli.output import display_name, write_json
from app.errors import ConfigError, ServiceError
from app.messages import printable
from app.models.folder.layout import CONFIG, QUANTISATION
from app.models.folder.repository import ModelFiles, VersionFiles
from app.models.model import Model
from app.models.sessions import read_graph
from app.progress import compiling
from app.render.formatting import count_text, counted, time_text
from app.settings import Settings

_OCI: Final = "oci:"
_TAG: Final = "latest"
_MAX_BYTES: Final = 1 << 28

# Whether the program is in the cache now, the line to print, and the same as data.
_Outcome: TypeAlias = tuple[bool, str, dict[str, Any]]


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Print a line for each model and batch; return 1 if a program could not be kept in the cache."""
    if args.shape and args.batch != [None]:
        raise UsageError("--shape and --batch: found both, expected one of them (a shape includes the batch)")
    settings = settings.model_copy(update={"backend": "compiled", "cache": True})
    if args.bundle is None and (args.oci or args.target):
        raise UsageError("--oci and --target: found without --bundle, expected with it")
    if args.all == bool(args.model):
        raise UsageError("MODEL or --all: found " + ("both" if args.all else "neither") + ", expected one of them")
    names = models.all_names(settings) if args.all else args.model
    if args.bundle is not None and len(names) > 1:
        raise UsageError(f"--bundle: found {len(names)} models, expected one")
    failed, rows = False, list[dict[str, Any]]()
    for name in names:
        try:
            if args.bundle is not None:
                for line, row in _write_bundle(name, args, settings):
                    rows.append(row)
                    if not args.json:
                        print(printable(line), flush=True)
                continue
            files = models.find(name, settings)
            for made, text, row in _compile(files, args, settings):
                failed |= not made
                rows.append({**row, "is_kept": made})
                if not args.json:
                    print(printable(text), flush=True)
        except (engine.EngineError, ConfigError, ServiceError) as exc:
            failed = True
            print(printable(f"{name}: error: {exc}"), file=sys.stderr)
    if args.json:
        write_json(rows)
    return int(failed)


def _compile(files: ModelFiles, args: argparse.Namespace, settings: Settings) -> Iterator[_Outcome]:
    """Yield for every version and batch whether it succeeded, a line about it, and the same as data."""
    models.newest(files)  # raises ConfigError for an invalid folder
    for version in files.versions:
        label = f"{files.name} version {version.number}" if len(files.versions) > 1 else files.name
        yield from _batches(label, files, version, args, settings)


def _batches(
    label: str, files: ModelFiles, version: VersionFiles, args: argparse.Namespace, settings: Settings
) -> Iterator[_Outcome]:
    model = models.prepare(files, version, read_graph(version, settings), settings)
    specs = example_specs(model, args.shape)
    shapes = " and ".join(f"{list(shape)}" for shape in args.shape)
    for batch in args.batch:
        about = " · ".join(filter(None, [label, shapes, "" if batch is None else f"batch {batch}"]))
        try:
            with compiling(about) as show:
                made = model.compile(batch, specs=specs, refresh=args.force, progress=show)
        except engine.ShapeError as error:
            if args.shape or batch is not None or model.refuses_its_sizes(error):
                raise
            made = None  # the sizes assumed for dynamic dimensions do not work
        row = {"model": files.name, "version": version.number, "shapes": args.shape, "batch": batch, **(made or {})}
        if made is None:
            yield True, f"{about} · nothing to compile ahead: its sizes are dynamic; --shape gives them", row
        else:
            yield made["entry_bytes"] > 0, f"{about} · {_outcome(made)}", row


def _outcome(made: dict[str, Any]) -> str:
    time = time_text(made["compile_ms"] * 1e3)
    parts = [f"found in the cache, loaded in {time}" if made["is_cached"] else f"compiled in {time}"]
    parts.append(count_text(made["entry_bytes"], "B") if made["entry_bytes"] else "not kept: the cache takes nothing")
    parts.append(counted(made["kernels"], "kernel"))
    if made["fallbacks"]:
        parts.append(f"{counted(made['fallbacks'], 'operator')} on the reference")
    return " · ".join(parts)


def _write_bundle(name: str, args: argparse.Namespace, settings: Settings) -> Iterator[tuple[str, dict[str, Any]]]:
    """Write the bundle; yield a line for each program and one for the whole, each also as data.

    Raises:
        EngineError, ConfigError, ServiceError: it cannot be written.
    """
    files, version, model = models.load(name, settings)
    shapes = list(_shapes(model, args))
    folder = args.bundle.removeprefix(_OCI)
    tag = _TAG if args.oci or args.bundle.startswith(_OCI) else None
    with compiling(files.name) as show:
        made = model.session.save_bundle(
            Path(folder),
            shapes,
            batches=[each for each in args.batch if each is not None],
            name=display_name(files.name),
            files=_model_files(files, version),
            target=args.target,
            tag=tag,
            replace=args.force,
            progress=show,
        )
    for row in made:
        inputs = " and ".join(f"{each['shape']}" for each in row["inputs"])
        yield f"{files.name} · {inputs} · {count_text(row['bytes'], 'B')}", {"model": files.name, **row}
    machines = "machines such as this one" if args.target is None else f"every machine with {args.target}"
    kind = "bundle" if tag is None else f"OCI layout, tag {tag}"
    text = f"{folder} · {kind} with {counted(len(made), 'program')} for {machines}"
    yield text, {"model": files.name, "bundle": folder, "programs": len(made), "target": args.target, "tag": tag}


def _shapes(model: Model, args: argparse.Namespace) -> Iterator[list[engine.TensorSpec]]:
    """Yield the input specs of each program; --shape may be given several times for all inputs."""
    inputs = len(model.signature.inputs)
    sets = [args.shape[at : at + inputs] for at in range(0, len(args.shape), inputs)] if args.shape else [[]]
    for each in sets:
        yield models.needed_specs(model, each)


def _model_files(files: ModelFiles, version: VersionFiles) -> dict[str, bytes]:
    """Return the config of a model with the files that it names, and what lies beside the network of the version."""
    own = {} if files.is_pair else {name: files.folder / name for name in (CONFIG, *files.config.named_files)}
    others = {path.name: path for path in (*version.beside, version.param.with_name(QUANTISATION))}
    return {name: engine.read_file(path, _MAX_BYTES) for name, path in (own | others).items() if path.exists()}
