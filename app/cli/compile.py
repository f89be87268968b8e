"""``pnnx-serve compile``: fill the cache or a bundle ahead of time."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import engine
from app.cli import bundling
from app.cli.arguments import models
from app.cli.arguments.models import example_specs
from app.cli.arguments.options import UsageError
from app.cli.wording.figures import tuned_short
from app.errors import ConfigError, ServiceError
from app.models.folder.repository import ModelFiles, VersionFiles
from app.progress import compiling
from app.render.spelling import count_text, counted, time_text
from app.settings import Settings
from app.wording import printable


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Print a line for each model and batch; return 1 if a program could not be kept in the cache."""
    if args.shape and args.batch != [None]:
        raise UsageError("--shape and --batch: a shape says how large the batch is, expected one of them")
    settings = settings.model_copy(update={"backend": "compiled", "cache": True})
    if args.bundle is None and (args.oci or args.target):
        raise UsageError("--oci and --target are of a bundle: found no --bundle")
    if args.tune and args.target:
        raise UsageError("--tune and --target: what is measured here says nothing of other machines")
    if args.all == bool(args.model):
        raise UsageError("MODEL or --all: found " + ("both" if args.all else "neither") + ", expected one of them")
    names = models.all_names(settings) if args.all else args.model
    if args.bundle is not None and len(names) > 1:
        raise UsageError(f"--bundle: found {len(names)} models, expected one")
    failed = False
    for name in names:
        try:
            if args.bundle is not None:
                for line in bundling.write(name, args, settings):
                    print(printable(line), flush=True)
                continue
            files = models.find(name, settings)
            for made, text in _compile(files, args, settings):
                failed |= not made
                print(printable(text), flush=True)
        except (engine.EngineError, ConfigError, ServiceError) as exc:
            failed = True
            print(printable(f"{name}: error: {exc}"), file=sys.stderr)
    return int(failed)


def _compile(files: ModelFiles, args: argparse.Namespace, settings: Settings) -> Iterator[tuple[bool, str]]:
    """Yield for every version and batch whether it succeeded, and a line about it."""
    models.newest(files)  # raises ConfigError for an invalid folder
    for version in files.versions:
        label = f"{files.name} version {version.number}" if len(files.versions) > 1 else files.name
        yield from _batches(label, files, version, args, settings)


def _batches(
    label: str, files: ModelFiles, version: VersionFiles, args: argparse.Namespace, settings: Settings
) -> Iterator[tuple[bool, str]]:
    model = models.prepare(files, version, models.load(version, settings), settings)
    specs = example_specs(model, args.shape)
    shapes = " and ".join(f"{list(shape)}" for shape in args.shape)
    for batch in args.batch:
        about = " · ".join(filter(None, [label, shapes, "" if batch is None else f"batch {batch}"]))
        try:
            with compiling(about) as show:
                made = model.compile(batch, specs=specs, refresh=args.force, tune=args.tune, progress=show)
        except engine.ShapeError as error:
            if args.shape or batch is not None or model.refuses_its_sizes(error):
                raise
            made = None  # the sizes assumed for open dimensions do not work
        if made is None:
            yield True, f"{about} · nothing to do ahead: a request, or --shape, has to say the sizes of its inputs"
        else:
            yield made["entry_bytes"] > 0, f"{about} · {_outcome(made)}"


def _outcome(made: dict[str, Any]) -> str:
    time = time_text(made["compile_ms"] * 1e3)
    parts = [f"found in the cache, loaded in {time}" if made["is_cached"] else f"compiled in {time}"]
    parts.append(count_text(made["entry_bytes"], "B") if made["entry_bytes"] else "not kept: the cache takes nothing")
    parts.append(counted(made["kernels"], "kernel"))
    if made["tuned"]:
        parts.append(tuned_short(made["tuned"]))
    if made["fallbacks"]:
        parts.append(f"{counted(made['fallbacks'], 'operator')} on the reference")
    return " · ".join(parts)
