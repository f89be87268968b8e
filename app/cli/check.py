"""``pnnx-serve check``: report every reason why a model cannot be served."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import engine
from app.cli.arguments.models import find, load, prepare
from app.cli.output import write_json
from app.errors import ConfigError, ServiceError
from app.messages import printable
from app.models.dry_run import NotRunError, dry_run
from app.models.folder.repository import ModelFiles, VersionFiles, waits_for_files
from app.progress import progress
from app.settings import Settings


def execute(args: argparse.Namespace, settings: Settings) -> int:
    """Check the models and return 1 if one of them cannot be served."""
    found: list[Remark] = []
    for name in args.model:
        with progress(f"checking {name}"):
            remarks = inspect(name, settings)
        found += remarks
        if not args.json:
            sys.stdout.write("".join(f"{remark}\n" for remark in remarks))
    if args.json:
        write_json([{"model": each.place, "state": each.state, "problem": each.problem} for each in found])
    return int(any(remark.is_error for remark in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Line about a model; ``problem`` is None if all is well."""

    place: str
    problem: str | None = None
    is_error: bool = False

    @property
    def state(self) -> str:
        """Return ``ok``, ``warning`` or ``error``."""
        return "ok" if self.problem is None else "error" if self.is_error else "warning"

    def __str__(self) -> str:
        return printable(f"{self.place}: {self.state}" + ("" if self.problem is None else f": {self.problem}"))


def inspect(model: str, settings: Settings) -> list[Remark]:
    """Return all remarks on a model; it can be served if none of them is an error."""
    try:
        files = find(model, settings)
    except (ServiceError, ConfigError) as exc:
        return [Remark(place=model, problem=str(exc), is_error=True)]
    if files.problem is not None:
        return [Remark(place=model, problem=files.problem, is_error=True)]
    many = len(files.versions) > 1
    return [
        remark
        for version in files.versions
        for remark in _version(f"{model} version {version.number}" if many else model, files, version, settings)
    ]


def _version(place: str, files: ModelFiles, version: VersionFiles, settings: Settings) -> list[Remark]:
    if (found := waits_for_files(version)) is not None:
        return [Remark(place=place, problem=found, is_error=True)]
    strict = files.config.is_strict(settings.strict)
    remarks = [
        Remark(place=place, problem=str(problem), is_error=isinstance(problem, engine.EngineError))
        for problem in engine.check(version.param, version.bin, strict=strict)
    ]
    if not any(remark.is_error for remark in remarks):
        remarks += _trial(place, files, version, settings)
    return remarks if any(remark.is_error for remark in remarks) else [*remarks, Remark(place=place)]


def _gaps(place: str, bundle: Mapping[str, Any] | None) -> Iterator[Remark]:
    """Warn about shapes that a bundle runs on the reference here."""
    if bundle is not None and "why" in bundle:
        programs = "; ".join(" and ".join(map(str, shapes)) for shapes in bundle["programs"])
        yield Remark(place=place, problem=f"other shapes than {programs} run on the reference: {bundle['why']}")


def _trial(place: str, files: ModelFiles, version: VersionFiles, settings: Settings) -> Iterator[Remark]:
    """Load the model as the server does and run it once on zeros; assume sizes for dynamic dimensions."""
    try:
        model = prepare(files, version, load(version, settings), settings)
        dry_run(model)
        yield from _gaps(place, model.session.describe().get("bundle"))
    except NotRunError as exc:
        yield Remark(place=place, problem=str(exc))
    except (engine.EngineError, ConfigError, ServiceError) as exc:
        yield Remark(place=place, problem=str(exc), is_error=True)
